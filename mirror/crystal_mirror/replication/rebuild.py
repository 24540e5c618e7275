"""Rebuilding the replica when the believed log is not the one that was applied here.

Causes: the Core of another epoch sealed below what this device had applied (the relay had lost it), this device was the
Core and had committed batches that never reached the relay, or the state differs from what the Core states (damage, or a
defect).

::

    AGREED --fork found--> MARKED --operations of our branch offered again--> OFFERED --rows wiped--> REPLAYING --> AGREED

MARKED is a value in the replica; until the wipe has committed nothing leaves the outbox (``settle`` does nothing), and a
crash resumes at the mark. The replay takes the snapshot under the state first, if there is one (the relay must have it
before anything is wiped, ``snapshots/restore.py``), then kept entries, then what the relay has.
"""

from collections.abc import Iterator

from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.control_state import (
    META_REBUILD,
    first_position,
    forget_packs,
    forget_snapshot,
    newest_snapshot,
    packs_slot,
    read_base,
    snapshot_slot,
)
from crystal_mirror.history.closed_epochs import VOIDS_IN_A_ROW_MAX
from crystal_mirror.history.damage import first_difference
from crystal_mirror.history.slots import VOID, SlotKind
from crystal_mirror.history.void_slots import Fork, previous_of
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.replication.pull import judge_current, last_kept, lower_floor, replay_kept
from crystal_mirror.requests import Flow, Get, GetMany
from crystal_mirror.snapshots.announcements import find_snapshot
from crystal_mirror.snapshots.blobs import BlobDamaged
from crystal_mirror.snapshots.creation import is_whole
from crystal_mirror.snapshots.restore import RestoreSource, parts_below, resume_restore, start_restore
from crystal_mirror.streams.reoffers import reoffer
from crystal_mirror.types import START, EntryState, KeptEntry, Position

PAGE = 64


def find_fork(
    member: Member, *, need_seal: bool, whole: bool = False, ends: bool = False
) -> Flow[Fork | None]:
    """Where the relay's history leaves ours, if it does so in a way that must be believed.

    A history is believed if from the fork on it verifies slot by slot up to the seal of a later epoch. The Core itself
    (``need_seal`` False) also believes another branch of its own epoch, which only its own key can have signed, and that a
    slot of its own is void now, because the relay changed it and will not let it be written again. Returns None if the
    relay merely lacks what we have.

    ``whole`` compares from the very start, not from the end: a later Core may have gone over to what a relay shows of an
    old epoch, and the epochs after it then end without a seal. ``ends`` also believes a history that holds nothing but void
    slots from the fork on: for the device that is to seal it.
    """
    if whole:
        damaged = yield from first_difference(member)
        if damaged is None:
            return None
        previous = previous_of(member, damaged.epoch, damaged.sequence)
        position = Position(damaged.epoch, damaged.sequence, previous)
    else:
        position = yield from _start(member)
    fork: Fork | None = None
    voids = 0
    while True:
        data = yield Get(member.keys.mirror(position.epoch, position.sequence))
        if data is None:
            return None if need_seal and not ends else fork  # §11.10-1
        slot = yield from judge_current(member, data, position)
        if slot.kind is SlotKind.DIVERGED:
            slot = VOID  # for every reader of the relay's mirror up to here
        kept = _kept_at(member, position)
        if fork is None and (kept is None or kept.data != data):
            fork = Fork(position.epoch, position.sequence)
        if fork is not None and (
            slot.kind is SlotKind.SEAL or (slot.kind is SlotKind.BATCH and not need_seal)
        ):
            return fork
        voids = voids + 1 if fork is not None and slot.kind is SlotKind.VOID else 0
        if voids > VOIDS_IN_A_ROW_MAX:  # §11.12-2
            member.notices.put(Notice.MIRROR_TAMPERED, "the relay shows nothing but junk")
            return None
        position = slot.after(position)


def _start(member: Member) -> Flow[Position]:
    """The position up to which the relay's history is ours."""
    position = yield from _last_common(member)
    if position != member.replica.position():
        return position
    data = yield Get(member.keys.mirror(position.epoch, position.sequence))
    slot = (yield from judge_current(member, data, position)) if data else VOID
    if slot.kind is not SlotKind.DIVERGED or slot.entry is None:
        return position
    damaged = yield from first_difference(member, slot.entry.header.previous)
    if damaged is None:
        return position
    return Position(damaged.epoch, damaged.sequence, previous_of(member, damaged.epoch, damaged.sequence))


def _kept_at(member: Member, position: Position) -> KeptEntry | None:
    found = member.replica.entries(position.epoch, position.sequence, 1)
    return found[0] if found and found[0].sequence == position.sequence else None


