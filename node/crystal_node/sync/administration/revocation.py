"""Revoking a device: what it had stored is taken in first, then it is revoked in the log, then at the relay.

::

    BEGUN --a round of sync--> TAKEN --if it is the Core: this device claims the lead, a round--> LED BY US
          --it may have the root: a new root is stored here, and written to the log--> NEW ROOT
          --"revoke" in the log, with a new generation--> OUT: it reads nothing new, nothing that it writes counts
          --tokens, recovery secret--> SHUT OUT --the new root takes the old one's place here--> done

A process may die anywhere: run again, each step finds that it is done, or does it. Between NEW ROOT and OUT only the person can
finish it (``duties_due.unfinished``); after OUT the next round of sync does it as well (``duties``).
"""

from collections.abc import Callable
from dataclasses import dataclass

from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import BehindTheFloor, NotAllowed, NotAMember, RootHeld, Unready
from crystal_mirror.membership.administration import RevokeReport, may_have_root, revoke
from crystal_mirror.membership.cursors import says_root
from crystal_node.base.clock import now_ms
from crystal_node.device.device import Device
from crystal_node.sync.administration.root_rotation import chosen_root, let_in, put_new_root, tell_relay
from crystal_node.sync.members.duties_due import META_REVOKING
from crystal_node.sync.members.rights import check_administers
from crystal_node.sync.syncer import Syncer, syncing

_PURPOSE = "crystal devices revoke"
_SAYS_ROOT = (
    "It last said that it keeps the vault's root, which is not on this machine. With that it can come back: replace the root "
    "with the recovery kit, `crystal recovery replace --kit -`."
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RevocationResult:
    """The outcome. ``root_replaced``: by this revocation, in this run or an interrupted one. ``relay_error``: why the relay
    could not be told; None if the device's tokens are shut out, and the old recovery secret with them."""

    report: RevokeReport
    root_replaced: bool
    relay_error: CrystalError | None


async def revoke_device(
    device: Device,
    target: bytes,
    *,
    kit: Root | None = None,
    claim: bool = False,
    leave_root: bool = False,
    progress: Progress,
) -> RevocationResult:
    """Revokes a device. ``kit``: the root in force, where this device does not hold it. ``claim``: takes the lead first, if the
    device is the Core. ``leave_root``: goes on although the device may have the root, which is neither here nor in ``kit``.

    Raises:
        NotAMember: the vault has no such device.
        NotAllowed: this device may not, or is the target; or the kit is of a root that was replaced.
        Unready: the device is the Core, and ``claim`` is not given.
        RootHeld: it may have the root by the log, and the root is neither here nor in ``kit``.
        StoreFailure, HomeBusy, KeyStoreError: run it again; nothing is lost.
    """
    member = device.member
    async with syncing(device, _PURPOSE, progress) as syncer:
        await syncer.run(read_log(member.log, member.journal, member.keys, member.notices))
        device.look_for_root()
        check_revocable(device, target, kit, claim=claim, leave_root=leave_root)
        root = chosen_root(device, kit)
        if root is not None:
            await let_in(device, root)
        begun = device.journal.meta_get(META_REVOKING) == target
        if member.log.is_active(target):
            await _take_in(device, target, syncer, root)
            if replaces_root(device, target, root) and not (leave_root and root is None):
                root = await _replace_root(device, target, syncer, root)
                begun = True
            elif says_root(member, target):
                # Only its own report: that must not keep it in the vault.
                progress(_SAYS_ROOT)
        report = await syncer.run(
            revoke(member, target, now_ms=now_ms(), root=root, leave_root=leave_root and root is None)
        )
        progress("it is out of the device log; the relay is told")
        error = await tell_relay(syncer)
    return RevocationResult(report, begun, error)


def check_revocable(
    device: Device, target: bytes, kit: Root | None, *, claim: bool, leave_root: bool = False
) -> None:
    """Checks all that can be checked before anything is done. Raises as ``revoke_device``."""
    member = device.member
    root = chosen_root(device, kit)
    info = member.log.member(target)
    if info is None:
        raise NotAMember(f"the vault has no device {target.hex()[:8]}")
    if target == member.device_id:
        raise NotAllowed(
            "a device cannot revoke itself", hint="Do it on another one: `crystal devices revoke`."
        )
    if leads(device, target) and (claim or info.revoked is None):
        member.check_active()
        if not claim:
            raise Unready(
                "that device is the Core, and its epoch has to have an end first",
                hint="Add --claim: this machine takes the lead, and revokes it then.",
            )
        # The claim checks whether it may: a grant is enough.
    else:
        check_administers(member, root)
    if info.revoked is not None:
        return
    if may_have_root(member, target) and root is None and not leave_root:
        raise RootHeld(
            "that device may have the vault's root, which has to be replaced with it, and is not on this machine",
            hint="Give the recovery kit: --kit FILE, or --kit - to type it. If no kit of this root exists: --leave-root.",
        )


def replaces_root(device: Device, target: bytes, kit: Root | None) -> bool:
    """Whether revoking that device replaces the root: by the log or by its own report, it may have it."""
    said = bool(says_root(device.member, target)) and chosen_root(device, kit) is not None
    return may_have_root(device.member, target) or said


def leads(device: Device, target: bytes) -> bool:
    lead = device.member.log.lead
    return lead is not None and lead.device == target


async def _take_in(device: Device, target: bytes, syncer: Syncer, root: Root | None) -> None:
    """Runs a round, so that what the device had stored counts; if it is the Core, takes the lead and runs another."""
    await syncer.round()
    if leads(device, target):
        try:
            await syncer.claim(root, force=False)
        except BehindTheFloor as error:
            # The report of the device that is revoked may be what stands in the way.
            raise BehindTheFloor(
                str(error),
                hint="Sync the device that is further first. If its word is not to be trusted: "
                "`crystal promote --force --accept-loss`, then revoke.",
            ) from error
        await syncer.round()


async def _replace_root(device: Device, target: bytes, syncer: Syncer, old: Root | None) -> Root:
    """Replaces the root that the device may have. Returns the new one."""
    if old is None:
        raise RootHeld("that device may have the vault's root", hint="Give the recovery kit: --kit FILE.")
    with device.journal.transaction() as transaction:
        transaction.meta_set(META_REVOKING, target)
    return await put_new_root(device, syncer, old)
