"""``crystal prune``: applies retention now; with ``--rewrite``, seals everything again under the keys in force."""

from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.errors import Unready
from crystal_mirror.retention.pruning import (
    Rewritten,
    all_blobs,
    condemn_others,
    prune_now,
    seal_files_anew,
    snapshot_wanted,
)
from crystal_mirror.retention.status import RetentionStatus, retention_status
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy
from crystal_node.device.device import Device
from crystal_node.sync.members.rights import check_is_core
from crystal_node.sync.syncer import Syncer, syncing


@dataclass(frozen=True, slots=True)
class Pruned:
    """``before`` and ``after``: what retention keeps. ``rewritten``: what was sealed again; None unless asked for."""

    before: RetentionStatus
    after: RetentionStatus
    rewritten: Rewritten | None


async def prune(device: Device, progress: Callable[[str], None] | None, *, rewrite: bool) -> Pruned:
    """Ignores waiting times; with ``rewrite``, nothing stays on the relay that is sealed with an older key generation.

    The relay deletes in its own time what it is asked to delete.

    Raises:
        NotAllowed: this device is not the Core.
        HomeBusy, TransactionStale: something else writes to the log; repeat it.
        StoreFailure, ProtocolError: repeat it; it goes on where it stopped.
    """
    member = device.member
    async with syncing(device, "crystal prune", progress) as syncer:
        await syncer.round()
        check_is_core(device, "prunes")
        before = retention_status(member, now_ms(), force=True)
        there = await syncer.run(all_blobs(member)) if rewrite else set[bytes]()
        rewritten = await syncer.run(seal_files_anew(member)) if rewrite else None
        if rewritten is not None and rewritten.files:
            await syncer.round()
        if rewrite or snapshot_wanted(member):
            await _snapshot(device, syncer, anew=rewrite)
        if rewrite:
            await syncer.run(condemn_others(member, there))
        await syncer.run(prune_now(member, now_ms()))
        await syncer.round()
        return Pruned(before, retention_status(member, now_ms()), rewritten)


async def _snapshot(device: Device, syncer: Syncer, *, anew: bool) -> None:
    former = newest_snapshot(device.member.replica)
    if not await syncer.snapshot(due=False, anew=anew):
        raise HomeBusy("another process of this home makes a snapshot, or writes to the log")
    await syncer.round()
    if newest_snapshot(device.member.replica) == former:
        raise Unready(
            "the snapshot was overtaken by other work and is not announced yet", hint="Run the command again."
        )
