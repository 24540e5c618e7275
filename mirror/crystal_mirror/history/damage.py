"""Damage in the middle of the mirror: the relay shows a slot with other bytes than were verified.

A device that has read past the slot does not notice: later slots are as they were. One that reads from the start steps over
it as void, finds that nothing after it follows, and ends in another state or stops. Two things reveal the damage:

- an entry that does not follow our history names the last entry that its maker saw: what lies between has to be compared;
- a peer's cursor: the Core checks where a peer stands still, after another entry than the Core has there, or with another
  digest than was stated there.

The Core then goes over to what the relay shows, offers again what the damage cut off (``replication/rebuild.py``), and
begins a new epoch, whose seal makes all devices follow. It also begins one when the relay shows what the Core keeps and a
peer has applied something else in this epoch: a batch that was damaged before the Core heard that it was stored, and that
the Core has sealed again since.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.batches import opened_batch
from crystal_mirror.entries.control_state import Place, first_position, read_base
from crystal_mirror.history.void_slots import Fork, previous_of
from crystal_mirror.membership.cursors import Cursor, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, GetMany
from crystal_mirror.types import ZERO_HASH, EntryState, KeptEntry, StateDigest, TableSum

PAGE = 64


@dataclass(frozen=True, slots=True)
class Damage:
    """``fork``: the first slot that the relay changed; None if a peer has applied what the relay does not show any more.
    ``below_base``: the change is below the snapshot that this state builds on, which cannot be undone and need not be: the
    peer reads the snapshot once that part of the log is deleted."""

    fork: Fork | None
    below_base: bool = False


def first_difference(member: Member, follows: bytes | None = None) -> Flow[Fork | None]:
    """The first kept entry that the relay shows with other bytes, among those after the entry with the hash ``follows``.

    Without ``follows``, or if no kept entry has that hash, among all from the base on. A slot that the relay lacks is no
    difference.
    """
    start = _place_of(member, follows) if follows else (0, -1)
    place = max((start[0], start[1] + 1), first_position(member.replica)[:2])
    return (yield from _difference(member, place, member.replica.position()[:2]))


def _difference(member: Member, place: Place, end: Place) -> Flow[Fork | None]:
    """The first kept entry from ``place`` on and before ``end`` that the relay shows with other bytes."""
    for epoch in range(place[0], end[0] + 1):
        first = place[1] if epoch == place[0] else 0
        while page := member.replica.entries(epoch, first, PAGE):
            first = page[-1].sequence + 1
            entries = [
                kept for kept in page if kept.state is EntryState.SENT and (epoch, kept.sequence) < end
            ]
            if not entries:
                continue
            there = yield GetMany(tuple(member.keys.mirror(epoch, kept.sequence) for kept in entries))
            for kept, data in zip(entries, there, strict=True):
                if data is not None and data != kept.data:
                    return Fork(epoch, kept.sequence)
    return None


def find_damage(member: Member) -> Flow[Damage | None]:
    """Looks for damage where a peer's cursor gives reason to. For the Core; a lying peer costs it at most a new epoch."""
    position = member.replica.position()
    looked: dict[Place, bool] = {}
    for cursor in (yield from read_cursors(member)):
        place = (cursor.epoch, cursor.sequence)
        if cursor.device == member.device_id or place > position[:2]:
            continue
        parted = _has_parted(member, cursor)
        if not parted and place not in looked:  # most devices stand at the same place
            looked[place] = yield from _stands_before_damage(member, cursor)
        if parted or looked[place]:
            fork = yield from first_difference(member)
            if fork is not None:
                return Damage(fork)
            oldest, base = member.replica.oldest_kept(), first_position(member.replica)[:2]
            if oldest is not None and (yield from _difference(member, oldest, base)) is not None:
                return Damage(None, below_base=True)
            if parted and cursor.epoch == position.epoch:
                return Damage(None)
    return None


def _has_parted(member: Member, cursor: Cursor) -> bool:
    """Whether a peer stands after another entry, or in another state, than this device did at that place."""
    base = read_base(member.replica)
    above = base is None or (cursor.epoch, cursor.sequence) >= (base.epoch, base.sequence)
    if above and cursor.behind and cursor.behind != previous_of(member, cursor.epoch, cursor.sequence):
        return True
    if base is not None and (cursor.epoch, cursor.sequence) <= (base.epoch, base.sequence):
        return (cursor.epoch, cursor.sequence) == (base.epoch, base.sequence) and cursor.digest != base.digest
    stated = _stated_digest(member, cursor.epoch, cursor.sequence)
    if stated is None and base is not None:
        stated = base.digest
    if stated is None:  # before the first batch there are no rows
        tables = member.replica.digest().tables
        stated = StateDigest.of([TableSum(table.name, bytes(32), 0) for table in tables]).to_bytes()
    return cursor.digest != stated  # §11.11-1


def _stands_before_damage(member: Member, cursor: Cursor) -> Flow[bool]:
    before = next(_backwards(member, cursor.epoch, cursor.sequence), None)
    ahead = member.replica.entries(cursor.epoch, cursor.sequence, 1)
    around = [kept for kept in (before, *ahead) if kept is not None and kept.state is EntryState.SENT]
    there = yield GetMany(tuple(member.keys.mirror(kept.epoch, kept.sequence) for kept in around))
    return any(data is not None and data != kept.data for kept, data in zip(around, there, strict=True))


def _stated_digest(member: Member, epoch: int, sequence: int) -> bytes | None:
    """The digest that the last batch before this slot states; None if there is none."""
    for kept in _backwards(member, epoch, sequence):
        entry = parse(kept.data)
        key = member.key_for(entry.header.generation)
        if entry.header.kind is Kind.BATCH and key is not None:
            return opened_batch(entry, key).digest
    return None


def _place_of(member: Member, entry_hash: bytes) -> tuple[int, int]:
    """The slot of the kept entry with this hash; before the first slot if there is none."""
    position = member.replica.position()
    if entry_hash != ZERO_HASH:
        for kept in _backwards(member, position.epoch, position.sequence):
            if parse(kept.data).hash == entry_hash:
                return kept.epoch, kept.sequence
    return (0, -1)


def _backwards(member: Member, epoch: int, sequence: int) -> Iterator[KeptEntry]:
    """Kept entries that are not void, from before this slot back to the start."""
    while epoch > 0:
        while sequence > 0:
            first = max(0, sequence - PAGE)
            for kept in reversed(member.replica.entries(epoch, first, sequence - first)):
                if kept.sequence < sequence and kept.state is not EntryState.VOID:
                    yield kept
            sequence = first
        epoch -= 1
        last = member.replica.last_entry(epoch) if epoch else None
        sequence = last.sequence + 1 if last else 0
