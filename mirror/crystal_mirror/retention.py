"""Retention: what the Core lets the relay delete, and when. First it is published, then it is deleted, never the other way.

    mirror slots     below the floor: under the newest snapshots that are kept, and before the last slot that each active reader
                     has told of. Who has told of nothing new for 30 days has no vote; nor has anybody 6 days after a forget
    conversations    what was acknowledged, and durable, at least 24 hours ago
    snapshot parts   of snapshots before the newest: condemned 24 hours after it was announced, at once if they still hold what
                     was forgotten
    other blobs      that nothing refers to, seen so for 30 days; for 5, if something was forgotten

A time here is the Core's own clock, and a wrong one only makes a slow reader take a snapshot, or keeps things too long. A floor
and a condemned name stand in the mirror (``decrees.py``) before the relay is asked; asking is idempotent and noted only when it
was answered. Nobody puts anything back below a floor: what the relay deletes late is never something that came back.
"""

from collections.abc import Iterable

import msgspec

from crystal_mirror.base import (
    Place,
    first_position,
    forgotten_at,
    newest_snapshot,
    published_floor,
    snapshot_slot,
)
from crystal_mirror.batch import CONDEMNED_MAX, Announced
from crystal_mirror.blobs import BlobDamaged
from crystal_mirror.cursors import seen_cursors
from crystal_mirror.decrees import decree
from crystal_mirror.filerefs import referenced
from crystal_mirror.member import Member
from crystal_mirror.requests import Condemn, Flow, List, Listing, StoreFailure
from crystal_mirror.snapshots import is_ready, is_whole, read_manifest
from crystal_mirror.types import EntryState

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
LOOK_MS = HOUR_MS
"""How often retention looks, by the Core's clock."""
READER_AWAY_MS = 30 * DAY_MS
APPLIED_MS = DAY_MS
SUPERSEDED_MS = DAY_MS
UNREFERENCED_MS = 30 * DAY_MS
FORGOTTEN_SNAPSHOT_MS = 3 * DAY_MS
"""After a forget, when a snapshot without it is made for its sake alone."""
FORGOTTEN_FLOOR_MS = 6 * DAY_MS
"""After a forget, when the floor rises over slow readers."""
FORGOTTEN_BLOBS_MS = 5 * DAY_MS
"""After a forget, how long a blob may be without anything that refers to it: it may be part of a snapshot of another Core."""
FLOOR_STEP = 64
"""Slots by which a floor has to rise to be worth an entry, a forget apart."""
SNAPSHOT_LOG_BYTES_MIN = 8 * 1024 * 1024
SNAPSHOT_LOG_SHARE = 3
"""A new snapshot is due when the log since the last one is larger than this fraction of it, and than the minimum."""
CONDEMNED_AT_ONCE = 500
LIST_PAGE = 1000
META = "retention"
_LAST_SLOT = 10**16 - 1


class _Acked(msgspec.Struct, array_like=True):
    """An ack, and when it was first seen here; and an older one, which is what may go when its time has come."""

    older: int
    older_at: int
    newer: int
    newer_at: int
    gone: int


class _Reader(msgspec.Struct, array_like=True):
    epoch: int
    sequence: int
    since: int


class _KeptSnapshot(msgspec.Struct, array_like=True):
    announced: Announced
    slot: Place
    names: list[bytes]
    since: int


