"""Restoring from a snapshot: for a new device, one that was away for too long, and one whose state must be rebuilt.

::

    (none) --the relay has everything--> LOADING 0 --part n, in one transaction with n + 1--> LOADING n + 1
           --it does not---------------> (none); named; nothing was changed
    LOADING all --digest agrees--> position set --what our own log had beyond is offered again--> (none); the log is followed
                --digest differs-> (none), empty; the snapshot is named and not taken again

Progress is kept in the replica and commits with the rows, so a killed process reads at most one part again. One part at a
time is in memory. While rows are missing nothing counts as durable and nothing leaves the outbox.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from crystal_crypto.errors import CryptoError
from crystal_mirror.entries.batches import Announced
from crystal_mirror.entries.control_state import (
    META_MODEL,
    META_RESTORE,
    Place,
    await_announcement,
    awaited_announcement,
    epoch_ends,
    forget_snapshot,
    read_base,
    set_base,
    set_ends,
    set_snapshot,
)
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.ports import ReplicaTransaction
from crystal_mirror.requests import Flow, Get, Has, Progress
from crystal_mirror.snapshots.announcements import FoundSnapshot, call_bad, find_snapshot
from crystal_mirror.snapshots.blobs import BlobDamaged, get_blob
from crystal_mirror.snapshots.creation import is_whole, read_manifest
from crystal_mirror.snapshots.manifest import Manifest
from crystal_mirror.streams.reoffers import reoffer
from crystal_mirror.types import START, EntryState, KeptEntry, Position

WHAT = "restoring from a snapshot"


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """What to restore from. ``slot`` and ``entry`` are None if the announcement was followed already and counts.

    ``abandons_log``: whether the kept log belongs to a history that is given up.
    """

    announced: Announced
    slot: Place | None
    entry: bytes | None
    abandons_log: bool


class _Restore(msgspec.Struct, frozen=True, array_like=True):
    announced: Announced
    slot: Place | None
    entry: bytes | None
    next_part: int
    abandons_log: bool
    loaded: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Restore)


def restore_pending(member: Member) -> bool:
    return member.replica.meta_get(META_RESTORE) is not None


def start_from_snapshot(member: Member) -> Flow[bool]:
    """For a device that has applied nothing yet: takes the newest snapshot, if there is one, instead of the whole log."""
    if restore_pending(member):
        return (yield from resume_restore(member))
    if member.replica.position() != START or member.replica.oldest_kept() is not None:  # §12.2-1
        return False
    whole = yield Has((member.keys.mirror(START.epoch, START.sequence),))
    found = yield from find_snapshot(member, beyond=START[:2] if not whole[0] else None)
    return found is not None and (yield from restore(member, found, at=START, abandons_log=False))


def catch_up_by_snapshot(member: Member) -> Flow[bool]:
    """For a device whose next slot the relay does not have: takes a snapshot of a later state, if one is announced.

    The slots between were deleted because this device was away for too long. What its own log has and the state lacks, it
    offers again. Returns whether it took one.
    """
    if restore_pending(member):
        return (yield from resume_restore(member))
    position = member.replica.position()
    there: bytes | None = yield Get(member.keys.mirror(position.epoch, position.sequence))
    # §12.2-1
    if there is not None and judge_slot(there, position, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):
        return False  # junk where the log was deleted does not count
    found = yield from find_snapshot(member, beyond=position[:2])
    if found is None or found.announced.position[:2] <= position[:2]:
        return False
    member.notices.put(
        Notice.FLOOR_PASSED,
        f"the log goes on at epoch {found.announced.epoch}, slot {found.announced.sequence}; read from a snapshot",
    )
    return (yield from restore(member, found, at=position, abandons_log=True))


def restore(
    member: Member, found: FoundSnapshot, *, at: Position, abandons_log: bool, instead: bytes | None = None
) -> Flow[bool]:
    """Replaces the replicated rows by a snapshot's.

    Returns False without any change if the relay does not have all of it, or if another process of this home has moved on
    from the position ``at`` at which that was decided. A restore that another process has begun is continued, unless it is
    the one to be given up, ``instead``.

    Raises:
        StoreFailure, BlobDamaged: on the way; ``resume_restore`` goes on where it stopped.
    """
    if not (yield from is_whole(member, found.announced)):
        return False
    if abandons_log and instead is None and (yield from parts_below(member, found.announced)):  # §12.1-3
        return False
    with member.replica.transaction() as transaction:
        if transaction.meta_get(META_RESTORE) == instead:
            if transaction.position() != at:
                return False
            start_restore(transaction, RestoreSource(found.announced, found.slot, found.entry, abandons_log))
    return (yield from resume_restore(member))


def parts_below(member: Member, announced: Announced) -> Flow[bool]:
    """Whether the history of a snapshot leaves ours at a place below everything that is kept here. What we applied there is
    in our rows alone and could not be offered again, so the rows are not given up; a notice says so."""
    manifest = yield from read_manifest(member, announced)
    theirs = dict(manifest.ends)
    position = member.replica.position()
    oldest = member.replica.oldest_kept() or position[:2]
    for epoch, end in (*epoch_ends(member.replica), position[:2]):
        other = theirs.get(epoch)
        sealed = epoch < position.epoch
        if other is None and epoch >= announced.epoch:
            return False
        if other is not None and (other == end or (not sealed and other > end)):
            continue
        if (epoch, min(end, other if other is not None else 0)) >= oldest:
            return False
        member.notices.put(
            Notice.MIRROR_FORKED,
            f"the log that is shown leaves ours in epoch {epoch}, below all that is kept here; this memory is not given up for "
            "it. `crystal restore` takes it over, and keeps the file of this one",
        )
        return True
    return False


def start_restore(transaction: ReplicaTransaction, source: RestoreSource) -> None:
    """Gives up the rows for the snapshot's. The kept log stays until all is loaded."""
    transaction.wipe()
    transaction.meta_set(META_MODEL, None)
    state = _Restore(source.announced, source.slot, source.entry, 0, source.abandons_log, loaded=False)
    transaction.meta_set(META_RESTORE, _encoder.encode(state))


