"""Void slots: a verdict of *void* stands only while the relay shows the same bytes and the device log has not grown.

All devices come to the same verdict on the same bytes and the same log; but a relay may show one device junk where others
find an entry, or hide part of the log from it. So void slots are checked again: those after the last entry whenever the
mirror is followed, all of them when the log has grown, when something does not fit, and in every full check.

::

    VOID after the last entry  --other bytes, none, or an entry by the log of now--> stepped back over; read again
    VOID before an entry       --an entry by the log of now, there or kept --------> our history is not the believed one:
                                                                                     a fork there (replication/rebuild.py)
                               --anything else -------------------------------------> stays

Stepping back undoes nothing: a void slot changed no row.
"""

from dataclasses import dataclass

from crystal_crypto.entry import parse
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.entries.control_state import first_position
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.requests import Flow, GetMany
from crystal_mirror.types import EntryState, KeptEntry, Position

VOIDS_AT_ONCE = 64
"""Void slots compared in one request."""
PAGE = 64


@dataclass(frozen=True, slots=True)
class Fork:
    """The first slot at which our kept entries and the believed log differ."""

    epoch: int
    sequence: int


def previous_of(member: Member, epoch: int, sequence: int) -> bytes:
    """The hash of the last kept entry before this slot that is not void."""
    base = first_position(member.replica)
    while sequence > 0 and (epoch, sequence) > base[:2]:
        first = max(0, sequence - PAGE)
        for kept in reversed(member.replica.entries(epoch, first, sequence - first)):
            if (kept.epoch, kept.sequence) < base[:2]:
                return base.previous
            if kept.sequence < sequence and kept.state is not EntryState.VOID:
                return parse(kept.data).hash
        sequence = first
    for earlier in range(epoch - 1, first_position(member.replica).epoch - 1, -1):
        last = member.replica.last_entry(earlier)
        if last is not None:
            return parse(last.data).hash
    return first_position(member.replica).previous


def last_entry_end(member: Member, epoch: int, sequence: int) -> int:
    """The slot after the last entry of ``epoch`` before ``sequence`` that is not void."""
    voids = _voids_before(member, epoch, sequence)
    return voids[0].sequence if voids else sequence


def retract_voids(member: Member) -> Flow[bool]:
    """Steps back over the void slots after the last entry, from the first that the relay now shows with other bytes."""
    position = member.replica.position()
    voids = _voids_before(member, position.epoch, position.sequence)[:VOIDS_AT_ONCE]
    if not voids or member.replica.kept(EntryState.UNSENT):
        return False
    there = yield GetMany(tuple(member.keys.mirror(kept.epoch, kept.sequence) for kept in voids))
    previous = previous_of(member, position.epoch, position.sequence)
    doubted = next(
        (
            kept
            for kept, data in zip(voids, there, strict=True)
            if kept.data != data or _stands_now(member, kept, kept.data, previous)  # §11.7-5
        ),
        None,
    )
    if doubted is None:
        return False
    with member.replica.transaction() as transaction:
        if transaction.position() != position:
            return False
        for sequence in range(doubted.sequence, position.sequence):
            transaction.drop_entry(position.epoch, sequence)
        transaction.set_position(position._replace(sequence=doubted.sequence))
    member.notices.put(
        Notice.MIRROR_TAMPERED,
        f"the relay had hidden what stands at epoch {doubted.epoch}, slot {doubted.sequence}, or the log that explains it",
    )
    return True


def find_valid_void(member: Member) -> Flow[Fork | None]:
    """The first slot that is void here and holds, on the relay, an entry that continues our history before it."""
    voids = member.replica.kept(EntryState.VOID)
    for start in range(0, len(voids), VOIDS_AT_ONCE):
        some = voids[start : start + VOIDS_AT_ONCE]
        there = yield GetMany(tuple(member.keys.mirror(kept.epoch, kept.sequence) for kept in some))
        if any(data is not None and data != kept.data for kept, data in zip(some, there, strict=True)):
            yield from read_log(member.log, member.journal, member.keys, member.notices)
        for kept, data in zip(some, there, strict=True):
            previous = previous_of(member, kept.epoch, kept.sequence)
            if data is not None and _stands_now(member, kept, data, previous):  # §11.7-6
                return Fork(kept.epoch, kept.sequence)
    return None


def _stands_now(member: Member, kept: KeptEntry, data: bytes, previous: bytes) -> bool:
    """Whether these bytes, in the place of a void slot, are an entry by the log as read now."""
    slot = judge_slot(data, Position(kept.epoch, kept.sequence, previous), member.log)
    return slot.kind in (SlotKind.BATCH, SlotKind.SEAL)


def _voids_before(member: Member, epoch: int, sequence: int) -> list[KeptEntry]:
    """The unbroken run of void slots right before ``sequence``, in order."""
    run: list[KeptEntry] = []
    while sequence > 0:
        first = max(0, sequence - PAGE)
        for kept in reversed(member.replica.entries(epoch, first, sequence - first)):
            if kept.sequence >= sequence or kept.state is not EntryState.VOID:
                return run[::-1]
            run.append(kept)
        sequence = first
    return run[::-1]
