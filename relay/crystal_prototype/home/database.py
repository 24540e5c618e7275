"""The published prototype's databases, read only: its ``crystal.db``, and the earlier ``context-embeddings.sqlite``.

Their vectors are of another model than this vault's and are not imported: messages are embedded again. These files are not
trusted: any column may have values of any type.
"""

import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import apsw

from crystal_core.schema import APPLICATION_ID
from crystal_mirror.operations import CONFIDENCE_MAX, MILLISECONDS_MAX, NAME_CHARS_MAX
from crystal_node.base.agent_names import agent_id
from crystal_node.base.errors import HomeBusy, LocalStorage, UsageError
from crystal_node.capture.imported import IMPORTED_SOURCE
from crystal_node.capture.messages import derived_id
from crystal_node.capture.private_words import without_private
from crystal_node.safekeeping.portable.export_format import MemoryRecord, PieceRecord
from crystal_prototype.messages import ROLES, tools_session

_COPIES_MAX = 5
_LONG_CHARS = 800
"""Pieces of a long message had about 400 tokens, 80 of which the next one repeats."""
_OVERLAP_CHARS_MIN = 40
_OVERLAP_CHARS_MAX = 2000
_FORGOTTEN = "('deleted', 'deprecated')"
"""States of a memory that was forgotten there."""
_SAID = "source_type IS NOT 'file' AND source_type IS NOT 'manual'"
"""Rows of conversations. A `manual` one repeats a memory, also one that was forgotten since."""
CATEGORIES = ("fact", "preference", "event", "opinion", "skill")
_TABLES = {"chunks": {"text", "role", "source_type", "source_id", "agent_id", "created_at"}}
_FORMER = {"conversation_chunks": {"chunk_text", "role", "agent_id", "session_key", "timestamp"}}


class NotPublished(UsageError):
    """The file is no database of the prototype's."""

    hint = "Give the prototype's memory/crystal.db, or OpenClaw's memory/context-embeddings.sqlite."


@dataclass
class Inventory:
    """Counts of a file's contents. ``collections``: indexed folders by name, to be read again as sources."""

    path: Path
    pieces: int = 0
    memories: int = 0
    files: int = 0
    deleted: int = 0
    collections: dict[str, str] = field(default_factory=dict[str, str])


