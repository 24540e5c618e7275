"""Recovery of a relay that has lost the vault, from one device's copy of the device log and the mirror.

The device log goes back first, byte for byte: only at its true head can the root add a new device. The mirror goes back
once that device is a member. What the copy's last Core had sealed and not sent goes to its own slots, as that Core would
have put it: another device may have seen it there. Where a slot is taken by something else, the operations are offered
again under their names.

All flows look at what is there and add what is missing, so they may be repeated after a crash at any point.
"""

from dataclasses import dataclass

from crystal_crypto.entry import parse
from crystal_mirror.devicelog.damage import compare_log
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.sync import log_is_whole, read_log, restore_log
from crystal_mirror.entries.control_state import first_position
from crystal_mirror.errors import LogForked
from crystal_mirror.history.slots import VOID, SlotKind, judge_slot
from crystal_mirror.history.void_slots import Fork, find_valid_void
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import Journal, ReplicaView
from crystal_mirror.replication.publish import restore_mirror
from crystal_mirror.replication.pull import PullOutcome, pull, read_floor
from crystal_mirror.replication.rebuild import begin_rebuild, find_fork, finish_rebuild, rebuild_pending
from crystal_mirror.requests import Flow, Get, PutNew
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.streams.outbox import restart_stream
from crystal_mirror.types import EntryState, Position


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """What a device had applied beyond what is here. ``device`` None: this copy itself had, by its journal."""

    device: bytes | None
    epoch: int
    sequence: int


def log_complete(log: DeviceLog, journal: Journal, keys: StoreKeys) -> Flow[bool]:
    """Takes in what the relay's device log has beyond ours. Returns whether the relay has all that is here, unchanged. Writes
    nothing.

    Raises:
        LogForked: the relay shows another device log.
    """
    if not (yield from read_log(log, journal, keys)):
        return False
    if not (yield from log_is_whole(log, keys)):
        return False
    return not (yield from compare_log(log, journal, keys))


def first_damage(log: DeviceLog, replica: ReplicaView) -> Position | None:
    """The first slot where the kept mirror is not what was verified once: the disk is failing, or somebody changed it.

    Call it once the log is read as far as it goes. None if every kept entry follows the one before, up to the position.
    """
    position = first_position(replica)
    while kept := replica.entries(position.epoch, position.sequence, 1):
        slot = judge_slot(kept[0].data, position, log)
        if kept[0].sequence != position.sequence:
            return position
        if kept[0].state is EntryState.VOID:
            slot = VOID
        elif slot.kind not in (SlotKind.BATCH, SlotKind.SEAL):
            return position
        position = slot.after(position)
    return position if position[:2] < replica.position()[:2] else None


def put_back_log(log: DeviceLog, journal: Journal, keys: StoreKeys) -> Flow[int]:
    """Puts every kept slot of the device log that the relay lacks or shows damaged. Returns how many.

    Raises:
        LogForked: it shows another device log, or does not keep what it is given.
    """
    restored = yield from restore_log(log, journal, keys)
    if not (yield from read_log(log, journal, keys)):
        raise LogForked("the relay does not keep the device log that is put back")
    return restored


def adopt_outbox(member: Member) -> int:
    """Offers what another identity had accepted in this journal, under its old names. Returns how many."""
    with member.journal.transaction() as transaction:
        names = transaction.names()
        row = transaction.row(names[0].incarnation, names[0].sequence) if names else None
        if row is None or parse(row.sealed).header.sender == member.device_id:
            return 0
        restart_stream(member, transaction)
        return len(names)


def put_back_mirror(member: Member) -> Flow[int]:
    """Puts every kept slot of the mirror that the relay lacks. Returns how many. Needs the Core's token scope."""
    if rebuild_pending(member):
        yield from finish_rebuild(member)
    pulled = yield from pull(member)
    restored = 0
    if pulled.outcome in (PullOutcome.LOG_BEHIND, PullOutcome.DIVERGED):
        fork = (yield from find_valid_void(member)) or (yield from find_fork(member, need_seal=True))
        if fork is not None:
            yield from begin_rebuild(member, fork)
        else:
            restored += yield from restore_mirror(member)
    restored += yield from _put_unsent(member)
    yield from pull(member)
    return restored


def missing(member: Member) -> list[MissingEntries]:
    """The devices that had applied more than is here, as far as this copy knows."""
    position = member.replica.position()[:2]
    behind = [
        MissingEntries(cursor.device, cursor.epoch, cursor.sequence)
        for cursor in seen_cursors(member)
        if (cursor.epoch, cursor.sequence) > position
    ]
    floor = read_floor(member)
    return [*behind, *([MissingEntries(None, *floor)] if floor > position else [])]


def _put_unsent(member: Member) -> Flow[int]:
    put = 0
    for kept in member.replica.kept(EntryState.UNSENT):
        key = member.keys.mirror(kept.epoch, kept.sequence)
        created = yield PutNew(key, kept.data)
        if not created and (yield Get(key)) != kept.data:
            yield from begin_rebuild(member, Fork(kept.epoch, kept.sequence))
            return put
        put += created
        with member.replica.transaction() as transaction:
            transaction.set_entry_state(kept.epoch, kept.sequence, EntryState.SENT)
    return put
