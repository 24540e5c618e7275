"""OpenClaw's database of one agent, ``agents/<agent>/agent/openclaw-agent.sqlite``: its sessions are there since August 2026.

The table ``transcript_events`` holds the transcripts' lines, one a row, numbered within each session; large ones are compressed
since September 2026. Reading continues after the last number of each session. A session whose last number is lower than before
was rewritten and is read from its start: its messages keep their ids.

``SessionRows`` reads one session as if it were a file of lines. ``session_path`` names it: the path of a file below the
database, which does not exist.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import apsw
import msgspec

from crystal_crypto.compression import decompress_at_most
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_node.base.decoding import from_msgpack
from crystal_node.capture.database_file import (
    JOURNAL_ENDING,
    DatabaseStamp,
    read_snapshot,
    stamp_of,
    tables_of,
)
from crystal_node.capture.line_reader import LINE_BYTES_MAX, PASS_BYTES_MAX, START, FileLine, FileState

STORE_NAME = "openclaw-agent.sqlite"
JOURNAL_NAME = STORE_NAME + JOURNAL_ENDING
NAME_BYTES = 8
"""Bytes of the hash of a session's id, under which its last number is kept."""
LOOKED_BACK = 8
"""Events before those that are read, in which a call may stand that is answered now."""

_SESSIONS = """
WITH RECURSIVE found (id) AS (
    SELECT min(session_id) FROM transcript_events
    UNION ALL
    SELECT (SELECT min(session_id) FROM transcript_events WHERE session_id > id) FROM found WHERE id IS NOT NULL)
SELECT id, (SELECT max(seq) FROM transcript_events WHERE session_id = id) FROM found WHERE id IS NOT NULL
"""
"""Each session with its last number, by a few index look-ups each."""

_GENERATIONS = "SELECT session_id, generation FROM transcript_rewrite_watermarks"
_SESSION_ENDING = ".jsonl"
_MILLISECONDS_MAX = 2**43

Positions = dict[bytes, int]


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
    earlier: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    """Of each session the events before those that are read: a tool call may stand there that is answered now."""


def store_unchanged(path: Path, state: FileState | None) -> bool:
    """Whether database and journal are unchanged. Raises OSError."""
    return state is not None and stamp_of(path).same(state)


def read_store(path: Path, state: FileState | None) -> DatabaseBatch:
    """Reads a bounded part on from ``state``. Raises OSError: it cannot be read, or is written all the time."""
    before = state or FileState()
    positions = {} if before.offset == 0 else _decoded(before.memo)
    after = dict(positions)

    def read(database: apsw.Connection) -> DatabaseBatch:
        nonlocal after
        batch, after = DatabaseBatch({}, [], before, more=False), dict(positions)
        _read(database, after, batch)
        return batch

    unknown = DatabaseBatch({}, [], before, more=False, known_form=False)
    found, stamp = read_snapshot(path, read, unknown)
    reached = positions if found is unknown else after
    found.state = _state(stamp, reached, stepped_over=before.stepped_over)
    return found


def skip_store(path: Path) -> FileState:
    """The state after everything in the database. Raises OSError."""

    def read(database: apsw.Connection) -> list[tuple[str, int]]:
        if "transcript_events" not in tables_of(database):
            return []
        return [(str(session), int(number)) for session, number in database.execute(_SESSIONS)]

    none: list[tuple[str, int]] = []
    sessions, stamp = read_snapshot(path, read, none)
    positions = {_name(session): number for session, number in sessions}
    return _state(stamp, positions, stepped_over=True)


def _read(database: apsw.Connection, positions: Positions, batch: DatabaseBatch) -> None:
    columns = tables_of(database).get("transcript_events")
    if columns is None:
        batch.known_form = False
        return
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
                earlier = islice(
                    _events(database, packed, event.session, max(start - LOOKED_BACK, -1)), LOOKED_BACK
                )
                lines = [one.line for one in earlier if one.line and one.number <= start]
                batch.earlier[event.session] = lines
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


