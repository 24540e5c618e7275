"""Restoring from a snapshot: a new device, one that was away for too long, and one whose state has to be made again.

::

    (none) --the relay has everything--> LOADING 0 --part n, in one transaction with n + 1--> LOADING n + 1
           --it does not---------------> (none); named; nothing was touched
    LOADING all --digest agrees--> position set --what our own log had beyond is offered again--> (none); the log is followed
                --digest differs-> (none), empty; the snapshot is named and not taken again

How far it is stands in the replica and commits with the rows: whoever is killed reads at most one part again. One part at a
time is in memory. While rows are missing nothing is called durable and nothing is let go of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.base import (
    META_MODEL,
    META_RESTORE,
    Place,
    await_announcement,
    awaited_announcement,
    forget_snapshot,
    is_of_before,
    read_base,
    set_base,
    set_snapshot,
)
from crystal_mirror.batch import Announced, opened_batch
from crystal_mirror.blobs import BlobDamaged, get_blob
from crystal_mirror.closed import needs_its_end, read_to_the_end
from crystal_mirror.cursors import read_cursors
from crystal_mirror.devicelog import DeviceLog
from crystal_mirror.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.offeragain import offer_again
from crystal_mirror.ports import ReplicaTransaction, ReplicaView
from crystal_mirror.requests import Flow, Get, GetMany, Has, List, Listing, Progress
from crystal_mirror.slots import SlotKind, judge_slot
from crystal_mirror.snapshots import is_whole, read_manifest
from crystal_mirror.types import START, EntryState, KeptEntry, Position

META_BAD = "snapshots.bad"
WHAT = "restoring from a snapshot"
LIST_PAGE = 1000
LOOK_BACK_MAX = 4096
"""Entries, from the newest on, that are looked through for an announcement when no device's cursor names one."""
FETCH_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Found:
    """A snapshot that a valid entry announces: where that entry stands, and SHA-256 of its bytes."""

    announced: Announced
    slot: Place
    entry: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """What to restore from. ``slot`` and ``entry`` are None where the announcement was followed already and counts.

    ``orphans``: whether what is kept of the log belongs to a history that is given up.
    """

    announced: Announced
    slot: Place | None
    entry: bytes | None
    orphans: bool


class _Restore(msgspec.Struct, frozen=True, array_like=True):
    announced: Announced
    slot: Place | None
    entry: bytes | None
    next_part: int
    orphans: bool
    loaded: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Restore)
_bad_decoder = msgspec.msgpack.Decoder(list[bytes])


def restore_pending(member: Member) -> bool:
    return member.replica.meta_get(META_RESTORE) is not None


def start_from_snapshot(member: Member) -> Flow[bool]:
    """For a device that has applied nothing yet: takes the newest snapshot instead of the whole log, if there is one."""
    if restore_pending(member):
        return (yield from resume_restore(member))
    if member.replica.position() != START or member.replica.oldest_kept() is not None:
        return False
    whole = yield Has((member.keys.mirror(START.epoch, START.sequence),))
    found = yield from find_snapshot(member, beyond=START[:2] if not whole[0] else None)
    return found is not None and (yield from restore(member, found, at=START, orphans=False))


def catch_up_by_snapshot(member: Member) -> Flow[bool]:
    """For a device whose next slot the relay does not have: if a snapshot of a later state is announced, takes that.

    The slots between were let go of; this device was away for too long. What its own log has that the state lacks, it offers
    again. Returns whether it went over.
    """
    if restore_pending(member):
        return (yield from resume_restore(member))
    position = member.replica.position()
    there: bytes | None = yield Get(member.keys.mirror(position.epoch, position.sequence))
    if there is not None and judge_slot(there, position, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):
        return False  # junk where the log was let go of is nobody's
    found = yield from find_snapshot(member, beyond=position[:2])
    if found is None or found.announced.position[:2] <= position[:2]:
        return False
    member.notices.put(
        Notice.FLOOR_PASSED,
        f"the log goes on at epoch {found.announced.epoch}, slot {found.announced.sequence}; read from a snapshot",
    )
    return (yield from restore(member, found, at=position, orphans=True))


def find_snapshot(member: Member, *, beyond: Place | None) -> Flow[Found | None]:
    """The newest snapshot that counts, by what the devices' cursors tell. If they tell of none, the log's own end is looked
    through, as far back as the place ``beyond``; None: it is not."""
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


