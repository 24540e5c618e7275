"""Publishing: the Core's sealed batches go to the mirror, one slot after the other.

A batch is applied, sealed and kept in one transaction (UNSENT), then put create-only. When its slot is taken::

    UNSENT --created, or taken by these very bytes--> SENT
           --taken by a void entry------------------> sealed again for the next slot
           --taken by a seal------------------------> SUPERSEDED: another device is the Core
           --taken by our own signature-------------> CLONED: another copy of this Core is alive, or we were restored
           --free, and sealed under an older generation--> sealed again under the one in force, at the same slot

Nothing is published that a device known to be revoked could read, not even if it was sealed before. (Should the network
still bring a copy of the older bytes, that looks as if a clone had written: the Core begins a new epoch.)
"""

from enum import Enum

from crystal_crypto.entry import Frame, Kind, parse
from crystal_mirror.entries.batches import seal_mirror
from crystal_mirror.history.slots import SlotKind
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.pull import PullOutcome, judge_current, note_sent, take_slot
from crystal_mirror.requests import Flow, Get, List, Listing, PutNew, RetryBudget
from crystal_mirror.types import EntryState, KeptEntry, Position


class Published(Enum):
    DONE = "everything is on the relay"
    SUPERSEDED = "another device leads"
    CLONED = "another copy of this Core wrote"
    FORKED = "the slot holds another history"


def publish(member: Member) -> Flow[Published]:
    """Puts every unsent batch, then checks that nothing was written after them."""
    retries = RetryBudget("a mirror slot")
    while True:
        unsent = member.replica.kept(EntryState.UNSENT)
        if not unsent:
            return (yield from _peek(member))
        entry = unsent[0]
        key = member.keys.mirror(entry.epoch, entry.sequence)
        outdated = parse(entry.data).header.generation < member.log.generation
        if outdated and (yield Get(key)) is None:  # §9.7-5
            retries.spend()
            _seal_again(member, entry)
            continue
        created = yield PutNew(key, entry.data)  # §11.8-1
        there = entry.data if created else (yield Get(key))
        if there != entry.data:
            retries.spend()
        if there is None:
            continue
        if there == entry.data:
            note_sent(member, entry)
            continue
        position = Position(entry.epoch, entry.sequence, parse(entry.data).header.previous)
        slot = yield from judge_current(member, there, position)
        if slot.kind is SlotKind.VOID:
            _seal_again(member, entry, junk=there)  # §11.8-2
            continue
        return _taken(slot.kind)


def _taken(kind: SlotKind) -> Published:
    if kind is SlotKind.SEAL:
        return Published.SUPERSEDED  # §11.8-3
    return Published.CLONED if kind is SlotKind.BATCH else Published.FORKED  # §11.8-4


def _peek(member: Member) -> Flow[Published]:
    """Checks the slot after our last one: it must be free, or void."""
    retries = RetryBudget("the end of the mirror")
    while True:
        retries.spend()
        position = member.replica.position()
        data = yield Get(member.keys.mirror(position.epoch, position.sequence))
        if data is None:
            return Published.DONE
        slot = yield from judge_current(member, data, position)
        if slot.kind is not SlotKind.VOID:
            return _taken(slot.kind)
        taken = take_slot(member, slot, data, position)
        if taken.outcome is not PullOutcome.CAUGHT_UP:
            return Published.DONE  # another process of this home rebuilds the rows


def _seal_again(member: Member, first: KeptEntry, *, junk: bytes | None = None) -> None:
    """Seals all unsent batches, starting with ``first``, under the generation in force. With ``junk``, the void bytes in
    that slot, the junk is kept and the batches are sealed for the slots after it."""
    with member.replica.transaction() as transaction:
        unsent = transaction.kept(EntryState.UNSENT)
        if not unsent or unsent[0].data != first.data:
            return  # another process of this device was faster
        slot = first.sequence if junk is None else first.sequence + 1
        position = Position(first.epoch, slot, parse(first.data).header.previous)
        moved: list[tuple[Position, bytes]] = []
        for kept in unsent:
            old = parse(kept.data)
            key = member.key_for(old.header.generation)
            assert key is not None, "we sealed it"
            frames = old.open(key)
            sealed = seal_mirror(
                Kind.BATCH,
                [Frame(data, compress=index != 1, thorough=index > 1) for index, data in enumerate(frames)],
                position=position,
                vault=member.vault,
                sender=member.device_id,
                incarnation=old.header.incarnation,
                log_head=member.log.head,
                key=member.generation_key,
                signer=member.identity.signing,
                salt=member.salt(),
            )
            moved.append((position, sealed))
            position = Position(position.epoch, position.sequence + 1, parse(sealed).hash)
        if junk is not None:
            transaction.keep_entry(first.epoch, first.sequence, junk, EntryState.VOID)
        for place, sealed in moved:
            transaction.keep_entry(place.epoch, place.sequence, sealed, EntryState.UNSENT)
        transaction.set_position(position)


def restore_mirror(member: Member) -> Flow[int]:
    """Puts back, byte for byte, every kept slot that the relay lacks. Returns how many. Needs the Core's token scope."""
    restored = 0
    oldest = member.replica.oldest_kept()
    if oldest is None:
        return 0
    for epoch in range(oldest[0], member.replica.position().epoch + 1):
        last = member.replica.last_entry(epoch)
        if last is None:
            continue
        present = yield from _present(member, epoch)
        first = oldest[1] if epoch == oldest[0] else 0  # §11.13-2
        for sequence in sorted(set(range(first, last.sequence + 1)) - present):
            for entry in member.replica.entries(epoch, sequence, 1):
                if entry.state is not EntryState.UNSENT and entry.sequence == sequence:
                    restored += yield PutNew(member.keys.mirror(epoch, sequence), entry.data)  # §11.13-1
    return restored


def _present(member: Member, epoch: int) -> Flow[set[int]]:
    prefix = member.keys.epoch_prefix(epoch)
    present: set[int] = set()
    after = ""
    while True:
        page: Listing = yield List(prefix, after, 1000)
        keys = page.after(after)
        for key in keys:
            slot = member.keys.parse_slot(prefix, key)
            if slot is not None:
                present.add(slot)
        if not page.more or not keys:
            return present
        after = keys[-1]
