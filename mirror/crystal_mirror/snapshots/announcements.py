"""Announcements of snapshots: found through the devices' cursors or at the end of the log, and judged like any slot."""

from dataclasses import dataclass
from hashlib import sha256

import msgspec

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.entries.batches import Announced, opened_batch
from crystal_mirror.entries.control_state import Place, is_of_before
from crystal_mirror.history.closed_epochs import needs_its_end, read_to_the_end
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import ReplicaTransaction, ReplicaView
from crystal_mirror.requests import Flow, Get, GetMany, List, Listing
from crystal_mirror.types import Position

LIST_PAGE = 1000
LOOK_BACK_MAX = 4096
"""Entries, from the newest on, that are searched for an announcement if no device's cursor names one."""
FETCH_AT_ONCE = 16
META_BAD = "snapshots.bad"
_encoder = msgspec.msgpack.Encoder()
_bad_decoder = msgspec.msgpack.Decoder(list[bytes])


@dataclass(frozen=True, slots=True)
class FoundSnapshot:
    """A snapshot that a valid entry announces: the entry's slot, and SHA-256 of its bytes."""

    announced: Announced
    slot: Place
    entry: bytes


def find_snapshot(member: Member, *, beyond: Place | None) -> Flow[FoundSnapshot | None]:
    """The newest snapshot that counts, according to the devices' cursors. If they name none, the end of the log is
    searched, back to the slot ``beyond``; not at all if that is None."""
    # §12.1-6
    told = {cursor.snapshot for cursor in (yield from read_cursors(member)) if cursor.snapshot is not None}
    for slot in sorted(told, reverse=True):
        found = yield from _announced_at(member, slot)
        if found is not None:
            return found
    if beyond is None:
        return None
    for slots in (yield from _newest_slots(member, beyond)):
        keys = tuple(member.keys.mirror(*slot) for slot in slots)
        datas: list[bytes | None] = yield GetMany(keys)
        for slot, data in zip(slots, datas, strict=True):
            found = (yield from _judged(member, slot, data)) if data is not None else None
            if found is not None:
                return found
    return None


def bad_snapshots(view: ReplicaView) -> list[bytes]:
    """The manifests of snapshots that turned out to be wrong."""
    kept = view.meta_get(META_BAD)
    return _bad_decoder.decode(kept) if kept else []


def _announced_at(member: Member, slot: Place) -> Flow[FoundSnapshot | None]:
    data = yield Get(member.keys.mirror(*slot))
    return (yield from _judged(member, slot, data)) if data is not None else None


def _judged(member: Member, slot: Place, data: bytes) -> Flow[FoundSnapshot | None]:
    """What these bytes announce, if they are an entry of the epoch's Core before the epoch's end."""
    announced = _announcement(member, member.log, slot, data)
    if announced is None or announced.manifest in bad_snapshots(member.replica):  # §12.2-2
        return None
    if not is_of_before(announced, slot):  # §12.2-2
        return None
    if needs_its_end(member, slot[0]):
        closed = yield from read_to_the_end(member, announced.position)
        if closed is None or not closed.holds(Position(*slot, b""), data):  # §12.2-2
            return None
    return FoundSnapshot(announced, slot, sha256(data).digest())


def _announcement(member: Member, log: DeviceLog, slot: Place, data: bytes) -> Announced | None:
    try:
        previous = parse(data).header.previous
    except CryptoError:
        return None
    judged = judge_slot(data, Position(*slot, previous), log)
    if (
        judged.kind is not SlotKind.BATCH
        or judged.entry is None
        or judged.entry.header.kind is not Kind.BATCH
    ):
        return None
    key = member.key_for(judged.entry.header.generation)
    if key is None:
        return None
    try:
        return opened_batch(judged.entry, key).announced
    except CryptoError:
        return None


def _newest_slots(member: Member, beyond: Place) -> Flow[list[list[Place]]]:
    """The slots after that one that the relay lists, newest first, in groups."""
    lead = member.log.lead
    slots: list[Place] = []
    for epoch in range(lead.epoch if lead else 0, beyond[0] - 1, -1):
        prefix = member.keys.epoch_prefix(epoch)
        listed: list[Place] = []
        after = ""
        while True:
            page: Listing = yield List(prefix, after, LIST_PAGE)
            keys = page.after(after)
            listed += [
                (epoch, slot) for key in keys if (slot := member.keys.parse_slot(prefix, key)) is not None
            ]
            if not page.more or not keys:
                break
            after = keys[-1]
        slots += sorted((place for place in listed if place > beyond), reverse=True)
        if len(slots) >= LOOK_BACK_MAX:
            break
    slots = slots[:LOOK_BACK_MAX]
    return [slots[start : start + FETCH_AT_ONCE] for start in range(0, len(slots), FETCH_AT_ONCE)]


def call_bad(transaction: ReplicaTransaction, announced: Announced) -> None:
    transaction.meta_set(META_BAD, _encoder.encode([*bad_snapshots(transaction), announced.manifest]))
