"""OpenClaw's database of one agent, ``agents/<agent>/agent/openclaw-agent.sqlite``: its sessions are there since August 2026.

The table ``transcript_events`` holds the transcripts' lines, one a row, numbered within each session; large ones are compressed
since September 2026. Reading continues after the last number of each session. A session whose last number is lower than before
was rewritten and is read from its start: its messages keep their ids.

The database is read from one snapshot while its program may write, or, if it has no journal, as an immutable file; that it did
not change is checked afterwards.
"""

import errno
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import apsw
import msgspec

from crystal_core.sqlite_file import open_read_only
from crystal_crypto.compression import decompress_at_most
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_node.base.decoding import from_msgpack
from crystal_node.capture.line_reader import LINE_BYTES_MAX, PASS_BYTES_MAX, FileState

STORE_NAME = "openclaw-agent.sqlite"
JOURNAL_NAME = STORE_NAME + "-wal"
BUSY_MS = 2000
NAME_BYTES = 8
"""Bytes of the hash of a session's id, under which its last number is kept."""
READ_SECONDS_MAX = 30.0
"""Time limit of one pass: reading a foreign database might never end."""
_STEPS_LOOK = 100_000
_TRIES_MAX = 3
_NONE = (ValueError, TypeError, OverflowError)
"""Raised by values of unexpected types."""

_SESSIONS = """
WITH RECURSIVE found (id) AS (
    SELECT min(session_id) FROM transcript_events
    UNION ALL
    SELECT (SELECT min(session_id) FROM transcript_events WHERE session_id > id) FROM found WHERE id IS NOT NULL)
SELECT id, (SELECT max(seq) FROM transcript_events WHERE session_id = id) FROM found WHERE id IS NOT NULL
"""
"""Each session with its last number, by a few index look-ups each."""

Positions = dict[bytes, int]


@dataclass(frozen=True, slots=True)
class DatabaseStamp:
    """Size and times of the database's file and journal together, for ``FileState``."""

    size: int
    modified: int
    changed: int
    inode: int
    journal: bool


@dataclass(frozen=True, slots=True)
class DatabaseLine:
    """One line of one session. ``line`` is None for one over the limit or one that cannot be unpacked. Milliseconds."""

    session: str
    number: int
    line: bytes | None
    created_at: int


@dataclass
class DatabaseBatch:
    """What one pass read. ``more``: there is more to read."""

    headers: dict[str, bytes]
    events: list[DatabaseLine]
    state: FileState
    more: bool
    known_form: bool = True


