"""Held entries: what a revoked device left on the relay beyond its cutoffs, until the owner accepts or drops it.

::

    HELD --accept--> in this device's outbox, under its own name --durable--> not held any more
         --drop----> done without effect, by an entry of the mirror --------> not held any more

No device reads a held entry before, and nothing is deleted: what was dropped stays on the relay and counts as done. An
operation may be in another place than its name says (its maker had lost its place, and offered it again). When the Core
accepts, an entry of the mirror marks such a place as done too; when another device accepts, the place stays held until the
Core drops it.

Also held, on this device only, are operations of an epoch that went on after its Core was revoked, and that a relay in
league with it had shown this device (``streams/reoffers.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crystal_crypto.entry import Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.log import MemberInfo
from crystal_mirror.entries.batches import OPERATIONS_MAX, Batch, encode_batch, opened_batch, seal_mirror
from crystal_mirror.entries.offers import open_offer, stands_at
from crystal_mirror.errors import NotAllowed, NotAMember, TransactionStale
from crystal_mirror.membership.cutoffs import FETCH_AT_ONCE, listed_places
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.publish import Published, publish
from crystal_mirror.requests import Flow, GetMany
from crystal_mirror.streams.reoffers import drop_held_entries, held_entries
from crystal_mirror.types import EntryState, Origin, Position


@dataclass(frozen=True, slots=True)
class Accepted:
    """``unreadable`` entries stay held: damaged, not signed by the device, or sealed with a key that is not here."""

    operations: int
    unreadable: int


def held_places(member: Member, device: bytes) -> Flow[list[Origin]]:
    """The places of a revoked device's entries that do not count so far. Raises NotAMember."""
    info = _revoked(member, device)
    places = yield from listed_places(member, device)
    assert info.revoked is not None, "only revoked devices are looked at"
    waiting = {name.origin for name in member.journal.names()}
    return [
        place
        for place in places
        if not info.revoked.counts(place.incarnation, place.sequence)  # §9.9-1
        and not member.replica.done(place)
        and place not in waiting
    ]


def accept_held(member: Member, device: bytes) -> Flow[Accepted]:
    """Takes what is held of a device into this device's outbox, under its own names.

    Raises:
        NotAMember, Revoked.
        TransactionStale: the mirror was changed meanwhile; repeat it.
    """
    member.check_active()
    info = _revoked(member, device)
    places = yield from held_places(member, device)
    operations, unreadable = _accept_held_locally(member, device), 0
    elsewhere: list[Origin] = []
    for start in range(0, len(places), FETCH_AT_ONCE):
        some = places[start : start + FETCH_AT_ONCE]
        found = yield GetMany(tuple(member.keys.conversation(*place) for place in some))
        opened = [_open(member, info, place, data) for place, data in zip(some, found, strict=True)]  # §9.9-2
        with member.journal.transaction() as transaction:
            known = {name.origin for name in transaction.names()}
            for place, offer in zip(some, opened, strict=True):
                if offer is None:
                    unreadable += 1
                    continue
                if offer[0] != place:
                    elsewhere.append(place)
                if offer[0] not in known and not member.replica.done(offer[0]):  # §9.9-2
                    known.add(offer[0])
                    member.seal_row(transaction, offer[1], offer[0])
                    operations += 1
    member.mend()
    if member.is_core:
        yield from _call_done(member, elsewhere)  # §9.9-3
    return Accepted(operations, unreadable)


def drop_held(member: Member, device: bytes) -> Flow[int]:
    """Makes everything held of a device count as done, without effect. Returns how many entries of its streams.

    What is held on this device alone can be dropped on any device; what is on the relay, only on the Core.

    Raises:
        NotAMember, NotAllowed.
        TransactionStale: the mirror was changed meanwhile; repeat it after a round of sync.
    """
    places = yield from held_places(member, device)
    with member.journal.transaction() as transaction:
        drop_held_entries(transaction, device)
    if places and not member.is_core:  # §9.9-3
        raise NotAllowed("only the Core drops what a revoked device left on the relay")
    yield from _call_done(member, places)
    return len(places)


def held_locally(member: Member, device: bytes) -> int:
    """How many operations are held on this device alone."""
    return len(_operations_held_locally(member, device))


def _accept_held_locally(member: Member, device: bytes) -> int:
    found = _operations_held_locally(member, device)
    taken = 0
    with member.journal.transaction() as transaction:
        known = {name.origin for name in transaction.names()}
        for origin, operation in found:
            if origin not in known and not member.replica.done(origin):
                known.add(origin)
                member.seal_row(transaction, operation, origin)
                taken += 1
        drop_held_entries(transaction, device)
    return taken


def _operations_held_locally(member: Member, device: bytes) -> list[tuple[Origin, bytes]]:
    operations: list[tuple[Origin, bytes]] = []
    for data in held_entries(member.journal, device):
        entry = parse(data)
        key = member.key_for(entry.header.generation)
        if key is not None:
            batch = opened_batch(entry, key)
            operations += [
                (origin, operation)
                for origin, operation in batch.operations
                if origin.device != member.device_id and not member.replica.done(origin)
            ]
    return operations


def _revoked(member: Member, device: bytes) -> MemberInfo:
    info = member.log.member(device)
    if info is None or info.revoked is None:
        raise NotAMember(
            f"{device.hex()[:8]} is no revoked device of this vault",
            hint="`crystal devices` lists the devices, revoked ones too.",
        )
    return info


def _open(member: Member, info: MemberInfo, place: Origin, data: bytes | None) -> tuple[Origin, bytes] | None:
    if data is None:
        return None
    try:
        entry: Entry = parse(data)
        entry.verify(info.signing)
        key = member.key_for(entry.header.generation)
        if key is None or not stands_at(
            entry,
            vault=member.vault,
            device=place.device,
            incarnation=place.incarnation,
            sequence=place.sequence,
        ):
            return None
        offer = open_offer(entry, key)
    except CryptoError:
        return None
    return offer.origin, offer.data


def _call_done(member: Member, places: Sequence[Origin]) -> Flow[None]:
    """Publishes that these places are done, without an operation."""
    for start in range(0, len(places), OPERATIONS_MAX):
        yield from _publish(member)
        _commit_done(member, places[start : start + OPERATIONS_MAX])
        yield from _publish(member)


def _publish(member: Member) -> Flow[None]:
    lead = member.log.lead
    if lead is None or member.replica.position().epoch != lead.epoch:
        raise TransactionStale("this Core's epoch has not begun")
    outcome = yield from publish(member)
    if outcome is not Published.DONE:
        raise TransactionStale(f"the mirror goes on otherwise: {outcome.value}")


def _commit_done(member: Member, places: Sequence[Origin]) -> None:
    with member.replica.transaction() as transaction:
        if transaction.kept(EntryState.UNSENT):
            raise TransactionStale("another process changed the mirror")
        position = transaction.position()
        for place in places:
            transaction.mark_done(place)
        digest = transaction.digest().to_bytes()
        stream = member.journal.stream()
        sealed = seal_mirror(
            Kind.BATCH,
            encode_batch(Batch(operations=(), also_done=tuple(places), vectors=(), model="", digest=digest)),
            position=position,
            vault=member.vault,
            sender=member.device_id,
            incarnation=stream.incarnation if stream else bytes(8),
            log_head=member.log.head,
            key=member.generation_key,
            signer=member.identity.signing,
            salt=member.salt(),
        )
        transaction.keep_entry(position.epoch, position.sequence, sealed, EntryState.UNSENT)
        transaction.set_position(Position(position.epoch, position.sequence + 1, parse(sealed).hash))
