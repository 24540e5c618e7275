"""How a recovery kit stands to the vault of this machine, as its device log tells it."""

import hmac

from crystal_crypto.errors import CrystalError
from crystal_crypto.kit import Kit
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import RootRecord
from crystal_mirror.membership.authority import in_force
from crystal_node.base.errors import ExitCode


class WrongKit(CrystalError):
    """A kit that is well typed and does not open this vault."""

    exit_code = ExitCode.WRONG_KEY
    hint = "Use the newest kit of this vault; `crystal recovery show` makes one on a machine that holds the root."


class KitOfAnotherVault(WrongKit):
    """Its vault id is another one."""


class KitOutdated(WrongKit):
    """Its root was replaced: it opens nothing and signs nothing any more."""


def check_kit(kit: Kit, log: DeviceLog, *, newer_may_be: bool = False) -> None:
    """Raises unless the kit's root is the one in force. ``newer_may_be``: it may also be one that this log does not know yet.

    Raises:
        KitOfAnotherVault: by its vault id.
        KitOutdated: its root was in force before.
        WrongKit: its root was never this vault's, as far as the log tells.
    """
    if not hmac.compare_digest(kit.vault, log.vault):
        raise KitOfAnotherVault(
            f"that kit belongs to another vault ({kit.vault.hex()[:8]}; this one is {log.vault.hex()[:8]})"
        )
    if in_force(log, kit.root):
        return
    admin = kit.root.admin.public.to_bytes()
    if any(isinstance(event.record, RootRecord) and event.record.admin == admin for event in log.events):
        raise KitOutdated(
            "that kit is outdated: the vault's root was replaced since it was made, and the old one has no power any more"
        )
    if not newer_may_be:
        raise WrongKit(
            "that kit names this vault, and its root was never this vault's",
            hint="Its lines may come from two kits. Or this machine has not heard yet that the root was replaced: "
            "run `crystal sync`, then try again.",
        )
