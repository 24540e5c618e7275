"""The base: the announced snapshot from which this device's state can be made again, and the floor below which nothing is kept.

Every batch that announces a snapshot is remembered with its place. When the Core publishes a floor, what is kept of the log
below it is dropped in the same transaction; the newest snapshot at or above the floor is the base from then on. Without a
base everything is kept from the first slot on, and that is what a state is made from.
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
"""A snapshot is being loaded (restoring.py): rows are missing until it is all there. Meanwhile nothing is applied to them and
nothing is called durable, in no process of this home."""
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


def newest_snapshot(view: ReplicaView) -> Announced | None:
    """The snapshot that the log announced last, as far as it was applied here."""
    return _announced(view.meta_get(META_SNAPSHOT))


def snapshot_slot(view: ReplicaView) -> Place | None:
    """Where it was announced."""
    return _place(view.meta_get(META_SNAPSHOT_SLOT))


def read_base(view: ReplicaView) -> Announced | None:
    return _announced(view.meta_get(META_BASE))


def first_position(view: ReplicaView) -> Position:
    """The position at which what is kept begins: behind the base, or the very first."""
    base = read_base(view)
    return base.position if base else START


def published_floor(view: ReplicaView) -> Place:
    """The lowest slot that the Core has promised to keep."""
    return _place(view.meta_get(META_PUBLISHED_FLOOR)) or (0, 0)


def floor_slot(view: ReplicaView) -> Place | None:
    """Where the Core published that."""
    return _place(view.meta_get(META_FLOOR_SLOT))


def forgotten_at(view: ReplicaView) -> Place | None:
    """Where the last entry stands in the log that forgets a text, or holds one that was forgotten before it came."""
    return _place(view.meta_get(META_FORGOTTEN_AT))


def packs_of(view: ReplicaView) -> tuple[Pack, ...]:
    """The packs that the log listed last."""
    data = view.meta_get(META_PACKS)
    return _packs_decoder.decode(data) if data else ()


def packs_slot(view: ReplicaView) -> Place | None:
    """Where they were listed."""
    return _place(view.meta_get(META_PACKS_SLOT))


def set_base(transaction: ReplicaTransaction, base: Announced | None) -> None:
    transaction.meta_set(META_BASE, _encoder.encode(base) if base else None)


def set_snapshot(transaction: ReplicaTransaction, announced: Announced, slot: Place) -> None:
    transaction.meta_set(META_SNAPSHOT, _encoder.encode(announced))
    transaction.meta_set(META_SNAPSHOT_SLOT, _encoder.encode(slot))


def forget_snapshot(transaction: ReplicaTransaction) -> None:
    """No snapshot is known any more: the history that announced it is not the believed one."""
    for name in (META_SNAPSHOT, META_SNAPSHOT_SLOT):
        transaction.meta_set(name, None)


def forget_packs(transaction: ReplicaTransaction) -> None:
    """No packs are known any more: they were listed in a history that is given up, and may hold slots of it."""
    for name in (META_PACKS, META_PACKS_SLOT):
        transaction.meta_set(name, None)


def epoch_ends(view: ReplicaView) -> tuple[Place, ...]:
    """Each epoch that was left by a seal, with the slot of the seal, as far as this history is known here."""
    data = view.meta_get(META_ENDS)
    return _ends_decoder.decode(data) if data else ()


def set_ends(transaction: ReplicaTransaction, ends: Sequence[Place]) -> None:
    transaction.meta_set(META_ENDS, _encoder.encode(tuple(ends)))


def note_end(transaction: ReplicaTransaction, place: Place) -> None:
    """A seal stands there: its epoch ends, and what was known of later ones was another history's."""
    set_ends(transaction, [*(end for end in epoch_ends(transaction) if end[0] < place[0]), place])


def await_announcement(transaction: ReplicaTransaction, place: Place | None, entry: bytes) -> None:
    """The snapshot under this state counts if the entry with these bytes (their SHA-256) stands there. None: it counts."""
    transaction.meta_set(META_ANNOUNCED_AT, _encoder.encode((*place, entry)) if place else None)


def awaited_announcement(view: ReplicaView) -> Place | None:
    """Where the announcement of the snapshot under this state has to be found yet."""
    data = view.meta_get(META_ANNOUNCED_AT)
    return _awaited_decoder.decode(data)[:2] if data else None


def note_announcement(transaction: ReplicaTransaction, place: Place, data: bytes) -> None:
    """A slot is taken: if the announcement was awaited there, and it is this, nothing is awaited any more."""
    kept = transaction.meta_get(META_ANNOUNCED_AT)
    if kept is not None and _awaited_decoder.decode(kept) == (*place, sha256(data).digest()):  # §12.2-5
        transaction.meta_set(META_ANNOUNCED_AT, None)


def note_forget(transaction: ReplicaTransaction, place: Place) -> None:
    transaction.meta_set(META_FORGOTTEN_AT, _encoder.encode(place))


def is_of_before(announced: Announced, place: Place) -> bool:
    """Whether the snapshot is of this epoch's log up to that place at most. A Core that states anything else announces nothing:
    else a floor above all that will ever be written could go with it, and floors never go back."""
    return announced.epoch == place[0] and announced.sequence <= place[1]


def take_control_entry(transaction: ReplicaTransaction, batch: Batch, place: Place) -> None:
    """What a batch at this place says beside its operations, after they were applied: for its maker and for every reader."""
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
            return  # a floor without a snapshot that covers it binds nobody
        transaction.meta_set(META_PUBLISHED_FLOOR, _encoder.encode(batch.floor))
        transaction.meta_set(META_FLOOR_SLOT, _encoder.encode(place))
        set_base(transaction, newest)
        transaction.drop_entries_before(*batch.floor)  # §11.14-2


def _announced(data: bytes | None) -> Announced | None:
    return _announced_decoder.decode(data) if data else None


def _place(data: bytes | None) -> Place | None:
    return _place_decoder.decode(data) if data else None
