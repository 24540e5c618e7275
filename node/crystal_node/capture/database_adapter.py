"""Adapters for tools that keep all their conversations in one SQLite database.

A tool's own adapter says which sessions there are, and what the messages of one are, in order. Here is the rest: reading
on, private spans, and messages that are still being written.

Of each session is kept how many of its messages were taken, a hash over their ids, and its ``version``: a text that is
another whenever a message was added, changed or removed. A session whose version is as it was is not looked at. In another
one, the ids are compared with the hash, without reading what was said; if they are as they were, reading continues behind
them, else the session was rewritten and is read from its start: its messages keep their ids. So rows that come out of their
order, a VACUUM and a session that was taken back in part lose and double nothing.

A message that is not ``settled`` (the model still writes it) holds up its session until it is, or until the database has
not changed for ten minutes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import apsw
import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.agent_names import agent_id
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.project import ProjectFinder
from crystal_node.capture.adapter import CaptureCounts, Hides, TranscriptReading
from crystal_node.capture.database_file import (
    JOURNAL_ENDING,
    DatabaseStamp,
    read_snapshot,
    stamp_of,
    tables_of,
)
from crystal_node.capture.exclusions import ExcludingAdapter
from crystal_node.capture.line_reader import OFFSET_MAX, PASS_BYTES_MAX, FileState
from crystal_node.capture.messages import OperationBuilder, SkippedRecord, TranscriptMessage

HASH_BYTES = 8

Outcomes = list[TranscriptMessage | SkippedRecord]
Position = tuple[int, bytes, bytes]
"""Messages taken, the hash over their ids, and the hash of the session's version; b"" if it is to be looked at again."""
Positions = dict[bytes, Position]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session in a database, with its version."""

    id: str
    version: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of a session: its id, what it says, and whether the tool is done with it."""

    id: str
    outcomes: Outcomes
    settled: bool = True


@dataclass
class DatabasePass:
    """What one pass took. ``bytes_left``: of what it may still take."""

    outcomes: Outcomes
    positions: Positions
    bytes_left: int
    waits: bool = False
    known_form: bool = True


