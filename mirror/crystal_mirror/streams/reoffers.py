"""Re-offering: operations of mirror entries that are not in the believed log go into the outbox under their own names.

Before a device gives up its state or drops entries, nothing that they carry may be lost. Entries that a since revoked
device signed are another matter: a relay in league with it may have shown this device alone an epoch that went on after the
revocation. Of these, only this device's own operations are offered again; the rest is held in the journal until the owner
accepts or drops it (``replication/held_entries.py``).
"""

from collections.abc import Iterable

import msgspec

from crystal_crypto.entry import Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.entries.batches import opened_batch
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice, NoticeBoard
from crystal_mirror.ports import JournalTransaction, JournalView
from crystal_mirror.types import EntryState, KeptEntry

META_HELD = "held."
"""Prefix of everything held. It belongs to the vault's owner, not to the device: a copy of a home takes it along."""
_INDEX = f"{META_HELD}orphans"


class _Place(msgspec.Struct, frozen=True, array_like=True):
    device: bytes
    name: str


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[_Place]] = msgspec.msgpack.Decoder(list[_Place])


def reoffer(member: Member, entries: Iterable[KeptEntry], *, unless_done: bool = False) -> None:
    """Puts every operation of these entries into the outbox, unless it is there already; with ``unless_done`` also not
    those that the current state has done, for a device that has gone over to the believed state. Idempotent."""
    with member.journal.transaction() as transaction:
        known = {name.origin for name in transaction.names()}
        for kept in entries:
            if kept.state is EntryState.VOID:
                continue
            entry = parse(kept.data)
            key = member.key_for(entry.header.generation)
            if key is None or entry.header.kind is not Kind.BATCH:
                continue
            try:
                batch = opened_batch(entry, key)
            except CryptoError as error:
                raise AssertionError("an entry that was applied here opens") from error
            doubtful = not member.log.is_active(entry.header.sender)  # §9.10-4
            lacking = [
                (origin, operation)
                for origin, operation in batch.operations
                if not (unless_done and member.replica.done(origin))
            ]
            if doubtful and any(origin.device != member.device_id for origin, _ in lacking):
                hold_entry(transaction, entry)  # §9.10-4
            for origin, operation in lacking:
                if doubtful and origin.device != member.device_id:
                    continue
                if origin not in known:
                    known.add(origin)
                    member.seal_row(transaction, operation, origin)


def hold_entry(transaction: JournalTransaction, entry: Entry) -> None:
    """Keeps an entry's bytes. Idempotent."""
    place = _Place(entry.header.sender, f"{META_HELD}orphan.{entry.hash.hex()}")
    index = _index(transaction)
    if place not in index:
        transaction.meta_set(place.name, entry.data)
        transaction.meta_set(_INDEX, _encoder.encode([*index, place]))


def held_entries(journal: JournalView, device: bytes) -> list[bytes]:
    """The entries held of a device."""
    kept = [journal.meta_get(place.name) for place in _index(journal) if place.device == device]
    return [data for data in kept if data is not None]


def note_held_entries(journal: JournalView, notices: NoticeBoard) -> None:
    """Raises a notice in each round while anything is held."""
    for place in _index(journal)[:1]:
        notices.put(
            Notice.HELD_REVOKED,
            f"what the revoked device {place.device.hex()[:8]} had written on as Core is held on this device",
        )


def drop_held_entries(transaction: JournalTransaction, device: bytes) -> None:
    """Drops what is held of a device."""
    index = _index(transaction)
    for place in index:
        if place.device == device:
            transaction.meta_set(place.name, None)
    transaction.meta_set(_INDEX, _encoder.encode([place for place in index if place.device != device]))


def _index(journal: JournalView) -> list[_Place]:
    kept = journal.meta_get(_INDEX)
    return _decoder.decode(kept) if kept else []
