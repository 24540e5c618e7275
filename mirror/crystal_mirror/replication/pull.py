"""Following the mirror: slots are read in order, and each is applied in one transaction with the position that follows.

::

    AT POSITION --BATCH, digest agrees--> applied, next slot
                --BATCH, digest differs-> rolled back, QUARANTINE (rebuild.py replays the log once; if it differs again, hold)
                --SEAL------------------> slot 0 of the epoch that it leads to
                --VOID------------------> kept, next slot
                --DIVERGED--------------> named. All before it on the relay is as kept here: void as well, for every reader.
                                          Else this device was shown something else before: hold, rebuild.py goes over
                --its epoch's Core is revoked, and its end is not shown--> hold; named (history/closed_epochs.py)
                --names an unknown log--> hold: the relay hides a part of the device log; named
                --nothing, later slots--> hold: a gap; named. The Core writes there, and what is after it is void
                --nothing---------------> caught up
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.entries.batches import Batch, opened_batch
from crystal_mirror.entries.control_state import (
    META_MODEL,
    META_RESTORE,
    Place,
    first_position,
    note_announcement,
    note_end,
    note_forget,
    take_control_entry,
)
from crystal_mirror.history.closed_epochs import ClosedEpochs, needs_its_end, read_to_the_end
from crystal_mirror.history.damage import first_difference
from crystal_mirror.history.slots import VOID, Slot, SlotKind, judge_slot
from crystal_mirror.history.void_slots import find_valid_void, last_entry_end, previous_of, retract_voids
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Forget, Operation, Replace
from crystal_mirror.ports import ReplicaTransaction
from crystal_mirror.requests import Flow, Get, GetMany, GetPart, Has, List, Listing
from crystal_mirror.snapshots.packs import PackReader
from crystal_mirror.streams.outbox import note_own
from crystal_mirror.types import TAIL_BYTES, EntryState, KeptEntry, Origin, Position

READ_AHEAD_MAX = 16
VOIDS_AT_ONCE_MAX = 256
"""Void slots in a row after which a pull ends, so that a relay that shows junk forever does not fill the disk in one go."""
SLOTS_BEYOND_MAX = 16
"""Slots after the free one that are looked at. Junk beyond an end stops nobody."""
META_FLOOR = "floor"
META_QUARANTINE = "quarantine"


class PullOutcome(Enum):
    """What a pull came to."""

    CAUGHT_UP = "caught up"
    LOG_BEHIND = "the relay lost what we have"
    DIVERGED = "the relay shows another history"
    GAP = "the relay lacks a slot"
    HELD = "cannot go on"
    QUARANTINED = "state differs"


@dataclass(frozen=True, slots=True)
class SlotResult:
    """What became of one slot, and how many operations it applied."""

    outcome: PullOutcome
    operations: int = 0


@dataclass(frozen=True, slots=True)
class PullReport:
    outcome: PullOutcome
    entries: int
    operations: int
    bytes: int


class DigestMismatch(Exception):
    """Applying a batch did not lead to the state that the Core states. Rolls the transaction back."""


def tail_agrees(member: Member) -> Flow[PullOutcome]:
    """Whether the relay still holds the last slot that this device has verified, as it verified it.

    Its end is read, where its signature is, and shows how long it is: an entry may have hundreds of KiB. What is damaged before
    that is found by the audit (``repair/audit.py``).
    """
    position = member.replica.position()
    last = last_kept(member, position)
    if last is None:
        return PullOutcome.CAUGHT_UP
    key, end = member.keys.mirror(last[0], last[1]), last[2][-TAIL_BYTES:]
    if (yield GetPart(key, len(last[2]) - len(end), len(end) + 1)) == end:
        return PullOutcome.CAUGHT_UP
    there = yield Get(key)
    if there == last[2]:
        return PullOutcome.CAUGHT_UP
    if there is not None:
        return PullOutcome.DIVERGED
    ahead = yield Get(member.keys.mirror(position.epoch, position.sequence))
    if ahead is not None and judge_slot(ahead, position, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):
        return (
            PullOutcome.CAUGHT_UP
        )  # what was deleted ends right before our place, and the log goes on from there
    return PullOutcome.LOG_BEHIND


def damaged_tail(member: Member) -> Flow[Place | None]:
    """The last slot, if what the relay shows there is not what was verified, and no entry at all; else None."""
    last = last_kept(member, member.replica.position())
    if last is None:
        return None
    shown = yield Get(member.keys.mirror(last[0], last[1]))
    place = Position(last[0], last[1], previous_of(member, last[0], last[1]))
    if shown in (None, last[2]) or judge_slot(shown, place, member.log).kind is not SlotKind.VOID:
        return None
    return last[:2]


def last_kept(member: Member, position: Position) -> tuple[int, int, bytes] | None:
    """The last slot that is on the relay as far as this device knows: epoch, slot, bytes. None at the very start."""
    unsent = member.replica.kept(EntryState.UNSENT)
    # One of an earlier epoch was put by another process of this home, which has not noted that yet.
    epoch, end = (unsent[0].epoch, unsent[0].sequence) if unsent else (position.epoch, position.sequence)
    if (epoch, end) == first_position(member.replica)[:2]:
        return None  # the state was made from this snapshot
    if end:
        found = member.replica.entries(epoch, end - 1, 1)
        assert found and found[0].sequence == end - 1, "every verified slot above the base is kept"
        return found[0].epoch, found[0].sequence, found[0].data
    for earlier in range(epoch - 1, 0, -1):
        last = member.replica.last_entry(earlier)
        if last is not None:
            return last.epoch, last.sequence, last.data
    return None


def pull(member: Member, *, tail_only: bool = False) -> Flow[PullReport]:
    """Applies everything that the relay's mirror has beyond this device's position. ``tail_only``: looks for nothing beyond
    it, if the relay still has what this device has."""
    replay_kept(member)
    yield from _confirm_unsent(member)
    if not tail_only:
        yield from retract_voids(member)
    outcome = yield from tail_agrees(member)
    if outcome is PullOutcome.CAUGHT_UP and tail_only:  # §11.15-1
        return PullReport(outcome, 0, 0, 0)
    if outcome is not PullOutcome.CAUGHT_UP:
        name = Notice.MIRROR_ROLLED_BACK if outcome is PullOutcome.LOG_BEHIND else Notice.MIRROR_FORKED
        if outcome is PullOutcome.DIVERGED and (yield from damaged_tail(member)) is not None:
            name = Notice.MIRROR_DAMAGED
        member.notices.put(name, f"{outcome.value}, at {_place(member.replica.position())}")
        return PullReport(outcome, 0, 0, 0)
    entries = operations = size = voids = 0
    ahead = 2
    closed = ClosedEpochs()
    packs = PackReader()
    while True:
        position = member.replica.position()
        if needs_its_end(member, position.epoch) and not closed.covers(position):  # §9.10-1
            read = yield from read_to_the_end(member, position)
            if read is None:
                member.notices.put(
                    Notice.EPOCH_OPEN,
                    f"the end of epoch {position.epoch} is not shown behind {_place(position)}",
                )
                return PullReport(PullOutcome.HELD, entries, operations, size)
            closed = read
        packed = yield from packs.slots(member, position)
        keys = tuple(member.keys.mirror(position.epoch, position.sequence + i) for i in range(ahead))
        found: Sequence[bytes | None] = packed or (yield GetMany(keys))
        if found[0] is None:
            if any(data is not None for data in found):
                # §11.12-3
                member.notices.put(Notice.MIRROR_GAP, f"the relay lacks the slot at {_place(position)}")
                return PullReport(PullOutcome.GAP, entries, operations, size)
            return PullReport(PullOutcome.CAUGHT_UP, entries, operations, size)
        for data in found:
            if data is None or (needs_its_end(member, position.epoch) and not closed.covers(position)):
                break
            if closed.covers(position) and not closed.holds(position, data):  # §9.10-2
                member.notices.put(Notice.MIRROR_TAMPERED, f"the slot at {_place(position)} was exchanged")
                return PullReport(PullOutcome.HELD, entries, operations, size)
            slot = yield from judge_current(member, data, position)
            if packed and slot.kind in (SlotKind.VOID, SlotKind.DIVERGED):
                # §11.14-5
                packs.give_up()  # that verdict is reached on the slot itself only
                break
            if not (yield from _log_explains(member, slot)):  # §11.1-2
                member.notices.put(
                    Notice.PEER_AHEAD,
                    f"the entry at {_place(position)} names a device log that is not shown here",
                )
                return PullReport(PullOutcome.HELD, entries, operations, size)
            # §11.7-3
            if slot.kind is SlotKind.DIVERGED and (yield from _is_void_for_all(member, slot, position)):
                slot = VOID
            taken = take_slot(member, slot, data, position)
            if taken.outcome is not PullOutcome.CAUGHT_UP:
                return PullReport(taken.outcome, entries, operations, size)
            packs.slots_read += 1
            entries += slot.kind is not SlotKind.VOID
            voids = voids + 1 if slot.kind is SlotKind.VOID else 0
            if voids >= VOIDS_AT_ONCE_MAX:  # §11.12-2
                member.notices.put(Notice.MIRROR_TAMPERED, "the relay shows nothing but junk")
                return PullReport(PullOutcome.HELD, entries, operations, size)
            operations += taken.operations
            size += len(data)
            after = member.replica.position()
            if after.epoch != position.epoch:
                break
            position = after
        if (yield from _shown_to_its_end(member, keys, found)):
            return PullReport(PullOutcome.CAUGHT_UP, entries, operations, size)
        ahead = 2 if found[-1] is None else min(ahead * 2, READ_AHEAD_MAX)


def _shown_to_its_end(member: Member, keys: Sequence[str], found: Sequence[bytes | None]) -> Flow[bool]:
    """Whether what was found under these keys was applied up to a free slot with another free one behind it. Only the second
    one may have to be read for this: to read both again would tell no more."""
    position = member.replica.position()
    here = member.keys.mirror(position.epoch, position.sequence)
    free = found[keys.index(here) :] if here in keys else ()
    if not free or any(data is not None for data in free) or needs_its_end(member, position.epoch):
        return False
    if len(free) > 1:
        return True
    return (yield Get(member.keys.mirror(position.epoch, position.sequence + 1))) is None


def judge_current(member: Member, data: bytes, position: Position) -> Flow[Slot]:
    """Judges a slot. Before it is called void the device log is read again, so that the verdict is the same on all devices."""
    slot = judge_slot(data, position, member.log)
    if slot.kind is SlotKind.VOID:
        yield from read_log(member.log, member.journal, member.keys, member.notices)
        slot = judge_slot(data, position, member.log)  # §11.7-5
    return slot


def _log_explains(member: Member, slot: Slot) -> Flow[bool]:
    """Whether we have read the device log as far as the entry's writer had; if not, the relay hides part of it from us."""
    if slot.entry is None or member.log.knows_head(slot.entry.header.log_head):
        return True
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    return member.log.knows_head(slot.entry.header.log_head)