class PublishedMemory:
    """An open database of either kind. Close it."""

    def __init__(self, path: Path, fallback_agent: str) -> None:
        """Raises NotPublished."""
        self._path, self._agent = path, fallback_agent
        self._stack = ExitStack()
        if not path.is_file():
            raise NotPublished(f"there is no file {path}")
        try:
            self._db = self._stack.enter_context(_untouched(path))
            # Views, virtual tables and functions in the file's schema get no more rights than a query.
            self._db.execute("PRAGMA trusted_schema = OFF")
            # Other tables are not queried: the vectors' one cannot be read without its extension.
            known = ("chunks", "memories", "source_collections", "conversation_chunks")
            self._tables = {name: columns for name in known if (columns := self._columns(name))}
            ours = self._db.execute("PRAGMA application_id").get == APPLICATION_ID
        except (apsw.Error, UnicodeDecodeError) as error:
            self._stack.close()
            raise NotPublished(f"{path} cannot be read: {error}") from error
        if ours or not (self._has(_TABLES) or self._has(_FORMER)):
            self._stack.close()
            if ours:
                raise NotPublished(f"{path} is Crystal's own database, not the prototype's")
            raise NotPublished(f"{path} is no database of the prototype's")
        try:
            self._forgotten = self._forgotten_texts()
        except NotPublished:
            self._stack.close()
            raise

    @property
    def former(self) -> bool:
        """Whether it is a ``context-embeddings.sqlite``, from before the prototype."""
        return not self._has(_TABLES)

    def inventory(self) -> Inventory:
        """Counts. Raises NotPublished if the file is damaged."""
        found = Inventory(self._path)
        try:
            if self.former:
                found.pieces = self._count("conversation_chunks")
                return found
            found.pieces = self._count(f"chunks WHERE {_SAID}")
            found.files = self._count("chunks WHERE source_type IS 'file'")
            if "memories" in self._tables:
                found.memories = self._count(f"memories WHERE status NOT IN {_FORGOTTEN}")
                found.deleted = self._count(f"memories WHERE status IN {_FORGOTTEN}")
            if "source_collections" in self._tables:
                rows = self._db.execute("SELECT name, root_path FROM source_collections ORDER BY name")
                found.collections = {str(name): str(root) for name, root in rows}
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotPublished(f"{self._path} is damaged: {error}") from error
        return found

    def pieces(self) -> Iterator[PieceRecord]:
        """The messages, in the order in which they were written; long ones whole, as they were said. Leaves out what was
        forgotten there. Raises NotPublished if the file is damaged."""
        if self.former:
            columns = _readable("chunk_text", "role", "session_key", "agent_id", "timestamp")
            query = f"SELECT {columns}, rowid FROM conversation_chunks ORDER BY rowid"  # noqa: S608  constants
        else:
            columns = _readable("text", "role", "source_id", "agent_id", "created_at")
            query = f"SELECT {columns}, id FROM chunks WHERE {_SAID} ORDER BY id"  # noqa: S608  constants
        for (role, place, agent, moment), rows in groupby(self._rows(query), key=lambda row: row[1:5]):
            session = _name(place)
            for text, number in _joined((row[0], row[5]) for row in rows):
                spoken = without_private(text) if role in (None, "user") else text
                if text.strip() in self._forgotten or not spoken.strip():
                    continue
                yield PieceRecord(
                    text=spoken,
                    agent=agent_id(_name(agent), self._agent),
                    session=tools_session(session),
                    role=_name(role) if role in ROLES else "user",
                    message=derived_id(IMPORTED_SOURCE, session, str(number)),
                    created_at=_moment(moment),
                    source=IMPORTED_SOURCE,
                )

    def memories(self) -> Iterator[MemoryRecord]:
        """The memories, without forgotten ones. Raises NotPublished if the file is damaged."""
        if "memories" not in self._tables:
            return
        columns = _readable("text", "category", "confidence", "status", "created_at")
        query = f"SELECT {columns} FROM memories WHERE status NOT IN {_FORGOTTEN} ORDER BY id"  # noqa: S608  constants
        for text, category, confidence, status, moment in self._rows(query):
            if not isinstance(text, str) or not text.strip() or text.strip() in self._forgotten:
                continue
            yield MemoryRecord(
                text=text.strip(),
                category=category if category in CATEGORIES else "fact",
                confidence=_confidence(confidence),
                status="active" if status == "active" else "retired",
                agent=self._agent,
                created_at=_moment(moment),
            )

    def close(self) -> None:
        self._stack.close()

    def _forgotten_texts(self) -> frozenset[str]:
        if "status" not in self._tables.get("memories", set()):
            return frozenset()
        texts = self._rows(f"SELECT {_readable('text')} FROM memories WHERE status IN {_FORGOTTEN}")  # noqa: S608
        return frozenset(text.strip() for (text,) in texts if isinstance(text, str))

    def _has(self, tables: dict[str, set[str]]) -> bool:
        return all(columns <= self._tables.get(name, set()) for name, columns in tables.items())

    def _columns(self, table: str) -> set[str]:
        return {str(row[0]) for row in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def _count(self, rows: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {rows}").get)  # noqa: S608  constants of ours

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._db.execute(query):
                yield tuple(
                    value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in row
                )
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotPublished(f"{self._path} is damaged: {error}") from error


def opened(path: Path, fallback_agent: str) -> "closing[PublishedMemory]":
    """Open a database as a context manager."""
    return closing(PublishedMemory(path, fallback_agent))


def _joined(rows: Iterator[tuple[object, object]]) -> Iterator[tuple[str, object]]:
    """The texts of rows of one moment and role, each with the first row's number; pieces of a long message made one again."""
    whole, first = "", None
    for text, number in rows:
        if not isinstance(text, str) or not text.strip():
            continue
        shared = _overlap(whole, text) if len(whole) >= _LONG_CHARS else 0
        if shared:
            whole += text[shared:]
            continue
        if whole:
            yield whole, first
        whole, first = text, number
    if whole:
        yield whole, first


def _overlap(one: str, other: str) -> int:
    """How many characters at the beginning of ``other`` end ``one``; 0 if too few to be no accident."""
    longest = min(len(one), len(other), _OVERLAP_CHARS_MAX)
    lengths = range(longest, _OVERLAP_CHARS_MIN - 1, -1)
    return next((length for length in lengths if one.endswith(other[:length])), 0)


def _readable(*columns: str) -> str:
    """Expressions that select these columns: text as raw bytes, so that invalid UTF-8 in one row does not prevent reading the
    others; NULL for blobs."""

    return ", ".join(
        f"CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) WHEN 'blob' THEN NULL ELSE {each} END"
        for each in columns
    )


def _name(value: object) -> str:
    return value[:NAME_CHARS_MAX] if isinstance(value, str) else ""


def _confidence(value: object) -> int:
    return (
        round(min(max(float(value), 0.0), 1.0) * CONFIDENCE_MAX)
        if isinstance(value, int | float)
        else CONFIDENCE_MAX
    )


def _moment(value: object) -> int:
    """Milliseconds of a number of them, or of ISO 8601; 0 if it is neither."""
    if isinstance(value, int | float):
        return int(value) if 0 <= value <= MILLISECONDS_MAX else 0
    if not isinstance(value, str):
        return 0
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(int(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        return 0


@contextmanager
def _untouched(path: Path) -> Generator[apsw.Connection]:
    """A connection to what the file holds, without a lock and without a file beside it. What a program left in its log is read
    in a copy of both. Raises LocalStorage, and apsw's errors."""
    with ExitStack() as stack:
        logs = [path.with_name(path.name + end) for end in ("-wal", "-journal")]
        if any(log.is_file() and log.stat().st_size for log in logs):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="crystal-migrate-")))
            flags = apsw.SQLITE_OPEN_READWRITE
            uri = str(_copied_to(folder, path, logs))
        else:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            uri = f"file:{quote(str(path.absolute()))}?immutable=1"
        yield stack.enter_context(closing(apsw.Connection(uri, flags=flags)))


def _copied_to(folder: Path, path: Path, logs: Sequence[Path]) -> Path:
    """The file and its logs, of one moment: the file changes only when its log is moved into it."""
    target = folder / path.name
    for _ in range(_COPIES_MAX):
        before = path.stat()
        try:
            shutil.copyfile(path, target)
            for log in logs:
                target.with_name(log.name).unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    shutil.copyfile(log, target.with_name(log.name))
        except OSError as error:
            raise LocalStorage(
                f"{path} cannot be copied to {folder}: {error.strerror or error}",
                hint="A program that runs or was killed left a log beside it. Make room there, or set TMPDIR to another place.",
            ) from error
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return target
    raise HomeBusy(f"{path} is being written", hint="Stop the prototype, then run this again.")
