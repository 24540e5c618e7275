"""``crystal repair``: repairs what this machine and the relay have together, and reports what it did.

::

    inspect --indexes are wrong---------------> rewritten from the rows
            --own copy of the log is damaged--> dropped from there, read again from the relay
            --rows are not what they should be-> the state is rebuilt: from the snapshot, the kept log, the relay
            --the device log lacks or differs--> put back by the Core, or by a machine that keeps the root
            --slots of the mirror lack or differ> put back by the Core
         --> a round of sync
            --the newest snapshot is damaged--> on the Core: another one is made, and announced
            --parts of files lack or differ---> put back from this machine's files
         --> inspect again: what is left

Each step may be repeated; after a crash, the next run finds what is left.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from crystal_core.errors import VaultDamaged
from crystal_mirror.devicelog.sync import restore_log
from crystal_mirror.files.shared import part_on_disk
from crystal_mirror.repair.audit import may_write_log, restore_slots
from crystal_mirror.repair.inspection import Fault
from crystal_mirror.repair.repairs import FilesRepaired, drop_damaged_log, repair_files
from crystal_mirror.replication.rebuild import mark_rebuild
from crystal_mirror.types import EntryState
from crystal_node.base.errors import LocalStorage
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.sync.files.rounds import open_disk, open_file_database
from crystal_node.sync.maintenance.inspection import DeepVerification, look
from crystal_node.sync.maintenance.verification import verify
from crystal_node.sync.syncer import Syncer, syncing

_FILE_FAULTS = (Fault.FILE_LACKS, Fault.FILE_DIFFERS)


@dataclass
class Repaired:
    """``done``: what was repaired, in words. ``after``: the inspection at the end."""

    before: DeepVerification
    after: DeepVerification
    done: list[str] = field(default_factory=list[str])


async def repair(device: Device, progress: Callable[[str], None] | None) -> Repaired:
    """Runs the steps of the module.

    Raises:
        LocalStorage: the database file itself is damaged and has to be replaced (`crystal restore`).
        StoreFailure, ProtocolError: the relay could not answer, or misbehaves; repeat it.
    """
    done: list[str] = []
    async with syncing(device, "crystal repair", progress) as syncer:
        before = await look(device, syncer, progress)
        if before.faults:
            _mend_indexes(device, done)
        _mend_own_state(device, before, done)
        await _mend_log(device, syncer, before, done)
        await _mend_mirror(device, syncer, before, done)
        await _sync(syncer, done)
        await _mend_snapshot(device, syncer, before, done)
        await _mend_files(device, syncer, before, done)
        after = await look(device, syncer, progress)
    return Repaired(before, after, done)


def _mend_indexes(device: Device, done: list[str]) -> None:
    database = device.replica.database
    try:
        with database.transaction():
            database.rebuild_indexes()
        left = database.check()
    except VaultDamaged as error:
        left = [str(error)]
    if left:
        raise LocalStorage(
            f"{database.path} is damaged itself: {left[0]}",
            hint="`crystal restore` replaces it by what the relay has, or by another machine's copy (--from PATH).",
        )
    done.append("rewrote the indexes of this machine's memory")


def _mend_own_state(device: Device, before: DeepVerification, done: list[str]) -> None:
    member = device.member
    if before.relay.damage is not None:
        dropped = drop_damaged_log(member, before.relay.damage)
        done.append(
            f"dropped {counted(dropped, 'slot')} of this machine's copy of the log from the damage on, to read them again"
        )
    elif not verify(device, passes_damage=True).ok:
        mark_rebuild(member, None)
        done.append("rebuilt this machine's memory from the log")


async def _mend_log(device: Device, syncer: Syncer, before: DeepVerification, done: list[str]) -> None:
    faults = {problem.fault for problem in before.relay.problems}
    if not faults & {Fault.DEVICE_LOG_LACKS, Fault.DEVICE_LOG_DIFFERS}:
        return
    member = device.member
    if not may_write_log(member):
        done.append(
            "the device log is not whole at the relay: the Core puts it back (`crystal repair` there)"
        )
        return
    restored = await syncer.run(restore_log(member.log, member.journal, member.keys))
    done.append(f"put {counted(restored, 'entry', 'entries')} of the device log back on the relay")


async def _mend_mirror(device: Device, syncer: Syncer, before: DeepVerification, done: list[str]) -> None:
    if not before.relay.spoiled or before.relay.damage is not None:
        return
    if not device.member.is_core:
        done.append("the relay's mirror is not whole: the Core puts it back (`crystal repair` there)")
        return
    restored = await syncer.run(restore_slots(device.member, before.relay.spoiled))
    if restored:
        done.append(f"put {counted(len(restored), 'slot')} of the mirror back on the relay")


async def _sync(syncer: Syncer, done: list[str]) -> None:
    result = await syncer.round()
    if result.report.restored:
        done.append(f"put {counted(result.report.restored, 'lost entry', 'lost entries')} back on the relay")
    if result.report.rebuilt:
        done.append("replayed the log")


async def _mend_snapshot(device: Device, syncer: Syncer, before: DeepVerification, done: list[str]) -> None:
    if not any(problem.fault is Fault.SNAPSHOT for problem in before.relay.problems):
        return
    if not device.member.is_core:
        done.append("the newest snapshot is not whole: the Core makes another one (`crystal repair` there)")
        return
    if not device.member.replica.kept(EntryState.UNSENT) and await syncer.snapshot(due=False):
        await syncer.round()
        done.append("made another snapshot")


async def _mend_files(device: Device, syncer: Syncer, before: DeepVerification, done: list[str]) -> None:
    paths = {problem.path for problem in before.relay.problems if problem.fault in _FILE_FAULTS}
    if not paths:
        return
    database = open_file_database(device)
    try:
        disk = open_disk(device, database)
        mended: FilesRepaired = await syncer.run(
            repair_files(device.member, paths, lambda content: part_on_disk(disk, database, content))
        )
    finally:
        database.close()
    if mended.parts:
        done.append(f"put {counted(mended.parts, 'part')} of files back on the relay")
        await syncer.round()
    if mended.left:
        done.append(
            f"{counted(mended.left, 'file')} could not be mended from here: run `crystal repair` on a machine that has them"
        )