def _confirm_unsent(member: Member) -> Flow[None]:
    """A former Core may have put batches without getting the reply: those that the relay holds are marked as sent."""
    for kept in member.replica.kept(EntryState.UNSENT):
        if (yield Get(member.keys.mirror(kept.epoch, kept.sequence))) != kept.data:
            return
        note_sent(member, kept)


def note_sent(member: Member, entry: KeptEntry) -> None:
    """Notes that the relay holds an unsent entry, unless another process of this device has sealed it again meanwhile."""
    with member.replica.transaction() as transaction:
        if any(kept == entry for kept in transaction.kept(EntryState.UNSENT)):
            transaction.set_entry_state(entry.epoch, entry.sequence, EntryState.SENT)


def _is_void_for_all(member: Member, slot: Slot, position: Position) -> Flow[bool]:
    """Whether every reader of the relay's mirror stands, like us, before an entry that does not follow."""
    member.notices.put(
        Notice.MIRROR_FORKED, f"an entry at {_place(position)} follows another history than ours"
    )
    assert slot.entry is not None, "what diverges is an entry"
    if (yield from tail_agrees(member)) is not PullOutcome.CAUGHT_UP:
        return False
    if (yield from find_valid_void(member)) is not None:
        return False
    return (yield from first_difference(member, slot.entry.header.previous)) is None


