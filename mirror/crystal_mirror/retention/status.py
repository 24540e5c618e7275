"""What retention has done and would do now, for a person: computed from what is kept, without a network. Changes nothing."""

from dataclasses import dataclass

from crystal_mirror.entries.control_state import Place, newest_snapshot, published_floor, read_base
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.retention.forgets import PendingForget, pending_forgets
from crystal_mirror.retention.gc import (
    READER_AWAY_MS,
    RetentionState,
    last_slot_before,
    next_floor,
    read_state,
    snapshot_due,
)


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """A device that reads the log. ``since``: when it first reported its current place. ``has_vote``: the log is kept for
    it. ``passed``: the floor is above it, so it will read a snapshot. ``holds``: it keeps the floor from rising now."""

    device: bytes
    place: Place
    since: int
    told_at: int
    has_vote: bool
    passed: bool
    holds: bool


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """A snapshot on the relay. ``slot``: where it is announced; ``since``: when the Core first saw that."""

    place: Place
    slot: Place
    since: int
    blobs: int


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """See the fields.

    ``floor``: the lowest slot that stays; ``floor_next``: the one that would be published now, None if none.
    ``kept_bytes``: of the log from the floor on. ``condemning``: names that the relay is still to be asked to delete.
    ``lone``: blobs without any reference, and ``lone_since`` when the first of them was seen so. ``acked``: streams of
    which something was acknowledged; ``expired``: those of which all of that was deleted. ``due``: why a snapshot is due,
    None if none is. ``announced``: the newest snapshot in the log if garbage collection has not seen it yet; ``snapshots``
    does not have that one.
    """

    position: Place
    floor: Place
    floor_next: Place | None
    kept_bytes: int
    snapshots: tuple[SnapshotStatus, ...]
    announced: Place | None
    snapshot_bytes: int
    snapshot_lost: bool
    readers: tuple[ReaderStatus, ...]
    forgets: tuple[PendingForget, ...]
    condemning: int
    lone: int
    lone_since: int
    acked: int
    expired: int
    looked_at: int
    due: str | None


def retention_status(member: Member, now_ms: int, *, force: bool = False) -> RetentionStatus:
    """For a Core; another device knows only the floor and the newest snapshot."""
    state = read_state(member)
    forgets = pending_forgets(member)
    floor = published_floor(member.replica)
    streams = [state.acked.get(f"{device.hex()}.{run.hex()}") for device, run, _ in member.replica.acks()]
    snapshots = tuple(
        SnapshotStatus(kept.announced.position[:2], kept.slot, kept.since, len(kept.names))
        for kept in state.snapshots
    )
    newest = newest_snapshot(member.replica)
    seen = newest is None or any(kept.place == newest.position[:2] for kept in snapshots)
    return RetentionStatus(
        position=member.replica.position()[:2],
        floor=floor,
        floor_next=next_floor(member, state, forgets, now_ms, force=force),
        kept_bytes=member.replica.kept_bytes(*floor),
        snapshots=snapshots,
        announced=None if newest is None or seen else newest.position[:2],
        snapshot_bytes=state.size,
        snapshot_lost=state.lost,
        readers=_readers(member, now_ms),
        forgets=forgets,
        condemning=len(state.condemned),
        lone=len(state.unreferenced),
        lone_since=min(state.unreferenced.values(), default=0),
        acked=len(streams),
        expired=sum(
            stream is not None and stream.gone >= ack
            for stream, (_, _, ack) in zip(streams, member.replica.acks(), strict=True)
        ),
        looked_at=state.looked_at,
        due=snapshot_due(member, now_ms),
    )


@dataclass(frozen=True, slots=True)
class RetentionSummary:
    """A summary for any device, at the price of a few small reads. ``snapshot``: the newest that the log announces;
    ``since``: when the Core first saw it, and ``size``: its bytes, 0 if this is not the Core; ``waits_for``: the readers
    that hold the floor down."""

    base: Place | None
    snapshot: Place | None
    since: int
    size: int
    floor: Place
    waits_for: tuple[ReaderStatus, ...]
    forgets: tuple[PendingForget, ...]


def retention_summary(member: Member, now_ms: int) -> RetentionSummary:
    base, newest = read_base(member.replica), newest_snapshot(member.replica)
    state = read_state(member) if member.is_core else RetentionState()
    return RetentionSummary(
        base=base.position[:2] if base is not None else None,
        snapshot=newest.position[:2] if newest is not None else None,
        since=state.snapshots[-1].since if state.snapshots else 0,
        size=state.size,
        floor=published_floor(member.replica),
        waits_for=tuple(reader for reader in _readers(member, now_ms) if reader.holds)
        if member.is_core
        else (),
        forgets=pending_forgets(member),
    )


def _readers(member: Member, now_ms: int) -> tuple[ReaderStatus, ...]:
    state = read_state(member)
    newest, floor = newest_snapshot(member.replica), published_floor(member.replica)
    limit = newest.position[:2] if newest is not None else (0, 0)
    found: list[ReaderStatus] = []
    for cursor in seen_cursors(member):
        if cursor.device == member.device_id or not member.log.is_active(cursor.device):
            continue
        place = (cursor.epoch, cursor.sequence)
        noted = state.readers.get(cursor.device.hex())
        since = noted.since if noted is not None and (noted.epoch, noted.sequence) == place else now_ms
        has_vote = now_ms - since < READER_AWAY_MS
        looks_at = last_slot_before(member, place)
        passed = place < floor
        holds = has_vote and not passed and looks_at < limit
        found.append(ReaderStatus(cursor.device, place, since, cursor.told_at, has_vote, passed, holds))
    return tuple(sorted(found, key=lambda each: each.place))
