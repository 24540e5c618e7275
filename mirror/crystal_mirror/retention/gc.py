"""Garbage collection: what the Core lets the relay delete, and when. It is published first and deleted afterwards, never
before.

    mirror slots     below the floor: under the newest snapshots that are kept, and before the last slot that each active
                     reader has reported. A reader that reports nothing new for 30 days has no vote; nor has any reader
                     6 days after a forget
    conversations    acknowledged, and durable, at least 24 hours ago
    snapshot parts   of older snapshots: condemned 24 hours after the newest was announced, at once if they still hold
                     what was forgotten
    packs            below the floor, at once
    other blobs      without any reference, seen so for 30 days; for 5, if something was forgotten

Times are by the Core's own clock. A wrong clock only makes a slow reader take a snapshot, or keeps things too long. A floor
and a condemned name are in the mirror before the relay is asked to delete; asking is idempotent, and recorded only when it
was answered. Nothing is put back below a floor: what the relay deletes late never comes back.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from crystal_crypto.errors import UNDECODABLE, CryptoError
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.entries.batches import CONDEMNED_MAX, Announced, Pack
from crystal_mirror.entries.control_state import (
    Place,
    first_position,
    newest_snapshot,
    packs_of,
    published_floor,
    read_base,
    snapshot_slot,
)
from crystal_mirror.errors import TransactionStale
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import blob_name
from crystal_mirror.ports import ReplicaView
from crystal_mirror.requests import Condemn, Flow, List, Listing, StoreFailure
from crystal_mirror.retention.forgets import (
    DAY_MS,
    FORGOTTEN_SNAPSHOT_MS,
    HOUR_MS,
    PendingForget,
    cover,
    note_forgets,
    pending_forgets,
)
from crystal_mirror.snapshots.blobs import BlobDamaged, name_of
from crystal_mirror.snapshots.creation import damaged_snapshot, is_ready, is_whole, read_manifest
from crystal_mirror.snapshots.packs import dead_packs, make_packs, pack_name
from crystal_mirror.types import EntryState

META = "retention"
LOOK_MS = HOUR_MS
"""Interval of garbage collection, by the Core's clock."""
READER_AWAY_MS = 30 * DAY_MS
APPLIED_MS = DAY_MS
SUPERSEDED_MS = DAY_MS
UNREFERENCED_MS = 30 * DAY_MS
FORGOTTEN_FLOOR_MS = 6 * DAY_MS
"""Time after a forget at which the floor rises over slow readers."""
FORGOTTEN_BLOBS_MS = 5 * DAY_MS
"""Time after a forget for which a blob may be without any reference: it may be part of another Core's snapshot."""
FLOOR_STEP = 64
"""Slots by which a floor has to rise to be worth an entry, except after a forget."""
SNAPSHOT_LOG_BYTES_MIN = 8 * 1024 * 1024
SNAPSHOT_LOG_SHARE = 3
"""A snapshot is due when the log since the last one is larger than this fraction of it, and than the minimum."""
CONDEMNED_AT_ONCE = 500
LIST_PAGE = 1000
_LAST_SLOT = 10**16 - 1


class AckedStream(msgspec.Struct, array_like=True):
    """An ack and when it was first seen; and an older one, which may be deleted when its time has come."""

    older: int
    older_at: int
    newer: int
    newer_at: int
    gone: int


class ReaderPosition(msgspec.Struct, array_like=True):
    """Where a reader last reported to be, and since when it has reported the same."""

    epoch: int
    sequence: int
    since: int


class KeptSnapshot(msgspec.Struct, array_like=True):
    """A snapshot that was announced at ``slot``, the names of its blobs, and when it was first seen."""

    announced: Announced
    slot: Place
    names: list[bytes]
    since: int