def restore(
    member: Member, found: Found, *, at: Position, orphans: bool, instead: bytes | None = None
) -> Flow[bool]:
    """Replaces the replicated rows by a snapshot's. False, and nothing was touched, if the relay does not have all of it, or
    another process of this home has led the rows on from the position ``at`` at which that was decided. If one has begun to
    read a snapshot, that is gone on with; but not with the one that is to be given up, ``instead``.

    Raises:
        StoreFailure, BlobDamaged: on the way; ``resume_restore`` goes on where it stopped.
    """
    if not (yield from is_whole(member, found.announced)):
        return False
    with member.replica.transaction() as transaction:
        if transaction.meta_get(META_RESTORE) == instead:
            if transaction.position() != at:
                return False
            start_restore(transaction, Source(found.announced, found.slot, found.entry, orphans))
    return (yield from resume_restore(member))


def start_restore(transaction: ReplicaTransaction, source: Source) -> None:
    """Gives the rows up for the snapshot's. What is kept of the log stays until all is there."""
    transaction.wipe()
    transaction.meta_set(META_MODEL, None)
    state = _Restore(source.announced, source.slot, source.entry, 0, source.orphans, loaded=False)
    transaction.meta_set(META_RESTORE, _encoder.encode(state))


def resume_restore(member: Member) -> Flow[bool]:
    """Goes on with a restore that is under way, to its end. True if the state is the snapshot's now; also if none was."""
    while (state := _state(member)) is not None:
        if state.loaded:
            _take_leave(member)
            return True
        try:
            if not (yield from _load(member, state)):
                return False
        except BlobDamaged:
            now = _state(member)
            if now is not None and (now.announced, now.loaded) != (state.announced, False):
                continue  # another process of this home has gone over to another one, or is through
            found = yield from find_snapshot(member, beyond=state.announced.position[:2])
            if found is None or found.announced == state.announced:
                raise
            # The Core has made another one since, and let go of this one or lost it.
            instead = member.replica.meta_get(META_RESTORE)
            return (yield from restore(member, found, at=START, orphans=True, instead=instead))
    return True


def announcement_holds(member: Member) -> bool | None:
    """Whether the entry that announced the snapshot under this state stands in the log that was followed since
    (``base.note_announcement``, as it is taken).

    None while the log has not been followed so far.
    """
    place = awaited_announcement(member.replica)
    if place is None:
        return True
    return None if member.replica.position()[:2] <= place else False


def forget_unannounced(member: Member) -> None:
    """For who leads: if the log that it followed, and has sealed, does not announce the snapshot under its state, that is none
    to tell others of. The state stays, for it is of that log; another snapshot is due."""
    if announcement_holds(member) is False:
        with member.replica.transaction() as transaction:
            forget_snapshot(transaction)
            await_announcement(transaction, None, b"")


def give_snapshot_up(member: Member) -> None:
    """The snapshot under this state was not announced by the believed log: it is named and not taken again; nothing is left."""
    base = read_base(member.replica)
    member.notices.put(
        Notice.SNAPSHOT_DAMAGED, "the snapshot that was restored is not one that the log announces"
    )
    with member.replica.transaction() as transaction:
        if base is not None:
            _call_bad(transaction, base)
        orphans = list(_all_kept(member))
        offer_again(member, orphans)
        transaction.wipe()
        for entry in orphans:
            transaction.drop_entry(entry.epoch, entry.sequence)
        set_base(transaction, None)
        forget_snapshot(transaction)
        await_announcement(transaction, None, b"")
    member.mend()


def _load(member: Member, state: _Restore) -> Flow[bool]:
    """Loads what is missing. False if the snapshot turned out wrong; True if another process of this home went on as well, and
    one has to look again how far it is."""
    manifest = yield from read_manifest(member, state.announced)
    done = sum(part.length for part in manifest.parts[: state.next_part])
    for number in range(state.next_part, len(manifest.parts)):
        part = manifest.parts[number]
        content = yield from get_blob(member, part)
        with member.replica.transaction() as transaction:
            kept = transaction.meta_get(META_RESTORE)
            if kept is None or _decoder.decode(kept) != msgspec.structs.replace(state, next_part=number):
                return True
            try:
                transaction.load(content)
            except CryptoError as error:
                raise BlobDamaged(f"part {number} of a snapshot cannot be used: {error}") from error
            transaction.meta_set(
                META_RESTORE, _encoder.encode(msgspec.structs.replace(state, next_part=number + 1))
            )
        done += part.length
        yield Progress(WHAT, done, manifest.length)
    return _finish(member, state, manifest.model, len(manifest.parts))