class DatabaseAdapter(ExcludingAdapter, ABC):
    """An adapter of one database. ``tables``: the columns that each of its tables must have. ``session_query``: each session's
    id, then the columns that make up its version. ``id_query``: the ids of one session's messages."""

    name: str
    repeats = False
    tables: ClassVar[dict[str, frozenset[str]]]
    session_query: ClassVar[str]
    id_query: ClassVar[str]

    def sessions(self, database: apsw.Connection) -> Iterable[StoredSession]:
        """All sessions, in a fixed order."""
        for session, *version in database.execute(self.session_query):
            yield StoredSession(str(session), " ".join(map(str, version)))

    def ids(self, database: apsw.Connection, session: str) -> Iterable[str]:
        """The ids of a session's messages, in their order."""
        return (str(number) for (number,) in database.execute(self.id_query, (session,)))

    @abstractmethod
    def messages(self, database: apsw.Connection, session: str, start: int) -> Iterator[StoredMessage]:
        """A session's messages in the same order, without the first ``start``."""

    def is_its(self, tables: dict[str, list[str]]) -> bool:
        """Whether a database with these tables and columns may be this tool's."""
        return all(columns <= set(tables.get(name, ())) for name, columns in self.tables.items())

    def recognises(self, record: dict[str, object]) -> bool:
        """A database is known by its tables: ``record`` holds their columns."""
        return self.is_its({name: value for name, value in record.items() if isinstance(value, list)})

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        return None

    def transcript(self, path: Path) -> Path:
        return path.with_name(path.name.removesuffix(JOURNAL_ENDING))

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        if state is None:
            return False
        stamp = stamp_of(path)
        return stamp.same(state) and (state.looked or stamp.modified > quiet_ns)

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        before = state or FileState()
        known = {} if before.offset == 0 else _decoded(before.memo)
        quiet = stamp_of(path).modified <= quiet_ns

        def read(database: apsw.Connection) -> DatabasePass:
            taken = DatabasePass([], dict(known), PASS_BYTES_MAX)
            self._take(database, taken, quiet=quiet)
            return taken

        unknown = DatabasePass([], known, PASS_BYTES_MAX, known_form=False)
        taken, stamp = read_snapshot(path, read, unknown)
        if quiet and stamp_of(path) != stamp:  # it was written just now: what is being written has to wait
            quiet = False
            taken, stamp = read_snapshot(path, read, unknown)
        counts = CaptureCounts()
        gatherer = OperationBuilder(agent, self.name, ProjectFinder(self._home), counts, self.exclusions())
        if not taken.known_form:
            counts.damaged(path, 0, "database of unknown form")
        for outcome in taken.outcomes:
            _outcome(outcome, path, hides, gatherer, counts, unsure=before.unsure_until > 0)
        after = _state(stamp, taken.positions, looked=quiet or not taken.waits)
        # Messages without a time stay unsure until all of the database was read.
        done = taken.known_form and not taken.waits and taken.bytes_left > 0
        unsure_until = 0 if done else before.unsure_until
        after = msgspec.structs.replace(after, stepped_over=before.stepped_over, unsure_until=unsure_until)
        return TranscriptReading(gatherer.finish(), after, counts, taken.bytes_left <= 0, gatherer.roots)

    def skip(self, path: Path) -> FileState:
        def read(database: apsw.Connection) -> Positions | None:
            if not self.is_its(tables_of(database)):
                return None
            return {
                _hash(session.id): (*_counted(self.ids(database, session.id)), _hash(session.version))
                for session in self.sessions(database)
            }

        positions, stamp = read_snapshot(path, read, None)
        after = _state(stamp, positions or {}, looked=True)
        # A later version may be able to read a database of unknown form.
        unsure_until = OFFSET_MAX if positions is None else 0
        return msgspec.structs.replace(after, stepped_over=True, unsure_until=unsure_until)

    def _take(self, database: apsw.Connection, taken: DatabasePass, *, quiet: bool) -> None:
        if not self.is_its(tables_of(database)):
            taken.known_form = False
            return
        present: set[bytes] = set()
        for session in self.sessions(database):
            key, version = _hash(session.id), _hash(session.version)
            present.add(key)
            before = taken.positions.get(key)
            if before is None or before[2] != version:
                taken.positions[key] = self._session(
                    database, session.id, version, before, taken, quiet=quiet
                )
                if taken.bytes_left <= 0:
                    return
        for gone in taken.positions.keys() - present:
            del taken.positions[gone]

    def _session(
        self,
        database: apsw.Connection,
        session: str,
        version: bytes,
        before: Position | None,
        taken: DatabasePass,
        *,
        quiet: bool,
    ) -> Position:
        """Takes what is new in a session. Returns the position reached."""
        count, chain = 0, b""
        if before is not None and _counted(_first(self.ids(database, session), before[0])) == before[:2]:
            count, chain, _ = before
        for message in self.messages(database, session, count):
            if not message.settled and not quiet:
                taken.waits = True
                return count, chain, b""
            taken.outcomes += message.outcomes
            taken.bytes_left -= sum(map(_size, message.outcomes)) or 1
            count, chain = count + 1, _hash(message.id, chain)
            if taken.bytes_left <= 0:
                return count, chain, b""
        return count, chain, version


def _outcome(
    outcome: TranscriptMessage | SkippedRecord,
    path: Path,
    hides: Hides,
    gatherer: OperationBuilder,
    counts: CaptureCounts,
    *,
    unsure: bool,
) -> None:
    if isinstance(outcome, SkippedRecord):
        if outcome.damaged:
            counts.damaged(path, 0, outcome.reason)
        else:
            counts.skipped[outcome.reason] += 1
        return
    undated = not outcome.dated or outcome.moment == 0
    if outcome.hidden(hides) or (undated and unsure):
        counts.skipped["private"] += 1
    elif outcome.texts:
        gatherer.take(outcome)


def _size(outcome: TranscriptMessage | SkippedRecord) -> int:
    return 1 if isinstance(outcome, SkippedRecord) else sum(map(len, outcome.texts.values()))


def _first(ids: Iterable[str], count: int) -> Iterator[str]:
    return (one for _, one in zip(range(count), ids, strict=False))


def _counted(ids: Iterable[str]) -> tuple[int, bytes]:
    count, chain = 0, b""
    for one in ids:
        count, chain = count + 1, _hash(one, chain)
    return count, chain


def _hash(text: str, before: bytes = b"") -> bytes:
    return sha256(before + text.encode("utf-8", "replace")).digest()[:HASH_BYTES]


def _state(stamp: DatabaseStamp, positions: Positions, *, looked: bool) -> FileState:
    return FileState(
        offset=stamp.file_size,
        size=stamp.size,
        modified=stamp.modified,
        changed=stamp.changed,
        inode=stamp.inode,
        looked=looked,
        memo=msgspec.msgpack.encode(positions),
    )


def _decoded(memo: bytes) -> Positions:
    try:
        return from_msgpack(memo, Positions) if memo else {}
    except UNDECODABLE:
        return {}
