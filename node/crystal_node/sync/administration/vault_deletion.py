"""Deleting the vault at its relay: asked for by the root, called off by the Core or the root, while the relay waits.

::

    none --delete--> waits, each device says so --keep--> none;  waits --due--> the relay has nothing of the vault any more

The memory on the devices is not touched.
"""

import time
from dataclasses import dataclass

from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import NotAllowed
from crystal_node.base.errors import UsageError
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.device.planned_deletion import PlannedDeletion, keep_planned
from crystal_node.device.registration import root_proof
from crystal_node.device.runner import RelayRefused, store_failure
from crystal_node.sync.administration.root_rotation import chosen_root
from crystal_node.sync.syncer import syncing
from crystal_relay.errors import Forbidden, NoSuchRoute, RelayError, Unauthorized
from crystal_relay.wire import DeletionReply

DAY_SECONDS = 86_400
DAYS = 7
"""The waiting time, unless the person chooses another."""
_NEWER_HINT = "Its operator can delete the vault: `crystal-relay vaults delete`."


@dataclass(frozen=True, slots=True)
class DeletionWaits:
    """A deletion at the relay. ``fresh``: it was asked for just now."""

    planned: PlannedDeletion
    fresh: bool


async def ask_deletion(device: Device, days: int, *, kit: Root | None = None) -> DeletionWaits:
    """Has the relay delete the vault after so many days. Run again, it finds the deletion that waits.

    ``kit``: the root in force, where this device does not hold it.

    Raises:
        NotAllowed: the root in force is neither here nor in ``kit``.
        UsageError: the relay waits for longer, or not for so long.
        RelayRefused: the relay is older, or does not accept the root.
        StoreFailure, HomeBusy: run it again.
    """
    member = device.member
    async with syncing(device, "crystal vault delete", None) as syncer:
        await syncer.run(read_log(member.log, member.journal, member.keys, member.notices))
    member.check_active()
    device.look_for_root()
    root = chosen_root(device, kit)
    if root is None:
        raise NotAllowed(
            "the vault's root is not on this machine", hint="Give the recovery kit: --kit FILE, or --kit -."
        )
    async with device.at_relay() as relay:
        try:
            found = await relay.deletion()
            if found.due:
                return DeletionWaits(_kept(device, found), fresh=False)
            _check_days(days, found)
            number, due = found.number + 1, int(time.time()) + days * DAY_SECONDS
            signature = root.sign_deletion(
                vault=member.log.vault, number=number, due=due, host=relay.host
            )  # §4.4-1
            proof = root_proof(member.log, root, signature)
            asked = await relay.ask_deletion(number, due, proof, recovery=root.relay_secret)
        except NoSuchRoute as error:
            raise RelayRefused(
                "this relay is older, and deletes no vault on its owner's request", hint=_NEWER_HINT
            ) from error
        except (Unauthorized, Forbidden) as error:
            hint = error.hint if isinstance(error, Forbidden) else "Run `crystal sync`, and then this again."
            raise RelayRefused(f"the relay does not accept the vault's root: {error}", hint=hint) from error
        except RelayError as error:
            raise store_failure(error) from error
    return DeletionWaits(_kept(device, asked), fresh=True)


async def keep_vault(device: Device, *, kit: Root | None = None) -> bool:
    """Calls off the deletion that waits at the relay. Returns whether one did.

    Raises:
        NotAllowed: this device is not the Core, and the root in force is neither here nor in ``kit``.
        RelayRefused: it is too late, or the vault was deleted.
        StoreFailure: run it again.
    """
    root = chosen_root(device, kit)
    async with device.at_relay() as relay:
        try:
            found = await relay.deletion()
            if not found.due:
                keep_planned(device.journal, found.number, 0)
                return False
            called_off = await relay.call_off_deletion(
                found.number, recovery=None if root is None else root.relay_secret
            )
        except NoSuchRoute:
            return False
        except (Unauthorized, Forbidden) as error:
            if root is None and type(error) is Forbidden:
                raise NotAllowed(
                    "only the Core, or the vault's root, calls off the deletion",
                    hint="Run `crystal vault keep` on the Core, or here with the recovery kit: --kit FILE, or --kit -.",
                ) from error
            raise store_failure(error) from error
        except RelayError as error:
            raise store_failure(error) from error
    keep_planned(device.journal, called_off.number, called_off.due)
    return True


def _kept(device: Device, found: DeletionReply) -> PlannedDeletion:
    keep_planned(device.journal, found.number, found.due)
    return PlannedDeletion(found.number, found.due)


def _check_days(days: int, found: DeletionReply) -> None:
    least, most = -(-found.seconds_min // DAY_SECONDS), found.seconds_max // DAY_SECONDS
    if not least <= days <= most:
        raise UsageError(
            f"this relay deletes a vault after {least} to {most} days, not after {counted(days, 'day')}",
            hint=f"Choose a waiting time that it accepts: --days {max(least, min(days, most))}.",
        )