class _State(msgspec.Struct, array_like=True):
    looked_at: int = 0
    readers: dict[str, _Reader] = {}
    acked: dict[str, _Acked] = {}
    snapshots: list[_KeptSnapshot] = []
    floor_asked: tuple[int, int] = (0, 0)
    forget: tuple[int, int, int] | None = None
    """Where the newest forget stands that is still in reach, and when it was first seen."""
    covered: tuple[int, int] = (0, 0)
    """The newest forget of which nothing is left in reach."""
    condemned: list[bytes] = []
    """To be asked for, once they are published."""
    unreferenced: dict[bytes, int] = {}
    swept_at: int = 0
    lost: bool = False
    """The relay does not have the newest snapshot."""
    checked_at: int = 0
    """When that was last looked at."""
    size: int = 0
    """Bytes of the newest snapshot."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_State)


def retain(member: Member, now_ms: int, *, force: bool = False) -> Flow[bool]:
    """One look; at most one an hour, unless ``force``, which also lets no waiting time count. Leaves at most one decree, for
    ``publish``, and asks the relay for what was published before. Returns whether it looked.

    Only for a Core whose log is published.
    """
    state = _read(member)
    if not force and abs(now_ms - state.looked_at) < LOOK_MS:
        return False
    if now_ms == 0 or member.replica.kept(EntryState.UNSENT):
        return False
    yield from _note_snapshot(member, state, now_ms)
    _note_readers(member, state, now_ms)
    _note_forget(member, state, now_ms)
    try:
        yield from _ask(member, state)
        yield from _expire_conversations(member, state, now_ms, force)
    except StoreFailure as failure:
        if failure.exit_code != StoreFailure.exit_code:
            raise
        # As many deletions as may be are under way there: the next look asks for the rest, and the round goes on. If the relay
        # is away, what follows says so.
    position = member.replica.position()
    condemned = _superseded(member, state, now_ms, force)
    if not condemned:
        condemned = yield from _sweep(member, state, now_ms, force)
    floor = _floor(member, state, now_ms, force)
    state.condemned += condemned
    state.looked_at = now_ms
    _write(member, state)
    if condemned or floor:
        decree(member, floor=floor, condemned=condemned, expected=position)
    return True


def snapshot_due(member: Member, now_ms: int) -> str | None:
    """Why a snapshot should be made now, in words; None if none should. For a Core."""
    if not member.is_core or is_ready(member) or now_ms == 0:
        return None
    state = _read(member)
    newest = newest_snapshot(member.replica)
    start = first_position(member.replica) if newest is None else newest.position
    size = member.replica.kept_bytes(start.epoch, start.sequence)
    if state.lost:
        return "the relay lost the newest one"
    late = state.forget is not None and now_ms - state.forget[2] >= FORGOTTEN_SNAPSHOT_MS
    if late and state.forget and (newest is None or (newest.epoch, newest.sequence) <= state.forget[:2]):
        return "something was forgotten"
    if size >= max(SNAPSHOT_LOG_BYTES_MIN, state.size // SNAPSHOT_LOG_SHARE if newest else 0):
        return "the log has grown"
    return None


def doubt_relay(member: Member) -> None:
    """The relay has lost something: looks at the next opportunity whether it still has the newest snapshot."""
    state = _read(member)
    state.looked_at = state.checked_at = 0
    _write(member, state)


def forget_in_reach(member: Member) -> Place | None:
    """Where the newest forget stands whose text may still be on the relay; None if there is none, as far as the Core knows."""
    state = _read(member)
    return state.forget[:2] if state.forget else None


def _note_snapshot(member: Member, state: _State, now_ms: int) -> Flow[None]:
    newest, slot = newest_snapshot(member.replica), snapshot_slot(member.replica)
    if newest is None or slot is None:
        return
    known = bool(state.snapshots) and state.snapshots[-1].announced == newest
    if not known or state.lost or abs(now_ms - state.checked_at) >= DAY_MS:
        state.lost = not (yield from is_whole(member, newest))
        state.checked_at = now_ms
    if state.lost or known:
        return
    try:
        manifest = yield from read_manifest(member, newest)
    except BlobDamaged:
        state.lost = True
        return
    names = [member.secret.blob_name(part.content, part.turn) for part in manifest.parts]
    names.append(member.secret.blob_name(newest.manifest, newest.turn))
    state.size = manifest.length
    state.snapshots.append(_KeptSnapshot(newest, slot, names, now_ms))


def _note_readers(member: Member, state: _State, now_ms: int) -> None:
    """Since when each reader has told of the place that it tells of."""
    readers: dict[str, _Reader] = {}
    for cursor in seen_cursors(member):
        if cursor.device == member.device_id or not member.log.is_active(cursor.device):
            continue
        name = cursor.device.hex()
        known = state.readers.get(name)
        same = known is not None and (known.epoch, known.sequence) == (cursor.epoch, cursor.sequence)
        at_the_end = (cursor.epoch, cursor.sequence) >= member.replica.position()[:2]
        since = known.since if known is not None and same and not at_the_end else now_ms
        # A clock that was set back must not keep a reader's vote for ever.
        readers[name] = _Reader(cursor.epoch, cursor.sequence, min(since, now_ms))
    state.readers = readers


def _note_forget(member: Member, state: _State, now_ms: int) -> None:
    at = forgotten_at(member.replica)
    position = member.replica.position()
    if state.looked_at == 0 and position.epoch > 1:
        # What an earlier Core had forgotten, and left to be done, is not known here: as if it were now.
        at = max(at or (0, 0), (position.epoch, position.sequence - 1))
    if state.forget is not None:
        *place, since = state.forget
        oldest = min((kept.announced.position[:2] for kept in state.snapshots), default=(0, 0))
        reach = (place[0], place[1])
        lone = any(seen <= since for seen in state.unreferenced.values())
        if (
            state.snapshots
            and oldest > reach
            and state.floor_asked > reach
            and not state.condemned
            and not lone
        ):
            state.covered = max(state.covered, reach)
            state.forget = None
        elif at is not None and at > reach and now_ms - since < FORGOTTEN_SNAPSHOT_MS:
            state.forget = (*at, min(since, now_ms))  # one snapshot for all that were forgotten meanwhile
    if state.forget is None and at is not None and at > state.covered:
        state.forget = (*at, now_ms)


def _floor(member: Member, state: _State, now_ms: int, force: bool) -> Place | None:
    """The floor to publish now, if it is worth it."""
    newest = newest_snapshot(member.replica)
    if newest is None or state.lost or not state.snapshots or state.snapshots[-1].announced != newest:
        return None
    forgotten = state.forget is not None and newest.position[:2] > state.forget[:2]
    late = forgotten and state.forget is not None and now_ms - state.forget[2] >= FORGOTTEN_FLOOR_MS
    candidates = [min(kept.announced.position[:2] for kept in state.snapshots)]
    candidates.append(_last_slot_before(member, member.replica.position()[:2]))
    if not (late or force):
        candidates += [
            _last_slot_before(member, (reader.epoch, reader.sequence))
            for reader in state.readers.values()
            if now_ms - reader.since < READER_AWAY_MS
        ]
    floor = min(candidates)
    published = published_floor(member.replica)
    if floor <= published:
        return None
    worth = floor[0] > published[0] or floor[1] - published[1] >= FLOOR_STEP or forgotten or force
    return floor if worth else None


def _last_slot_before(member: Member, place: Place) -> Place:
    """The slot of the last entry that who stands at this place has applied: it looks there when it comes back."""
    epoch, sequence = place
    if sequence > 0:
        return epoch, sequence - 1
    for earlier in range(epoch - 1, 0, -1):
        last = member.replica.last_entry(earlier)
        if last is not None:
            return earlier, last.sequence
    return first_position(member.replica)[:2]


def _ask(member: Member, state: _State) -> Flow[None]:
    """Asks the relay to delete what was published: it is in the mirror that others read, since nothing is unsent."""
    floor = published_floor(member.replica)
    if floor > state.floor_asked:
        for epoch in range(max(1, state.floor_asked[0]), floor[0] + 1):
            last = floor[1] - 1 if epoch == floor[0] else _LAST_SLOT
            if last >= 0:
                yield Condemn(prefix=member.keys.epoch_prefix(epoch), through=member.keys.mirror(epoch, last))
        state.floor_asked = floor
        _write(member, state)
    # A crash may have come before the decree: what the mirror does not say is not asked for.
    state.condemned = [name for name in state.condemned if member.replica.is_condemned(name)]
    while state.condemned:
        some = state.condemned[:CONDEMNED_AT_ONCE]
        yield Condemn(keys=tuple(member.keys.blob(name) for name in some))
        state.condemned = state.condemned[len(some) :]
        _write(member, state)


def _expire_conversations(member: Member, state: _State, now_ms: int, force: bool) -> Flow[None]:
    wait = 0 if force else APPLIED_MS
    for device, incarnation, ack in member.replica.acks():
        name = f"{device.hex()}.{incarnation.hex()}"
        seen = state.acked.setdefault(name, _Acked(-1, now_ms, ack, now_ms, -1))
        if seen.newer_at > now_ms or seen.older_at > now_ms:
            seen.newer_at = min(seen.newer_at, now_ms)
            seen.older_at = min(seen.older_at, now_ms)
        if now_ms - seen.newer_at >= wait and ack > seen.older:
            # What was acked a day ago may go; what is acked now, in a day.
            seen.older, seen.older_at = (ack if force else seen.newer), now_ms
            seen.newer, seen.newer_at = ack, now_ms
        if seen.older > seen.gone:
            prefix = member.keys.stream_prefix(device, incarnation)
            yield Condemn(prefix=prefix, through=member.keys.conversation(device, incarnation, seen.older))
            seen.gone = seen.older
            _write(member, state)


def _superseded(member: Member, state: _State, now_ms: int, force: bool) -> list[bytes]:
    """The parts of older snapshots that no kept one shares, when their time has come."""
    if len(state.snapshots) < 2 or state.lost:
        return []
    newest = state.snapshots[-1]
    forgotten = state.forget is not None and any(
        kept.announced.position[:2] <= state.forget[:2] for kept in state.snapshots[:-1]
    )
    due = forgotten and newest.announced.position[:2] > (state.forget or (0, 0))[:2]
    if not (due or force or now_ms - newest.since >= SUPERSEDED_MS or newest.since > now_ms):
        return []
    needed = set(newest.names) | set(referenced(member.replica, member.secret))
    names = sorted({name for kept in state.snapshots[:-1] for name in kept.names} - needed)
    if len(names) > CONDEMNED_MAX:
        return names[:CONDEMNED_MAX]  # the rest at the next look
    state.snapshots = [newest]
    return [name for name in names if not member.replica.is_condemned(name)]


def _sweep(member: Member, state: _State, now_ms: int, force: bool) -> Flow[list[bytes]]:
    """Blobs that nothing refers to, once they have been seen so for 30 days."""
    if now_ms - state.swept_at < DAY_MS and not force:
        return []
    state.swept_at = now_ms
    needed = {name for kept in state.snapshots for name in kept.names}
    needed |= set(referenced(member.replica, member.secret))
    wait = UNREFERENCED_MS if state.forget is None else FORGOTTEN_BLOBS_MS
    lone: dict[bytes, int] = {}
    due: list[bytes] = []
    for name in (yield from _listed_blobs(member)):
        if name in needed or member.replica.is_condemned(name):
            continue
        since = min(state.unreferenced.get(name, now_ms), now_ms)
        lone[name] = since
        if now_ms - since >= wait and len(due) < CONDEMNED_MAX:
            due.append(name)
    state.unreferenced = {name: since for name, since in lone.items() if name not in due}
    return due


def _listed_blobs(member: Member) -> Flow[Iterable[bytes]]:
    prefix = member.keys.blob_prefix
    names: list[bytes] = []
    after = ""
    while True:
        page: Listing = yield List(prefix, after, LIST_PAGE)
        keys = page.after(after)
        for key in keys:
            try:
                name = bytes.fromhex(key[len(prefix) :])
            except ValueError:
                continue
            if member.keys.blob(name) == key:
                names.append(name)
        if not page.more or not keys:
            return names
        after = keys[-1]


def _read(member: Member) -> _State:
    kept = member.journal.meta_get(META)
    return _decoder.decode(kept) if kept else _State()


def _write(member: Member, state: _State) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META, _encoder.encode(state))
