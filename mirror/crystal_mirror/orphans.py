"""Mirror entries that a device revoked since had signed, and that are no part of the believed history: kept for the owner.

They stand in the journal, by device, until what is held of that device is accepted or dropped (``held.py``).
"""

import msgspec

from crystal_crypto.entry import Entry
from crystal_mirror.notices import Notice, NoticeBoard
from crystal_mirror.ports import JournalTransaction, JournalView

META_HELD = "held."
"""The names of all that is kept begin so. They belong to the vault's owner, not to the device: a copy of a home takes them."""
_INDEX = f"{META_HELD}orphans"


class _Place(msgspec.Struct, frozen=True, array_like=True):
    device: bytes
    name: str


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[_Place]] = msgspec.msgpack.Decoder(list[_Place])


def hold_entry(transaction: JournalTransaction, entry: Entry) -> None:
    """Keeps an entry's bytes. Idempotent."""
    place = _Place(entry.header.sender, f"{META_HELD}orphan.{entry.hash.hex()}")
    index = _index(transaction)
    if place not in index:
        transaction.meta_set(place.name, entry.data)
        transaction.meta_set(_INDEX, _encoder.encode([*index, place]))


def held_entries(journal: JournalView, device: bytes) -> list[bytes]:
    """The entries that are kept of a device."""
    kept = [journal.meta_get(place.name) for place in _index(journal) if place.device == device]
    return [data for data in kept if data is not None]


def note_held_entries(journal: JournalView, notices: NoticeBoard) -> None:
    """Says so, in each round, as long as anything is kept."""
    for place in _index(journal)[:1]:
        notices.put(
            Notice.HELD_REVOKED,
            f"what the revoked device {place.device.hex()[:8]} had written on as Core is held on this device",
        )


def drop_held_entries(transaction: JournalTransaction, device: bytes) -> None:
    """Lets go of what is kept of a device."""
    index = _index(transaction)
    for place in index:
        if place.device == device:
            transaction.meta_set(place.name, None)
    transaction.meta_set(_INDEX, _encoder.encode([place for place in index if place.device != device]))


def _index(journal: JournalView) -> list[_Place]:
    kept = journal.meta_get(_INDEX)
    return _decoder.decode(kept) if kept else []