def stamp_of(path: Path) -> DatabaseStamp:
    """The database's stamp. Raises OSError: it is missing, or no regular file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    try:
        journal = path.with_name(path.name + "-wal").lstat()
    except FileNotFoundError:
        return DatabaseStamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, journal=False)
    return DatabaseStamp(
        found.st_size + journal.st_size,
        max(found.st_mtime_ns, journal.st_mtime_ns),
        found.st_ctime_ns,  # the journal's changes when somebody only opens it
        found.st_ino,
        journal=journal.st_size > 0,
    )


def store_unchanged(path: Path, state: FileState | None) -> bool:
    """Whether database and journal are unchanged. Raises OSError."""
    if state is None:
        return False
    found = stamp_of(path)
    return (found.size, found.modified, found.changed, found.inode) == (
        state.size,
        state.modified,
        state.changed,
        state.inode,
    )


def read_store(path: Path, state: FileState | None) -> DatabaseBatch:
    """Reads a bounded part on from ``state``. Raises OSError: it cannot be read, or is written all the time."""
    before = state or FileState()
    positions = {} if before.offset == 0 else _decoded(before.memo)
    for _ in range(_TRIES_MAX):
        stamp = stamp_of(path)
        batch = DatabaseBatch({}, [], before, more=False)
        after = dict(positions)
        try:
            with closing(_opened(path, stamp)) as database, database:
                _read(database, after, batch)
        except apsw.SQLError as error:
            if not _of_unknown_form(error):
                raise _failure(path, error) from error
            batch.known_form = False
        except (apsw.Error, *_NONE) as error:
            raise _failure(path, error) from error
        if stamp.journal or stamp_of(path) == stamp:
            batch.state = _state(stamp, after, stepped_over=before.stepped_over)
            return batch
    raise OSError(errno.EAGAIN, "it was written all the time", str(path))


def skip_store(path: Path) -> FileState:
    """The state after everything in the database. Raises OSError."""
    stamp = stamp_of(path)
    sessions: list[tuple[str, int]] = []
    try:
        with closing(_opened(path, stamp)) as database, database:
            if _is_table(database):
                found = database.execute(_SESSIONS)
                sessions.extend((str(session), int(number)) for session, number in found)
    except apsw.SQLError as error:
        if not _of_unknown_form(error):
            raise _failure(path, error) from error
    except (apsw.Error, *_NONE) as error:
        raise _failure(path, error) from error
    positions = {_name(session): number for session, number in sessions}
    return _state(stamp, positions, stepped_over=True)


def _read(database: apsw.Connection, positions: Positions, batch: DatabaseBatch) -> None:
    if not _is_table(database):
        batch.known_form = False
        return
    columns = {row[1] for row in database.execute("PRAGMA table_info(transcript_events)")}
    packed = "event_zstd" if "event_zstd" in columns else "NULL"
    left = PASS_BYTES_MAX
    found = list(database.execute(_SESSIONS))
    present = {_name(str(session)) for session, _ in found}
    for gone in positions.keys() - present:
        del positions[gone]
    for session, last in found:
        name = _name(str(session))
        known = positions.get(name, -1)
        if last == known:
            continue
        start = known if last > known else -1
        for event in _events(database, packed, str(session), start):
            if event.session not in batch.headers:
                first = next(_events(database, packed, event.session, -1))
                batch.headers[event.session] = first.line or b""
            batch.events.append(event)
            positions[name] = event.number
            left -= len(event.line or b"") or 1
            if left <= 0:
                batch.more = True
                return


def _events(database: apsw.Connection, packed: str, session: str, behind: int) -> Iterator[DatabaseLine]:
    query = (
        "SELECT seq, CASE WHEN length(CAST(event_json AS BLOB)) <= ?3 THEN CAST(event_json AS BLOB) END,"  # noqa: S608  of two names
        f" CASE WHEN length({packed}) <= ?3 THEN {packed} END, created_at"
        " FROM transcript_events WHERE session_id = ?1 AND seq > ?2 ORDER BY seq"
    )
    for number, text, frame, created_at in database.execute(query, (session, behind, LINE_BYTES_MAX)):
        line = text if isinstance(text, bytes) else _unpacked(frame)
        yield DatabaseLine(session, int(number), line, int(created_at) if isinstance(created_at, int) else 0)


def _unpacked(frame: object) -> bytes | None:
    if not isinstance(frame, bytes):
        return None
    try:
        return decompress_at_most(frame, LINE_BYTES_MAX)
    except Malformed:
        return None


def _opened(path: Path, stamp: DatabaseStamp) -> apsw.Connection:
    """Opens it read-only; without a journal as an immutable file, so that no file is made beside it."""
    database = open_read_only(path, busy_milliseconds=BUSY_MS, immutable=not stamp.journal, trusted=False)
    deadline = time.monotonic() + READ_SECONDS_MAX
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_LOOK)
    return database


def _is_table(database: apsw.Connection) -> bool:
    """Whether the table exists and is no view, which may compute anything."""
    query = "SELECT 1 FROM sqlite_schema WHERE name = 'transcript_events' AND type = 'table'"
    return database.execute(query).fetchone() is not None


def _state(stamp: DatabaseStamp, positions: Positions, *, stepped_over: bool) -> FileState:
    return FileState(
        offset=stamp.size,
        size=stamp.size,
        modified=stamp.modified,
        changed=stamp.changed,
        inode=stamp.inode,
        stepped_over=stepped_over,
        looked=True,
        memo=msgspec.msgpack.encode(positions),
    )


def _name(session: str) -> bytes:
    return sha256(session.encode("utf-8", "replace")).digest()[:NAME_BYTES]


def _decoded(memo: bytes) -> Positions:
    try:
        return from_msgpack(memo, Positions) if memo else {}
    except UNDECODABLE:
        return {}


def _of_unknown_form(error: apsw.SQLError) -> bool:
    return "no such table" in str(error) or "no such column" in str(error)


def _failure(path: Path, error: Exception) -> OSError:
    return OSError(errno.EIO, f"its database says: {error}", str(path))
