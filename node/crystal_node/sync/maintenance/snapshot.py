"""``crystal snapshot``: makes a snapshot now, whether one is due or not, and announces it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.entries.control_state import newest_snapshot, snapshot_slot
from crystal_mirror.snapshots.creation import read_manifest
from crystal_node.base.errors import HomeBusy
from crystal_node.device.device import Device
from crystal_node.sync.members.rights import check_is_core
from crystal_node.sync.syncer import syncing


@dataclass(frozen=True, slots=True)
class AnnouncedSnapshot:
    """``place``: the place in the mirror up to which it goes; ``slot``: where it is announced; ``size``: before sealing."""

    place: tuple[int, int]
    slot: tuple[int, int]
    digest: bytes
    parts: int
    size: int
    sent: int
    seconds: float


async def announce_snapshot(device: Device, progress: Callable[[str], None] | None) -> AnnouncedSnapshot:
    """Makes a snapshot and waits until it is announced.

    Raises:
        NotAllowed: this device is not the Core.
        HomeBusy: another process of this home is making one.
        StoreFailure, ProtocolError: nothing refers to what was stored; repeat it.
    """
    started = time.monotonic()
    member = device.member
    async with syncing(device, "crystal snapshot", progress) as syncer:
        await syncer.round()
        check_is_core(device, "makes snapshots")
        if not await syncer.snapshot(due=False):
            raise HomeBusy("another process of this home makes a snapshot, or writes to the log")
        await syncer.round()
        newest, slot = newest_snapshot(member.replica), snapshot_slot(member.replica)
        if newest is None or slot is None:
            raise HomeBusy("the snapshot was overtaken by other work and is not announced yet")
        manifest = await syncer.run(read_manifest(member, newest))
        return AnnouncedSnapshot(
            place=(newest.epoch, newest.sequence),
            slot=slot,
            digest=newest.digest,
            parts=len(manifest.parts),
            size=manifest.length,
            sent=syncer.traffic.bytes_up,
            seconds=time.monotonic() - started,
        )