def _last_common(member: Member) -> Flow[Position]:
    """The position after the last slot that the relay holds exactly as we keep it, searched from the end."""
    base = first_position(member.replica)
    last = last_kept(member, member.replica.position())
    end = (last[0], last[1]) if last else None
    while end is not None:
        epoch, sequence = end
        first = max(0, sequence - PAGE + 1)
        kept = member.replica.entries(epoch, first, sequence - first + 1)
        there = yield GetMany(tuple(member.keys.mirror(epoch, entry.sequence) for entry in kept))
        for entry, data in zip(reversed(kept), reversed(there), strict=True):
            if entry.data == data:
                return _behind(member, entry)
        if first > 0 and (epoch, first) > base[:2]:
            end = (epoch, first - 1)
        else:
            earlier = next(
                (e for e in range(epoch - 1, base.epoch - 1, -1) if member.replica.last_entry(e)), None
            )
            last_of = member.replica.last_entry(earlier) if earlier else None
            end = (last_of.epoch, last_of.sequence) if last_of else None
    return base


def _behind(member: Member, entry: KeptEntry) -> Position:
    """The position after a kept entry. Void slots have no hash, so the last entry that is not void counts."""
    if entry.state is EntryState.VOID:
        return Position(entry.epoch, entry.sequence + 1, previous_of(member, entry.epoch, entry.sequence))
    parsed = parse(entry.data)
    if parsed.header.kind is Kind.SEAL:
        return Position(int.from_bytes(parsed.public, "big"), 0, parsed.hash)
    return Position(entry.epoch, entry.sequence + 1, parsed.hash)


def begin_rebuild(member: Member, fork: Fork | None) -> Flow[None]:
    """Marks the replica for a rebuild, then rebuilds it. ``fork`` None: from everything that is kept."""
    mark_rebuild(member, fork)
    yield from finish_rebuild(member)


def mark_rebuild(member: Member, fork: Fork | None) -> None:
    """Marks the replica only: the next round of sync does the rest."""
    mark = b"%d %d" % (fork.epoch, fork.sequence) if fork else b"all"
    with member.replica.transaction() as transaction:
        transaction.meta_set(META_REBUILD, mark)


def rebuild_pending(member: Member) -> bool:
    return member.replica.meta_get(META_REBUILD) is not None


def finish_rebuild(member: Member) -> Flow[None]:
    """Finishes a marked rebuild. Does nothing without a mark. May be repeated after a crash.

    Raises:
        BlobDamaged: the snapshot that the state must be made from is not on the relay, nor another one. Nothing was changed.
    """
    mark = member.replica.meta_get(META_REBUILD)
    if mark is None:
        return
    branch: list[KeptEntry] = []
    place = (0, 0)
    if mark != b"all":
        epoch, sequence = (int(part) for part in mark.split())
        place = (epoch, sequence)
        branch = list(_kept_from(member, epoch, sequence))
        lower_floor(member, place)
    source = yield from _source(member, place if branch or mark != b"all" else None)
    if source is not None and source.abandons_log:
        branch = []  # what that state lacks is offered again once it is loaded: ``snapshots/restore.py``
    reoffer(member, branch)  # §11.10-2
    with member.replica.transaction() as transaction:
        if transaction.meta_get(META_REBUILD) != mark:
            return  # another process of this home was faster, and keeps what it has read since
        for entry in branch:
            transaction.drop_entry(entry.epoch, entry.sequence)
        announced_at = snapshot_slot(transaction)
        if mark != b"all" and announced_at is not None and announced_at >= place:
            # The believed log does not announce it; the Core makes another one.
            forget_snapshot(transaction)
        listed_at = packs_slot(transaction)
        if mark != b"all" and listed_at is not None and listed_at >= place:
            forget_packs(transaction)
        if source is None:
            transaction.wipe()
        transaction.meta_set(META_REBUILD, None)
        if source is not None:
            start_restore(transaction, source)
    member.notices.put(
        Notice.REBUILT, f"the mirror was rebuilt from the log; {len(branch)} entries were set aside"
    )
    # Before anything is applied again: what the outbox forgets must not be found meanwhile.
    member.mend()
    if source is not None:
        yield from resume_restore(member)
    replay_kept(member)


def _source(member: Member, fork: tuple[int, int] | None) -> Flow[RestoreSource | None]:
    """The snapshot from which to make the state: the base, if the fork is not below it and the relay has it all; else the
    newest that counts. None without a base: the kept log goes back to the first slot."""
    base = read_base(member.replica)
    if base is None or base.position == START:  # a snapshot of the empty state is not needed
        return None
    slot = snapshot_slot(member.replica) if newest_snapshot(member.replica) == base else None
    if slot is not None and fork is not None and slot >= fork:
        slot = None
    if (fork is None or fork >= (base.epoch, base.sequence)) and (yield from is_whole(member, base)):
        return RestoreSource(base, slot, None, abandons_log=False)
    found = yield from find_snapshot(member, beyond=(base.epoch, base.sequence))
    if (
        found is not None
        and found.announced != base
        and (yield from is_whole(member, found.announced))
        and not (yield from parts_below(member, found.announced))
    ):
        return RestoreSource(found.announced, found.slot, found.entry, abandons_log=True)
    raise BlobDamaged("the state has to be rebuilt, and the relay does not have the snapshot for it")


def _kept_from(member: Member, epoch: int, sequence: int) -> Iterator[KeptEntry]:
    last = member.replica.position().epoch
    for number in range(epoch, last + 1):
        first = sequence if number == epoch else 0
        while page := member.replica.entries(number, first, PAGE):
            yield from page
            first = page[-1].sequence + 1