def take_slot(member: Member, slot: Slot, data: bytes, position: Position) -> SlotResult:
    """Takes in one judged slot, in one transaction."""
    if slot.kind is SlotKind.DIVERGED:
        member.notices.put(
            Notice.MIRROR_FORKED, f"an entry at {_place(position)} follows another history than ours"
        )
        return SlotResult(PullOutcome.DIVERGED)
    batch: Batch | None = None
    operations: list[tuple[Origin, Operation]] = []
    if slot.kind is SlotKind.BATCH and slot.entry is not None:
        key = member.key_for(slot.entry.header.generation)
        try:
            if key is None:
                raise MissingKey(f"no key of generation {slot.entry.header.generation}")
            batch = opened_batch(slot.entry, key)
            operations = batch.decoded()
        except CryptoError as error:  # §1.2-3
            member.notices.put(
                Notice.MIRROR_UNREADABLE, f"the entry at {_place(position)} cannot be opened: {error}"
            )
            return SlotResult(PullOutcome.HELD)
    try:
        with member.replica.transaction() as transaction:
            if transaction.meta_get(META_RESTORE) is not None:
                return SlotResult(PullOutcome.HELD)  # another process of this home reads a snapshot
            if transaction.position() != position:
                return SlotResult(PullOutcome.CAUGHT_UP)
            if batch is not None:
                _apply(member, transaction, batch, operations, position)
            state = EntryState.VOID if slot.kind is SlotKind.VOID else EntryState.SENT  # §11.7-4
            transaction.keep_entry(position.epoch, position.sequence, data, state)  # §11.3-6
            transaction.set_position(slot.after(position))
            if slot.kind is SlotKind.SEAL:
                note_end(transaction, (position.epoch, position.sequence))
            note_announcement(transaction, (position.epoch, position.sequence), data)
            if batch is not None:
                take_control_entry(transaction, batch, (position.epoch, position.sequence))
    except DigestMismatch as error:  # §11.3-7
        member.notices.put(Notice.QUARANTINED, f"at {_place(position)}: {error}")
        return SlotResult(PullOutcome.QUARANTINED)
    return SlotResult(PullOutcome.CAUGHT_UP, len(operations))


