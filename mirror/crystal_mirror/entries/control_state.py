"""What applied control entries leave in the replica: the newest snapshot, the floor, the base, the packs, the ends of
epochs.

Every announced snapshot is remembered with the slot that announces it. When the Core publishes a floor, the kept log below
it is dropped in the same transaction, and the newest snapshot at or above the floor becomes the *base*: the snapshot from
which this device's state can be made again. Without a base everything is kept from the first slot on.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from crystal_mirror.entries.batches import Announced, Batch, Pack
from crystal_mirror.ports import ReplicaTransaction, ReplicaView
from crystal_mirror.types import START, Position

META_MODEL = "model"
"""The model that made the vectors."""
META_SNAPSHOT = "snapshot"
META_SNAPSHOT_SLOT = "snapshot.slot"
META_BASE = "base"
META_RESTORE = "restore"
"""A snapshot is being loaded (``snapshots/restore.py``): rows are missing. Until all are there, no process of this home
applies anything to them or calls anything durable."""
META_REBUILD = "rebuild"
"""A rebuild is under way (``replication/rebuild.py``). Until its wipe has committed, nothing leaves the outbox."""
META_PUBLISHED_FLOOR = "floor.published"
META_FLOOR_SLOT = "floor.slot"
META_ENDS = "epoch.ends"
META_ANNOUNCED_AT = "restored.by"
META_PACKS = "packs"
META_PACKS_SLOT = "packs.slot"
META_FORGOTTEN_AT = "forgotten.at"

Place = tuple[int, int]
"""Epoch and slot."""

_encoder = msgspec.msgpack.Encoder()
_announced_decoder = msgspec.msgpack.Decoder(Announced)
_packs_decoder = msgspec.msgpack.Decoder(tuple[Pack, ...])
_awaited_decoder = msgspec.msgpack.Decoder(tuple[int, int, bytes])
_ends_decoder = msgspec.msgpack.Decoder(tuple[Place, ...])
_place_decoder = msgspec.msgpack.Decoder(tuple[int, int])


def is_remade(view: ReplicaView) -> bool:
    """Whether the rows are being loaded or rebuilt: then nothing counts as done by them."""
    return any(view.meta_get(name) is not None for name in (META_REBUILD, META_RESTORE))


def newest_snapshot(view: ReplicaView) -> Announced | None:
    """The snapshot that the log announced last, as far as it was applied here."""
    return _announced(view.meta_get(META_SNAPSHOT))


def snapshot_slot(view: ReplicaView) -> Place | None:
    """The slot that announces the newest snapshot."""
    return _place(view.meta_get(META_SNAPSHOT_SLOT))


def read_base(view: ReplicaView) -> Announced | None:
    return _announced(view.meta_get(META_BASE))


def first_position(view: ReplicaView) -> Position:
    """The position at which the kept log begins: that of the base, or the very first."""
    base = read_base(view)
    return base.position if base else START


def published_floor(view: ReplicaView) -> Place:
    """The lowest slot that the Core has promised to keep."""
    return _place(view.meta_get(META_PUBLISHED_FLOOR)) or (0, 0)


def floor_slot(view: ReplicaView) -> Place | None:
    """The slot that published the floor."""
    return _place(view.meta_get(META_FLOOR_SLOT))


def forgotten_at(view: ReplicaView) -> Place | None:
    """The slot of the last entry that forgets a text, or that holds a text forgotten before it came."""
    return _place(view.meta_get(META_FORGOTTEN_AT))


def packs_of(view: ReplicaView) -> tuple[Pack, ...]:
    """The packs that the log listed last."""
    data = view.meta_get(META_PACKS)
    return _packs_decoder.decode(data) if data else ()


def packs_slot(view: ReplicaView) -> Place | None:
    """The slot that listed the packs last."""
    return _place(view.meta_get(META_PACKS_SLOT))


def set_base(transaction: ReplicaTransaction, base: Announced | None) -> None:
    transaction.meta_set(META_BASE, _encoder.encode(base) if base else None)


def set_snapshot(transaction: ReplicaTransaction, announced: Announced, slot: Place) -> None:
    transaction.meta_set(META_SNAPSHOT, _encoder.encode(announced))
    transaction.meta_set(META_SNAPSHOT_SLOT, _encoder.encode(slot))


def forget_snapshot(transaction: ReplicaTransaction) -> None:
    """Forgets the newest snapshot: the history that announced it is not the believed one."""
    for name in (META_SNAPSHOT, META_SNAPSHOT_SLOT):
        transaction.meta_set(name, None)


def forget_packs(transaction: ReplicaTransaction) -> None:
    """Forgets the list of packs: it stands in a history that is given up, and may hold slots of it."""
    for name in (META_PACKS, META_PACKS_SLOT):
        transaction.meta_set(name, None)


def epoch_ends(view: ReplicaView) -> tuple[Place, ...]:
    """Each epoch that a seal ended, with the slot of the seal, as far as this history is known here."""
    data = view.meta_get(META_ENDS)
    return _ends_decoder.decode(data) if data else ()


def set_ends(transaction: ReplicaTransaction, ends: Sequence[Place]) -> None:
    transaction.meta_set(META_ENDS, _encoder.encode(tuple(ends)))


def note_end(transaction: ReplicaTransaction, place: Place) -> None:
    """Records a seal in that slot. It ends its epoch; later ends known so far belong to another history."""
    set_ends(transaction, [*(end for end in epoch_ends(transaction) if end[0] < place[0]), place])


def await_announcement(transaction: ReplicaTransaction, place: Place | None, entry: bytes) -> None:
    """The snapshot under this state counts once the entry with these bytes (their SHA-256) is found in that slot. None: it
    counts."""
    transaction.meta_set(META_ANNOUNCED_AT, _encoder.encode((*place, entry)) if place else None)


def awaited_announcement(view: ReplicaView) -> Place | None:
    """The slot in which the announcement of the snapshot under this state has yet to be found."""
    data = view.meta_get(META_ANNOUNCED_AT)
    return _awaited_decoder.decode(data)[:2] if data else None


def note_announcement(transaction: ReplicaTransaction, place: Place, data: bytes) -> None:
    """A slot was taken: if the announcement was awaited there and these are its bytes, nothing is awaited any more."""
    kept = transaction.meta_get(META_ANNOUNCED_AT)
    if kept is not None and _awaited_decoder.decode(kept) == (*place, sha256(data).digest()):  # §12.2-5
        transaction.meta_set(META_ANNOUNCED_AT, None)


def note_forget(transaction: ReplicaTransaction, place: Place) -> None:
    transaction.meta_set(META_FORGOTTEN_AT, _encoder.encode(place))


def is_of_before(announced: Announced, place: Place) -> bool:
    """Whether the snapshot is of this epoch's log up to that slot at most. Any other announcement is ignored: otherwise a
    floor above everything that will ever be written could go with it, and floors never go back."""
    return announced.epoch == place[0] and announced.sequence <= place[1]


def take_control_entry(transaction: ReplicaTransaction, batch: Batch, place: Place) -> None:
    """Applies a batch's control entries, after its operations: for its maker and for every reader."""
    if batch.condemned:
        transaction.condemn(batch.condemned)
    if batch.announced is not None and is_of_before(batch.announced, place):  # §11.14-1
        set_snapshot(transaction, batch.announced, place)
    if batch.packs is not None:  # §11.14-5
        transaction.meta_set(META_PACKS, _encoder.encode(batch.packs))
        transaction.meta_set(META_PACKS_SLOT, _encoder.encode(place))
    if batch.floor is not None and batch.floor > published_floor(transaction):  # §11.14-2
        newest = newest_snapshot(transaction)
        if newest is None or (newest.epoch, newest.sequence) < batch.floor:  # §11.14-2
            return  # a floor without a snapshot that covers it does not count
        transaction.meta_set(META_PUBLISHED_FLOOR, _encoder.encode(batch.floor))
        transaction.meta_set(META_FLOOR_SLOT, _encoder.encode(place))
        set_base(transaction, newest)
        transaction.drop_entries_before(*batch.floor)  # §11.14-2


def _announced(data: bytes | None) -> Announced | None:
    return _announced_decoder.decode(data) if data else None


def _place(data: bytes | None) -> Place | None:
    return _place_decoder.decode(data) if data else None
