"""The outbox: bringing this device's operations to the relay, and letting go of them when they are durable.

An operation leaves the outbox only when the mirror log that others read carries it (or says that its origin was done), and
what the log carries under that name is what this device made. Until then its sealed bytes are resent identically, put
back if the relay lost them, and sealed anew in a new incarnation if the relay holds something else in their place.

When a stream cannot go on (its next place is taken by other bytes, or the Core has seen more of it than this device
remembers) the device starts a new incarnation. Operations keep their names, except those whose name somebody with this
device's key has already given to something else: a clone, or this device before it was restored from a backup. These
get new names.
"""

from hashlib import sha256

import msgspec

from crystal_crypto.entry import Entry, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.batch import Batch
from crystal_mirror.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.offers import PackedOrigin, stands_at
from crystal_mirror.ports import (
    JournalTransaction,
    OutboxName,
    OutboxRow,
    OutboxState,
    ReplicaTransaction,
    Stream,
)
from crystal_mirror.requests import Flow, Get, PutNew
from crystal_mirror.types import INCARNATION_BYTES, ZERO_HASH, EntryState, Origin

META_OWN = "own.durable"

_Own = list[tuple[PackedOrigin, bytes]]
_own_decoder = msgspec.msgpack.Decoder(_Own)
_own_encoder = msgspec.msgpack.Encoder()


def push(member: Member) -> Flow[int]:
    """Puts pending operations on the relay, in order. Returns how many bytes were stored.

    May begin a new incarnation on the way; what is pending is then sealed anew and put by the same call.
    """
    pushed = 0
    yield from _check_first_stored(member)
    while True:
        row = member.journal.first_row(OutboxState.PENDING)
        if row is None:
            return pushed
        key = member.keys.conversation(member.device_id, row.incarnation, row.sequence)
        created = yield PutNew(key, row.sealed)
        if not created:
            there = yield Get(key)
            if there is None:
                continue
            if there != row.sealed:
                _give_way(member, row, there)
                continue
        else:
            pushed += len(row.sealed)
        with member.journal.transaction() as transaction:
            transaction.set_row_state(row.incarnation, row.sequence, OutboxState.STORED)


def _check_first_stored(member: Member) -> Flow[None]:
    """Whether the relay still holds the first operation that the Core has yet to order; else it is put back."""
    row = member.journal.first_row(OutboxState.STORED)
    if row is None:
        return
    there = yield Get(member.keys.conversation(member.device_id, row.incarnation, row.sequence))
    if there == row.sealed:
        return
    if there is None:
        member.notices.put(
            Notice.STREAM_LOST, f"the relay lost entry {row.sequence} of this device; it is put back"
        )
        with member.journal.transaction() as transaction:
            transaction.set_all_states(OutboxState.STORED, OutboxState.PENDING)
        return
    _give_way(member, row, there)


def _give_way(member: Member, row: OutboxRow, there: bytes) -> None:
    """The place of ``row`` holds other bytes: goes on in a new incarnation."""
    mine = _signed_by_me(member, row, there)
    if mine:
        member.notices.put(Notice.RESTORED, "another copy of this device has written to the relay")
    else:
        member.notices.put(
            Notice.STREAM_TAMPERED, f"the relay holds foreign bytes as entry {row.sequence} of this device"
        )
    with member.journal.transaction() as transaction:
        restart_stream(member, transaction, rename_from=(row.incarnation, row.sequence) if mine else None)


def _signed_by_me(member: Member, row: OutboxRow, data: bytes) -> bool:
    try:
        entry: Entry = parse(data)
        entry.verify(member.identity.signing.public)
    except CryptoError:
        return False
    return stands_at(
        entry, vault=member.vault, device=member.device_id, incarnation=row.incarnation, sequence=row.sequence
    )


def restart_stream(
    member: Member, transaction: JournalTransaction, *, rename_from: tuple[bytes, int] | None = None
) -> None:
    """Begins a new incarnation and seals everything in the outbox anew in it.

    Names stay, except, with ``rename_from`` (an incarnation and a sequence), the operations that were named by their
    own place there or later.
    """
    names = transaction.names()
    transaction.set_stream(Stream(member.random(INCARNATION_BYTES), 0, ZERO_HASH))
    for name in names:
        row = transaction.row(name.incarnation, name.sequence)
        assert row is not None, "nothing else writes in this transaction"
        transaction.remove_row(row.incarnation, row.sequence)
        renamed = (
            rename_from is not None
            and row.origin.device == member.device_id
            and row.origin.incarnation == rename_from[0]
            and row.origin.sequence >= rename_from[1]
        )
        member.seal_row(transaction, row.operation, None if renamed else row.origin)


def note_own(member: Member, transaction: ReplicaTransaction, batch: Batch) -> None:
    """Remembers, with the rows of a batch, which of this device's operations it carries: ``settle`` compares them."""
    mine = [(tuple(o), sha256(data).digest()) for o, data in batch.operations if o.device == member.device_id]
    if not mine:
        return
    kept = transaction.meta_get(META_OWN)
    known = _own_decoder.decode(kept) if kept else []
    transaction.meta_set(META_OWN, _own_encoder.encode([*known, *mine]))


def settle(member: Member) -> int:
    """Lets go of the operations that are durable. Returns how many.

    Must be called only when everything in the replica is on the relay: it does nothing while mirror entries are unsent.
    """
    if member.replica.kept(EntryState.UNSENT):
        return 0
    kept = member.replica.meta_get(META_OWN)
    seen = {Origin(*origin): digest for origin, digest in _own_decoder.decode(kept)} if kept else {}
    settled: list[Origin] = []
    clash: OutboxName | None = None
    with member.journal.transaction() as transaction:
        stream = transaction.stream()
        for row in transaction.names():
            if not member.replica.done(row.origin):
                continue
            if row.origin.device == member.device_id and seen.get(row.origin) != row.digest:
                clash = clash or row
                continue
            transaction.remove_row(row.incarnation, row.sequence)
            settled.append(row.origin)
        if clash is not None:
            restart_stream(member, transaction, rename_from=(clash.origin.incarnation, clash.origin.sequence))
        elif stream and member.replica.ack(member.device_id, stream.incarnation) >= stream.sequence:
            restart_stream(member, transaction)
    for origin in settled:
        member.replica.drop_provisional(origin)
    if kept:
        with member.replica.transaction() as replica:
            replica.meta_set(META_OWN, None)
    return len(settled)