def _state(stamp: DatabaseStamp, positions: Positions, *, stepped_over: bool) -> FileState:
    return FileState(
        offset=stamp.file_size,
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


def session_path(store: Path, session: str) -> Path:
    """The name of one session of a database."""
    return store / f"{session}{_SESSION_ENDING}"


def store_of(path: Path) -> Path | None:
    """The database of a session that is named by ``session_path``; None for the path of a file."""
    return path.parent if path.parent.name == STORE_NAME else None


class _Place(NamedTuple):
    """The last event of a session that was read, and the generation of the session; ``FileState.memo``."""

    number: int = -1
    generation: str = ""

    def encoded(self) -> bytes:
        return f"{self.number} {self.generation}".encode()

    @classmethod
    def decoded(cls, memo: bytes) -> "_Place":
        number, _, generation = memo.decode("utf-8", "replace").partition(" ")
        return cls(int(number), generation) if number.isdecimal() else cls()


def last_places(store: Path) -> dict[str, bytes]:
    """The ``FileState.memo`` that each session of a database has once it is read to its end. Raises OSError."""

    def read(database: apsw.Connection) -> dict[str, bytes]:
        tables = tables_of(database)
        if "transcript_events" not in tables:
            return {}
        rewritten = _generations(database, tables)
        return {
            str(session): _Place(int(number), rewritten.get(str(session), "")).encoded()
            for session, number in database.execute(_SESSIONS)
        }

    none: dict[str, bytes] = {}
    return read_snapshot(store, read, none)[0]


class SessionRows:
    """The events of one session as ``LineReader`` reads the lines of a file, from a state on. Offsets are those of a file that
    had these lines; ``FileState.modified`` is the time of the last event that was read. An event has no half.

    The state stands if the session's first event and the last one that was read are the same, and nothing was rewritten."""

    unended = None

    def __init__(self, path: Path, state: FileState | None) -> None:
        """Raises OSError: the database cannot be read."""
        self._before = state or START
        self._session = path.name.removesuffix(_SESSION_ENDING)
        self.restarted = self.more = False
        self._found: list[tuple[FileLine, int, int]] = []
        self._head, self._generation = b"", ""
        read_snapshot(path.parent, self._read, None)
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.clear()

    def lines(self) -> Iterator[FileLine]:
        """A yielded line counts as read."""
        for line, _, _ in self._found:
            self._taken += 1
            yield line

    def take_unended(self) -> None:
        """There is none."""

    def state(self) -> FileState:
        """The state after what was read."""
        before = START if self.restarted else self._before
        if not self._taken:
            return before
        line, number, moment = self._found[self._taken - 1]
        return FileState(
            offset=line.end,
            head=self._head,
            tail=_mark(line.data),
            size=number,
            modified=moment * 1_000_000,
            looked=True,
            memo=_Place(number, self._generation).encoded(),
        )

    def _read(self, database: apsw.Connection) -> None:
        tables = tables_of(database)
        columns = tables.get("transcript_events", [])
        packed = "event_zstd" if "event_zstd" in columns else "NULL"
        known = _Place.decoded(self._before.memo)
        self._found, self.more = [], False  # this may be called again
        self._generation = _generations(database, tables, self._session).get(self._session, "")
        first = next(_events(database, packed, self._session, -1), None)
        self._head = _mark(first.line if first else None)
        last = next(_events(database, packed, self._session, known.number - 1), None)
        self.restarted = known.number >= 0 and not (
            last is not None
            and last.number == known.number
            and (self._head, _mark(last.line), self._generation)
            == (self._before.head, self._before.tail, known.generation)
        )
        offset, behind = (0, -1) if self.restarted else (self._before.offset, known.number)
        limit = offset + PASS_BYTES_MAX
        for event in _events(database, packed, self._session, behind):
            if offset >= limit:
                self.more = True
                return
            line = event.line if event.line is not None and b"\n" not in event.line else None
            end = offset + (len(line) + 1 if line is not None else 0)
            moment = event.created_at if 0 <= event.created_at < _MILLISECONDS_MAX else 0
            self._found.append((FileLine(line, offset, end), event.number, moment))
            offset = end


def rows_unchanged(path: Path, state: FileState) -> bool:
    """Whether a session has nothing after a state. Raises OSError."""
    reader = SessionRows(path, state)
    return not reader.restarted and next(reader.lines(), None) is None


def rows_state_at(path: Path, offset: int) -> FileState:
    """The state of a session that was read up to an offset. Raises OSError."""
    state, reached = START, offset == 0
    while not reached:
        with SessionRows(path, state) as reader:
            for line in reader.lines():
                state = reader.state()
                if reached := line.end >= offset:
                    break
            reached |= not reader.more
    return state


def session_rows(path: Path) -> Iterator[bytes]:
    """All lines of a session, each with its end. Raises OSError."""
    state, more = START, True
    while more:
        with SessionRows(path, state) as reader:
            for line in reader.lines():
                if line.data is not None:
                    yield line.data + b"\n"
            state, more = reader.state(), reader.more


def _generations(
    database: apsw.Connection, tables: dict[str, list[str]], session: str | None = None
) -> dict[str, str]:
    """The generations of the sessions that were rewritten: of all, or of one."""
    if not {"session_id", "generation"} <= set(tables.get("transcript_rewrite_watermarks", ())):
        return {}
    query = _GENERATIONS if session is None else f"{_GENERATIONS} WHERE session_id = ?"
    rows = database.execute(query, () if session is None else (session,))
    return {str(each): str(generation) for each, generation in rows}


def _mark(line: bytes | None) -> bytes:
    return sha256(line or b"").digest()
