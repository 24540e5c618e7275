"""Rebuilding the replica when the believed log is not the one that was applied here.

Causes: the Core of another epoch sealed below what this device had applied (the relay had lost it), this device led and had
committed batches that never reached the relay, or the state differs from what the Core states (damage, or a defect).

::

    AGREED --fork found--> MARKED --operations of our branch offered again--> OFFERED --rows wiped--> REPLAYING --> AGREED

MARKED is a value in the replica; until the wipe has committed, nothing is let go of (``settle`` does nothing), and a crash
resumes at the mark. The replay takes kept entries first and then what the relay has.
"""

from collections.abc import Iterator

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.batch import opened_batch
from crystal_mirror.damage import first_difference
from crystal_mirror.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.orphans import keep_orphan
from crystal_mirror.outbox import META_REBUILD
from crystal_mirror.pull import judge_current, last_kept, lower_floor, replay_kept
from crystal_mirror.requests import Flow, Get, GetMany
from crystal_mirror.slots import VOID, SlotKind
from crystal_mirror.types import START, EntryState, KeptEntry, Position
from crystal_mirror.voids import Fork, previous_of

PAGE = 64


def find_fork(
    member: Member, *, need_seal: bool, whole: bool = False, ends: bool = False
) -> Flow[Fork | None]:
    """Where the relay's history leaves ours, if it does so in a way that must be believed.

    A history is believed if from the fork on it verifies slot by slot up to the seal of a later epoch. The Core itself
    (``need_seal`` False) also believes another branch of its own epoch, which only its own key can have signed, and that
    a slot of its own is void now, because the relay changed it and will not let it be written again.
    Returns None when the relay merely lacks what we have. ``whole`` compares from the very start, not from the end: a later
    Core may have gone over to what a relay shows of an old epoch, and the epochs behind it then end without a seal. ``ends``: a
    history that holds nothing but void slots from the fork on is believed as well. For who is to seal it: nobody else will.
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
    while True:
        data = yield Get(member.keys.mirror(position.epoch, position.sequence))
        if data is None:
            return None if need_seal and not ends else fork
        slot = yield from judge_current(member, data, position)
        if slot.kind is SlotKind.DIVERGED:
            slot = VOID  # for whoever has read the relay's mirror up to here
        kept = _kept_at(member, position)
        if fork is None and (kept is None or kept.data != data):
            fork = Fork(position.epoch, position.sequence)
        if fork is not None and (
            slot.kind is SlotKind.SEAL or (slot.kind is SlotKind.BATCH and not need_seal)
        ):
            return fork
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
    """The position behind the last slot that the relay holds exactly as we keep it, searched from the end."""
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
        if first > 0:
            end = (epoch, first - 1)
        else:
            earlier = next((e for e in range(epoch - 1, 0, -1) if member.replica.last_entry(e)), None)
            last_of = member.replica.last_entry(earlier) if earlier else None
            end = (last_of.epoch, last_of.sequence) if last_of else None
    return START


def _behind(member: Member, entry: KeptEntry) -> Position:
    """The position behind a kept entry; its void neighbours have no hash, so the last entry that is not void counts."""
    if entry.state is EntryState.VOID:
        return Position(entry.epoch, entry.sequence + 1, previous_of(member, entry.epoch, entry.sequence))
    parsed = parse(entry.data)
    if parsed.header.kind is Kind.SEAL:
        return Position(int.from_bytes(parsed.public, "big"), 0, parsed.hash)
    return Position(entry.epoch, entry.sequence + 1, parsed.hash)


def begin_rebuild(member: Member, fork: Fork | None) -> None:
    """Marks the replica for a rebuild; ``fork`` None replays all that is kept. ``finish_rebuild`` does the rest."""
    mark = b"%d %d" % (fork.epoch, fork.sequence) if fork else b"all"
    with member.replica.transaction() as transaction:
        transaction.meta_set(META_REBUILD, mark)
    finish_rebuild(member)


def rebuild_pending(member: Member) -> bool:
    return member.replica.meta_get(META_REBUILD) is not None


def finish_rebuild(member: Member) -> None:
    """Takes a marked rebuild to its end. Does nothing without a mark. Safe to repeat after a crash."""
    mark = member.replica.meta_get(META_REBUILD)
    if mark is None:
        return
    orphans: list[KeptEntry] = []
    if mark != b"all":
        epoch, sequence = (int(part) for part in mark.split())
        orphans = list(_kept_from(member, epoch, sequence))
        _offer_again(member, orphans)
        lower_floor(member, (epoch, sequence))
    with member.replica.transaction() as transaction:
        for entry in orphans:
            transaction.drop_entry(entry.epoch, entry.sequence)
        transaction.wipe()
        transaction.meta_set(META_REBUILD, None)
    member.notices.put(
        Notice.REBUILT, f"the mirror was rebuilt from the log; {len(orphans)} entries were set aside"
    )
    # Before anything is applied again: what is forgotten in the outbox must not be found meanwhile.
    member.mend()
    replay_kept(member)


def _kept_from(member: Member, epoch: int, sequence: int) -> Iterator[KeptEntry]:
    last = member.replica.position().epoch
    for number in range(epoch, last + 1):
        first = sequence if number == epoch else 0
        while page := member.replica.entries(number, first, PAGE):
            yield from page
            first = page[-1].sequence + 1


def _offer_again(member: Member, orphans: list[KeptEntry]) -> None:
    """Puts every operation of the orphaned entries into the outbox under its own name, unless it is there already.

    What a device signed that is revoked by now is another matter: a relay in league with it may have shown us, and us alone,
    an epoch that it wrote on after it was out. Of that only this device's own operations are offered; the rest is held until
    the owner decides (``held.py``).
    """
    with member.journal.transaction() as transaction:
        known = {name.origin for name in transaction.names()}
        for kept in orphans:
            if kept.state is EntryState.VOID:
                continue
            entry = parse(kept.data)
            key = member.key_for(entry.header.generation)
            if key is None or len(entry.public):
                continue
            try:
                batch = opened_batch(entry, key)
            except CryptoError as error:
                raise AssertionError("an entry that was applied here opens") from error
            doubtful = not member.log.is_active(entry.header.sender)
            if doubtful and any(origin.device != member.device_id for origin, _ in batch.operations):
                keep_orphan(transaction, entry)
            for origin, operation in batch.operations:
                if doubtful and origin.device != member.device_id:
                    continue
                if origin not in known:
                    known.add(origin)
                    member.seal_row(transaction, operation, origin)