def _finish(member: Member, state: _Restore, model: bytes | None, parts: int) -> bool:
    announced = state.announced
    with member.replica.transaction() as transaction:
        kept = transaction.meta_get(META_RESTORE)
        if kept is None or _decoder.decode(kept) != msgspec.structs.replace(state, next_part=parts):
            return True
        if transaction.digest().to_bytes() != announced.digest:
            member.notices.put(Notice.SNAPSHOT_DAMAGED, "a snapshot does not hold the state that it states")
            transaction.wipe()
            transaction.meta_set(META_RESTORE, None)
            set_base(transaction, None)
            forget_snapshot(transaction)
            _call_bad(transaction, announced)
            return False
        transaction.set_position(announced.position)
        transaction.meta_set(META_MODEL, model)
        set_base(transaction, announced)
        if state.slot is not None:
            set_snapshot(transaction, announced, state.slot)
        if state.slot is not None and state.entry is not None:
            await_announcement(transaction, state.slot, state.entry)
        transaction.meta_set(META_RESTORE, _encoder.encode(msgspec.structs.replace(state, loaded=True)))
    return True


def _take_leave(member: Member) -> None:
    """Offers again what the history had that is given up, then drops it."""
    kept = member.replica.meta_get(META_RESTORE)
    if kept is None:
        return
    state = _decoder.decode(kept)
    orphans = list(_all_kept(member)) if state.orphans else []
    if orphans:
        offer_again(member, orphans, unless_done=True)
    with member.replica.transaction() as transaction:
        if transaction.meta_get(META_RESTORE) != kept:
            return  # another process of this home was faster, and keeps by now what it has read since
        for entry in orphans:
            transaction.drop_entry(entry.epoch, entry.sequence)
        transaction.drop_entries_before(state.announced.epoch, state.announced.sequence)
        transaction.meta_set(META_RESTORE, None)
    member.mend()


def _all_kept(member: Member) -> Iterator[KeptEntry]:
    first = member.replica.oldest_kept()
    if first is None:
        return
    last = max((kept.epoch for kept in member.replica.kept(EntryState.UNSENT)), default=first[0])
    lead = member.log.lead
    for epoch in range(first[0], max(last, lead.epoch if lead else 0, first[0]) + 1):
        sequence = 0
        while page := member.replica.entries(epoch, sequence, 64):
            yield from page
            sequence = page[-1].sequence + 1


def _announced_at(member: Member, slot: Place) -> Flow[Found | None]:
    data = yield Get(member.keys.mirror(*slot))
    return (yield from _judged(member, slot, data)) if data is not None else None


def _judged(member: Member, slot: Place, data: bytes) -> Flow[Found | None]:
    """What the entry in these bytes announces, if it is one of the epoch's Core and stands before the epoch's end."""
    announced = _announcement(member, member.log, slot, data)
    if announced is None or announced.manifest in _bad(member.replica):
        return None
    if not is_of_before(announced, slot):
        return None
    if needs_its_end(member, slot[0]):
        closed = yield from read_to_the_end(member, announced.position)
        if closed is None or not closed.holds(Position(*slot, b""), data):
            return None
    return Found(announced, slot, sha256(data).digest())


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
    """The slots behind that place that the relay lists, newest first, in groups."""
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


def _state(member: Member) -> _Restore | None:
    kept = member.replica.meta_get(META_RESTORE)
    return _decoder.decode(kept) if kept else None


def _bad(view: ReplicaView) -> list[bytes]:
    """The manifests of snapshots that turned out wrong."""
    kept = view.meta_get(META_BAD)
    return _bad_decoder.decode(kept) if kept else []


def _call_bad(transaction: ReplicaTransaction, announced: Announced) -> None:
    transaction.meta_set(META_BAD, _encoder.encode([*_bad(transaction), announced.manifest]))