def resume_restore(member: Member) -> Flow[bool]:
    """Takes a restore that is under way to its end. True if the state is the snapshot's now; also if there was none."""
    while (state := _state(member)) is not None:
        if state.loaded:
            _finish_reoffer(member)
            return True
        try:
            if not (yield from _load(member, state)):
                return False
        except BlobDamaged:
            now = _state(member)
            if now is not None and (now.announced, now.loaded) != (state.announced, False):
                continue  # another process of this home has gone over to another snapshot, or has finished
            found = yield from find_snapshot(member, beyond=state.announced.position[:2])
            if found is None or found.announced == state.announced:  # §12.2-8
                raise
            # The Core has made another one since; this one was deleted or lost.
            instead = member.replica.meta_get(META_RESTORE)
            return (yield from restore(member, found, at=START, abandons_log=True, instead=instead))
    return True


def announcement_holds(member: Member) -> bool | None:
    """Whether the entry that announced the snapshot under this state is in the log that was followed since
    (``control_state.note_announcement``).

    None while the log has not been followed so far.
    """
    place = awaited_announcement(member.replica)
    if place is None:
        return True
    return None if member.replica.position()[:2] <= place else False


def forget_unannounced(member: Member) -> None:
    """For a Core: if the log that it followed, and has sealed, does not announce the snapshot under its state, the snapshot
    is forgotten. The state stays, since it is of that log; another snapshot is due."""
    if announcement_holds(member) is False:
        with member.replica.transaction() as transaction:
            forget_snapshot(transaction)
            await_announcement(transaction, None, b"")


def give_snapshot_up(member: Member) -> None:
    """The believed log does not announce the snapshot under this state: it is named, not taken again, and everything is
    dropped."""
    base = read_base(member.replica)
    member.notices.put(
        Notice.SNAPSHOT_DAMAGED, "the snapshot that was restored is not one that the log announces"
    )
    with member.replica.transaction() as transaction:
        if base is not None:
            call_bad(transaction, base)
        branch = list(_all_kept(member))
        reoffer(member, branch)
        transaction.wipe()
        for entry in branch:
            transaction.drop_entry(entry.epoch, entry.sequence)
        set_base(transaction, None)
        forget_snapshot(transaction)
        await_announcement(transaction, None, b"")
    member.mend()


def _load(member: Member, state: _Restore) -> Flow[bool]:
    """Loads what is missing. False if the snapshot turned out wrong; True if another process of this home went on as well,
    and the state has to be read again."""
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
                transaction.load(content)  # §12.2-3
            except CryptoError as error:
                raise BlobDamaged(f"part {number} of a snapshot cannot be used: {error}") from error
            transaction.meta_set(
                META_RESTORE, _encoder.encode(msgspec.structs.replace(state, next_part=number + 1))
            )
        done += part.length
        yield Progress(WHAT, done, manifest.length)
    return _finish(member, state, manifest)


def _finish(member: Member, state: _Restore, manifest: Manifest) -> bool:
    announced, parts, model, ends = state.announced, len(manifest.parts), manifest.model, manifest.ends
    with member.replica.transaction() as transaction:
        kept = transaction.meta_get(META_RESTORE)
        if kept is None or _decoder.decode(kept) != msgspec.structs.replace(state, next_part=parts):
            return True
        if transaction.digest().to_bytes() != announced.digest:  # §12.2-4
            member.notices.put(Notice.SNAPSHOT_DAMAGED, "a snapshot does not hold the state that it states")
            transaction.wipe()
            transaction.meta_set(META_RESTORE, None)
            set_base(transaction, None)
            forget_snapshot(transaction)
            call_bad(transaction, announced)  # §12.2-8
            return False
        transaction.set_position(announced.position)
        transaction.meta_set(META_MODEL, model)
        set_base(transaction, announced)
        set_ends(transaction, ends)
        if state.slot is not None:
            set_snapshot(transaction, announced, state.slot)
        if state.slot is not None and state.entry is not None:
            await_announcement(transaction, state.slot, state.entry)
        transaction.meta_set(META_RESTORE, _encoder.encode(msgspec.structs.replace(state, loaded=True)))
    return True


def _finish_reoffer(member: Member) -> None:
    """Offers again what the given-up history had, then drops it."""
    kept = member.replica.meta_get(META_RESTORE)
    if kept is None:
        return
    state = _decoder.decode(kept)
    branch = list(_all_kept(member)) if state.abandons_log else []
    if branch:
        reoffer(member, branch, unless_done=True)  # §12.2-6
    with member.replica.transaction() as transaction:
        if transaction.meta_get(META_RESTORE) != kept:
            return  # another process of this home was faster, and keeps what it has read since
        for entry in branch:
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


def _state(member: Member) -> _Restore | None:
    kept = member.replica.meta_get(META_RESTORE)
    return _decoder.decode(kept) if kept else None