class MissingKey(CryptoError):
    """The generation's key has not reached this device."""

    exit_code = 7


def _apply(
    member: Member,
    transaction: ReplicaTransaction,
    batch: Batch,
    operations: Sequence[tuple[Origin, Operation]],
    position: Position,
) -> None:
    if batch.drops_vectors:  # §11.3-1
        transaction.drop_vectors()  # §11.14-4
    if batch.model:
        transaction.meta_set(META_MODEL, batch.model.encode())
    vectors = iter(batch.vectors)

    def next_vectors(_text: str) -> Sequence[bytes]:
        try:
            return next(vectors)
        except StopIteration:
            raise DigestMismatch("the batch has fewer vectors than new chunks") from None

    for origin, operation in operations:
        transaction.apply(origin, operation, next_vectors)  # §11.3-2
        transaction.mark_done(origin)
    for origin in batch.also_done:
        transaction.mark_done(origin)
    for content in batch.embedded_anew:
        transaction.embed_anew(content, next_vectors(""))  # §11.3-3
    if batch.condemned:
        transaction.condemn(batch.condemned)  # §11.3-4
    if transaction.left_out or any(isinstance(operation, Forget | Replace) for _, operation in operations):
        note_forget(transaction, (position.epoch, position.sequence))
    if next(vectors, None) is not None:  # §11.3-3
        raise DigestMismatch("the batch has more vectors than new chunks")
    digest = transaction.digest().to_bytes()
    if digest != batch.digest:  # §11.3-5
        raise DigestMismatch(f"the digest is {digest.hex()[:16]}, the Core states {batch.digest.hex()[:16]}")
    note_own(member, transaction, batch)


def replay_kept(member: Member) -> None:
    """Applies slots that this device has verified before and kept: after a rebuild, before the relay is asked."""
    while True:
        position = member.replica.position()
        kept = member.replica.entries(position.epoch, position.sequence, 1)
        if not kept or kept[0].sequence != position.sequence or kept[0].state is EntryState.UNSENT:
            return
        slot = judge_slot(kept[0].data, position, member.log)
        if take_slot(member, slot, kept[0].data, position).outcome is not PullOutcome.CAUGHT_UP:
            return


def raise_floor(member: Member) -> None:
    """Records, apart from the replica, how far this device has verified: it never writes below that.

    Void slots after the last entry do not count, since they may be stepped back over.
    """
    unsent = member.replica.kept(EntryState.UNSENT)
    position = member.replica.position()
    epoch, end = (unsent[0].epoch, unsent[0].sequence) if unsent else (position.epoch, position.sequence)
    verified = (epoch, last_entry_end(member, epoch, end))
    if verified > read_floor(member):
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_FLOOR, b"%d %d" % verified)


def lower_floor(member: Member, fork: tuple[int, int]) -> None:
    """Lowers it when going over to another history gives up what was verified from the fork on, or a person does by
    `claim`."""
    if read_floor(member) > fork:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_FLOOR, b"%d %d" % fork)


def read_floor(member: Member) -> tuple[int, int]:
    data = member.journal.meta_get(META_FLOOR)
    if data is None:
        return (0, 0)
    epoch, sequence = data.split()
    return int(epoch), int(sequence)


def _place(position: Position) -> str:
    return f"epoch {position.epoch}, slot {position.sequence}"


def is_passed(member: Member) -> Flow[bool]:
    """Whether our next slot is free because the log there was deleted: an entry by that epoch's Core is in a later slot.

    A device that was restored from an old copy, or that knows little yet, may be at a place where the log was deleted long
    ago. The relay shows a free slot there as it does at the true end, but nothing is beyond the true end. The answer is
    False if the relay still has the slot before: then the free one is a gap, or the end of a history that another one
    replaced; the log is deleted from its start.
    """
    position = member.replica.position()
    if last_kept(member, position) is not None and (yield from tail_agrees(member)) is PullOutcome.CAUGHT_UP:
        return False
    key = member.keys.mirror(position.epoch, position.sequence)
    there = yield Has((key,))
    if there[0]:
        return False
    page: Listing = yield List(member.keys.mirror_prefix, key, SLOTS_BEYOND_MAX)
    keys = page.after(key)[:SLOTS_BEYOND_MAX]
    if not keys:
        return False
    found: list[bytes | None] = yield GetMany(tuple(keys))
    for data in found:
        try:
            header = parse(data or b"").header
        except CryptoError:
            continue
        place = Position(header.epoch, header.sequence, header.previous)
        if place[:2] <= position[:2]:
            continue
        if judge_slot(data or b"", place, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):
            return True
    return False