class RetentionState(msgspec.Struct, array_like=True):
    """What garbage collection remembers between passes, in the journal. If it is lost, deletions only wait longer. Lists
    begin with what is oldest; times are by the Core's own clock, in milliseconds."""

    looked_at: int = 0
    readers: dict[str, ReaderPosition] = {}
    acked: dict[str, AckedStream] = {}
    snapshots: list[KeptSnapshot] = []
    floor_asked: tuple[int, int] = (0, 0)
    condemned: list[bytes] = []
    """Names that the relay is still to be asked to delete, once they are published."""
    unreferenced: dict[bytes, int] = {}
    """Blobs without any reference, and since when they were seen so."""
    swept_at: int = 0
    lost: bool = False
    """The relay does not have the newest snapshot."""
    checked_at: int = 0
    """When ``lost`` was last checked."""
    size: int = 0
    """Bytes of the newest snapshot."""
    checked: bytes = b""
    """The snapshot for which it was checked: the hash of its manifest."""
    hurried: set[bytes] = set()
    """Unreferenced blobs that were so while a forget was pending: they may hold what was forgotten."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RetentionState)


def read_state(member: Member) -> RetentionState:
    """A fresh value each time; changes count once written by ``write_state``."""
    kept = member.journal.meta_get(META)
    try:
        return _decoder.decode(kept) if kept else RetentionState()
    except UNDECODABLE:  # another version's
        return RetentionState()


def write_state(member: Member, state: RetentionState) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META, _encoder.encode(state))


def retain(member: Member, now_ms: int, *, force: bool = False) -> Flow[bool]:
    """One pass of garbage collection; at most one an hour, unless ``force``, which also ignores all waiting times. Leaves
    at most one control entry for ``publish``, and asks the relay to delete what was published before. Returns whether it
    ran.

    Only for a Core whose log is published.
    """
    state = read_state(member)
    if not force and abs(now_ms - state.looked_at) < LOOK_MS:
        return False
    if now_ms == 0 or member.replica.kept(EntryState.UNSENT):
        return False
    # What another process orders or announces from here on makes the control entry stale.
    position = member.replica.position()
    yield from _note_snapshot(member, state, now_ms)
    _note_readers(member, state, now_ms)
    forgets = _forgets_left(member, state, note_forgets(member, now_ms))
    try:
        yield from _ask(member, state)
        yield from _expire_conversations(member, state, now_ms, force)
    except StoreFailure as failure:
        if failure.exit_code != StoreFailure.exit_code:
            raise
        # The relay has as many deletions under way as it takes: the next pass asks for the rest, and the round goes on. If
        # the relay is away, the following requests fail.
    condemned = _superseded(member, state, forgets, now_ms, force)
    if not condemned:
        condemned = yield from _sweep(member, state, forgets, now_ms, force)
    packs, dead = yield from _packs(member, CONDEMNED_MAX - len(condemned))
    condemned += dead
    floor = next_floor(member, state, forgets, now_ms, force=force)
    state.condemned += condemned
    state.looked_at = now_ms
    write_state(member, state)
    if condemned or floor or packs is not None:
        write_control_entry(member, floor=floor, condemned=condemned, packs=packs, expected=position)
    return True


def snapshot_due(member: Member, now_ms: int) -> str | None:
    """Why a snapshot should be made now, in words; None if none should. For a Core."""
    if not member.is_core or is_ready(member) or now_ms == 0:
        return None
    state = read_state(member)
    newest = newest_snapshot(member.replica)
    start = first_position(member.replica) if newest is None else newest.position
    size = member.replica.kept_bytes(start.epoch, start.sequence)
    if state.lost and (newest is None or newest.manifest == state.checked):  # one that came since is not lost
        return "the relay lost the newest one"
    if newest is not None and damaged_snapshot(member) == newest.manifest:
        return "the relay's copy of the newest one is damaged"
    if newest is None and read_base(member.replica) is not None:
        return "the log announces none any more, and does not begin at its beginning"
    covered = (newest.epoch, newest.sequence) if newest is not None else (0, 0)
    if any(
        now_ms - each.since >= FORGOTTEN_SNAPSHOT_MS and each.place >= covered  # §12.3-6
        for each in pending_forgets(member)
    ):
        return "something was forgotten"
    if size >= max(SNAPSHOT_LOG_BYTES_MIN, state.size // SNAPSHOT_LOG_SHARE if newest else 0):
        return "the log has grown"
    return None


def doubt_relay(member: Member) -> None:
    """The relay has lost something: the next pass checks whether it still has the newest snapshot."""
    state = read_state(member)
    state.looked_at = state.checked_at = 0
    write_state(member, state)


def drop_below_base(member: Member) -> None:
    """The log below the base is spoiled on the relay: raises the floor over it, whatever reader is still there, and the
    next pass asks for its deletion. What is not published yet comes first; then the next full check does this."""
    floor = first_position(member.replica)[:2]
    if floor > published_floor(member.replica):
        with suppress(TransactionStale):
            write_control_entry(member, floor=floor)
    doubt_relay(member)


def _note_snapshot(member: Member, state: RetentionState, now_ms: int) -> Flow[None]:
    newest, slot = newest_snapshot(member.replica), snapshot_slot(member.replica)
    if newest is None or slot is None:
        return
    known = bool(state.snapshots) and state.snapshots[-1].announced == newest
    if not known or state.lost or abs(now_ms - state.checked_at) >= DAY_MS:
        state.lost, state.checked = not (yield from is_whole(member, newest)), newest.manifest
        state.checked_at = now_ms
    if state.lost or known:
        return
    try:
        manifest = yield from read_manifest(member, newest)
    except (BlobDamaged, CryptoError):
        state.lost = True
        return
    names = [name_of(member, part) for part in manifest.parts]
    names.append(blob_name(member.secret, newest.manifest, newest.named))
    state.size = manifest.length
    state.snapshots.append(KeptSnapshot(newest, slot, names, now_ms))


def _note_readers(member: Member, state: RetentionState, now_ms: int) -> None:
    """Notes since when each reader has reported its position."""
    readers: dict[str, ReaderPosition] = {}
    for cursor in seen_cursors(member):
        if cursor.device == member.device_id or not member.log.is_active(cursor.device):
            continue
        name = cursor.device.hex()
        known = state.readers.get(name)
        same = known is not None and (known.epoch, known.sequence) == (cursor.epoch, cursor.sequence)
        at_the_end = (cursor.epoch, cursor.sequence) >= member.replica.position()[:2]
        since = known.since if known is not None and same and not at_the_end else now_ms
        # A clock that was set back must not keep a reader's vote forever.
        readers[name] = ReaderPosition(cursor.epoch, cursor.sequence, min(since, now_ms))
    state.readers = readers


def _forgets_left(
    member: Member, state: RetentionState, forgets: tuple[PendingForget, ...]
) -> tuple[PendingForget, ...]:
    """The forgets of which something is still in reach; covers the others."""
    oldest = min((kept.announced.position[:2] for kept in state.snapshots), default=(0, 0))
    if not state.snapshots or state.condemned:
        return forgets
    gone = [
        each
        for each in forgets
        if each.place < min(oldest, state.floor_asked)
        and not any(seen <= each.since for seen in state.unreferenced.values())
        and not any((pack.epoch, pack.first) <= each.place for pack in packs_of(member.replica))
    ]
    if gone:
        cover(member, max(each.place for each in gone))
    return tuple(each for each in forgets if each not in gone)


def next_floor(
    member: Member, state: RetentionState, forgets: tuple[PendingForget, ...], now_ms: int, *, force: bool
) -> Place | None:
    """The floor to publish now, if it is worth an entry."""
    newest = newest_snapshot(member.replica)
    if newest is None or state.lost or not state.snapshots or state.snapshots[-1].announced != newest:
        return None
    without = [each for each in forgets if each.place < newest.position[:2]]
    late = any(now_ms - each.since >= FORGOTTEN_FLOOR_MS for each in without)  # §12.3-2
    candidates = [min(kept.announced.position[:2] for kept in state.snapshots)]  # §12.3-2
    candidates.append(last_slot_before(member, member.replica.position()[:2]))
    if not (late or force):
        candidates += [
            last_slot_before(member, (reader.epoch, reader.sequence))
            for reader in state.readers.values()
            if now_ms - reader.since < READER_AWAY_MS  # §12.3-2
        ]
    floor = min(candidates)
    published = published_floor(member.replica)
    if floor <= published:
        return None
    worth = floor[0] > published[0] or floor[1] - published[1] >= FLOOR_STEP or bool(without) or force
    return floor if worth else None


def last_slot_before(member: Member, place: Place) -> Place:
    """The slot of the last entry that a reader at this place has applied, which it checks when it comes back.

    A reader that reports a place that was never written has applied no more than there is.
    """
    epoch, sequence = min(place, member.replica.position()[:2])  # §15-4
    if sequence > 0:
        return epoch, sequence - 1
    for earlier in range(epoch - 1, 0, -1):
        last = member.replica.last_entry(earlier)
        if last is not None:
            return earlier, last.sequence
    return first_position(member.replica)[:2]


def _ask(member: Member, state: RetentionState) -> Flow[None]:
    """Asks the relay to delete what was published: it is in the mirror that others read, since nothing is unsent."""
    floor = published_floor(member.replica)
    if floor > state.floor_asked:
        for epoch in range(max(1, state.floor_asked[0]), floor[0] + 1):
            last = floor[1] - 1 if epoch == floor[0] else _LAST_SLOT
            if last >= 0:
                # §11.14-6
                yield Condemn(prefix=member.keys.epoch_prefix(epoch), through=member.keys.mirror(epoch, last))
        state.floor_asked = floor
        write_state(member, state)
    # §12.3-1
    # After a crash before the control entry the mirror does not condemn these names: they are not asked for.
    state.condemned = [name for name in state.condemned if member.replica.is_condemned(name)]  # §11.14-6
    while state.condemned:
        some = state.condemned[:CONDEMNED_AT_ONCE]
        yield Condemn(keys=tuple(member.keys.blob(name) for name in some))
        state.condemned = state.condemned[len(some) :]
        write_state(member, state)


def _expire_conversations(member: Member, state: RetentionState, now_ms: int, force: bool) -> Flow[None]:
    wait = 0 if force else APPLIED_MS
    for device, incarnation, ack in member.replica.acks():
        name = f"{device.hex()}.{incarnation.hex()}"
        seen = state.acked.setdefault(name, AckedStream(-1, now_ms, ack, now_ms, -1))
        if seen.newer_at > now_ms or seen.older_at > now_ms:
            seen.newer_at = min(seen.newer_at, now_ms)
            seen.older_at = min(seen.older_at, now_ms)
        if now_ms - seen.newer_at >= wait and ack > seen.older:  # §12.3-3
            # What was acked a day ago may be deleted now; what is acked now, in a day.
            seen.older, seen.older_at = (ack if force else seen.newer), now_ms
            seen.newer, seen.newer_at = ack, now_ms
        if seen.older > seen.gone:
            prefix = member.keys.stream_prefix(device, incarnation)
            # §11.14-6
            yield Condemn(prefix=prefix, through=member.keys.conversation(device, incarnation, seen.older))
            seen.gone = seen.older
            write_state(member, state)


def _superseded(
    member: Member, state: RetentionState, forgets: tuple[PendingForget, ...], now_ms: int, force: bool
) -> list[bytes]:
    """The parts of older snapshots that no kept snapshot shares, when their time has come. Until then they are remembered."""
    if len(state.snapshots) < 2 or state.lost:
        return []
    newest, oldest = state.snapshots[-1], state.snapshots[0]
    place = newest.announced.position[:2]
    forgotten = any(oldest.announced.position[:2] <= each.place < place for each in forgets)
    if not (forgotten or force or now_ms - newest.since >= SUPERSEDED_MS or newest.since > now_ms):  # §12.3-4
        return []
    needed = set(newest.names) | blobs_in_use(member)
    names = sorted({name for kept in state.snapshots[:-1] for name in kept.names} - needed)
    left = [name for name in names if not member.replica.is_condemned(name)]
    if not left:
        state.snapshots = [newest]
    return left[:CONDEMNED_MAX]


def _sweep(
    member: Member, state: RetentionState, forgets: tuple[PendingForget, ...], now_ms: int, force: bool
) -> Flow[list[bytes]]:
    """Blobs without any reference, once they have been seen so long enough.

    Blobs there when a Core first looks were left by the Core before it: they may hold all that was forgotten since.
    Condemned names that the relay still lists are asked for again: the device that condemned them may have died before it
    asked. What was unreferenced while a forget was pending goes soon, even if that forget is covered by then: it may be
    part of a file that held the text.
    """
    if now_ms - state.swept_at < DAY_MS and not force:
        return []
    needed = {name for kept in state.snapshots for name in kept.names} | blobs_in_use(member)
    first_seen = min((each.since for each in forgets), default=now_ms) if not state.swept_at else now_ms
    lone: dict[bytes, int] = {}
    due: list[bytes] = []
    again: list[bytes] = []
    for name in (yield from listed_blobs(member)):
        if member.replica.is_condemned(name):
            again.append(name)
            continue
        if name in needed:
            continue
        since = min(state.unreferenced.get(name, first_seen), now_ms)
        lone[name] = since
        if forgets:
            state.hurried.add(name)
        wait = FORGOTTEN_BLOBS_MS if name in state.hurried else UNREFERENCED_MS  # §12.3-4
        if now_ms - since >= wait and len(due) < CONDEMNED_MAX:
            due.append(name)
    state.unreferenced = {name: since for name, since in lone.items() if name not in due}
    state.hurried &= state.unreferenced.keys()
    state.swept_at = now_ms
    state.condemned += sorted(set(again) - set(state.condemned))
    return due


def _packs(member: Member, room: int) -> Flow[tuple[tuple[Pack, ...] | None, list[bytes]]]:
    """The new list of packs for a control entry, None if unchanged, and the names of packs that are of no use any more."""
    dead = dead_packs(member)[:room]
    packs = yield from make_packs(member)
    if dead:
        packs = tuple(pack for pack in packs or packs_of(member.replica) if pack not in dead)
    return packs, [pack_name(member, pack) for pack in dead]


def blobs_in_use(member: Member) -> set[bytes]:
    """The names of the blobs of files and packs."""
    packs = {pack_name(member, pack) for pack in packs_of(member.replica)}
    return packs | set(referenced(member.replica, member.secret))


def referenced(view: ReplicaView, secret: VaultSecret) -> Iterator[bytes]:
    """The names of the blobs of all living files; one that several files share comes several times."""
    for row in view.files():
        if not row.gone:  # §14-7
            for part in row.parts:
                yield blob_name(secret, part.content, part.named)


def listed_blobs(member: Member) -> Flow[Iterable[bytes]]:
    """The names of all blobs that the relay lists."""
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
