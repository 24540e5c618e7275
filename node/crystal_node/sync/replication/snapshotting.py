"""Making the vault's snapshots: when one is due, beside the rounds of sync, and never two at once on one home.

A snapshot of a large memory takes minutes. The home's sync lock is not held meanwhile: rounds go on, of this process and of
others, and the round after it announces the snapshot.
"""

from crystal_mirror.requests import Flow
from crystal_mirror.retention.looks import snapshot_due
from crystal_mirror.snapshots.making import make_snapshot
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy
from crystal_node.base.locking import FileLock
from crystal_node.device.device import Device
from crystal_node.device.runner import Runner


async def snapshot_if_due(device: Device, runner: Runner) -> bool:
    """Makes a snapshot if one is due. Returns whether one was made, to be announced by the next round.

    Raises:
        StoreFailure, BlobDamaged, RelayMisbehaves: it is due again at the next opportunity; nothing counts on what was stored.
    """
    if not device.member.is_core or snapshot_due(device.member, now_ms()) is None:
        return False
    return await snapshot_now(device, runner)


async def snapshot_now(device: Device, runner: Runner, *, anew: bool = False) -> bool:
    """Makes one in any case. False if this device does not lead, or another process makes one at the moment."""
    lock = FileLock(device.settings.home.snapshot_lock, purpose="making a snapshot", wait_seconds=0.0)
    try:
        await lock.acquire_async()
    except HomeBusy:
        return False
    try:
        flow: Flow[object | None] = make_snapshot(device.member, anew=anew)
        return await runner.run(flow) is not None
    finally:
        lock.release()
