"""The published prototype's databases, read only: its ``crystal.db``, and the earlier ``context-embeddings.sqlite``.

Their vectors are of another model than this vault's and are not imported: messages are embedded again. These files are not
trusted: any column may have values of any type.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from crystal_core.schema import APPLICATION_ID
from crystal_mirror.operations import CONFIDENCE_MAX, MILLISECONDS_MAX, NAME_CHARS_MAX
from crystal_node.base.agent_names import agent_id
from crystal_node.base.errors import UsageError
from crystal_node.capture.messages import derived_id
from crystal_node.safekeeping.portable.export_format import MemoryRecord, PieceRecord

SOURCE = "memory-crystal"
"""The source of messages imported from there."""
CATEGORIES = ("fact", "preference", "event", "opinion", "skill")
_ROLES = ("user", "assistant", "system", "thinking")
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
        if not path.is_file():
            raise NotPublished(f"there is no file {path}")
        try:
            self._db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            # Views, virtual tables and functions in the file's schema get no more rights than a query.
            self._db.execute("PRAGMA trusted_schema = OFF")
            # Other tables are not queried: the vectors' one cannot be read without its extension.
            known = ("chunks", "memories", "source_collections", "conversation_chunks")
            self._tables = {name: columns for name in known if (columns := self._columns(name))}
            ours = self._db.execute("PRAGMA application_id").get == APPLICATION_ID
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotPublished(f"{path} cannot be read: {error}") from error
        if ours or not (self._has(_TABLES) or self._has(_FORMER)):
            self._db.close()
            if ours:
                raise NotPublished(f"{path} is Crystal's own database, not the prototype's")
            raise NotPublished(f"{path} is no database of the prototype's")

    @property
    def former(self) -> bool:
        """Whether it is a ``context-embeddings.sqlite``, from before the prototype."""
        return not self._has(_TABLES)

    def inventory(self) -> Inventory:
        """Counts. Raises NotPublished if the file is damaged."""
        found = Inventory(self._path)
        try:
            if self.former:
                found.pieces = self._number("SELECT count(*) FROM conversation_chunks")
                return found
            found.pieces = self._number("SELECT count(*) FROM chunks WHERE source_type IS NOT 'file'")
            found.files = self._number("SELECT count(*) FROM chunks WHERE source_type IS 'file'")
            if "memories" in self._tables:
                found.memories = self._number("SELECT count(*) FROM memories WHERE status IS NOT 'deleted'")
                found.deleted = self._number("SELECT count(*) FROM memories WHERE status IS 'deleted'")
            if "source_collections" in self._tables:
                rows = self._db.execute("SELECT name, root_path FROM source_collections ORDER BY name")
                found.collections = {str(name): str(root) for name, root in rows}
        except (apsw.Error, UnicodeDecodeError) as error:
            raise NotPublished(f"{self._path} is damaged: {error}") from error
        return found

    def pieces(self) -> Iterator[PieceRecord]:
        """The messages, in the order in which they were written. Raises NotPublished if the file is damaged."""
        if self.former:
            columns = _readable("chunk_text", "role", "session_key", "agent_id", "timestamp")
            query = f"SELECT {columns}, rowid FROM conversation_chunks ORDER BY rowid"  # noqa: S608  constants
        else:
            columns = _readable("text", "role", "source_id", "agent_id", "created_at")
            query = f"SELECT {columns}, id FROM chunks WHERE source_type IS NOT 'file' ORDER BY id"  # noqa: S608  constants
        for text, role, place, agent, moment, number in self._rows(query):
            if not isinstance(text, str) or not text.strip():
                continue
            session = _name(place)
            yield PieceRecord(
                text=text,
                agent=agent_id(_name(agent), self._agent),
                session=session,
                role=_name(role) if role in _ROLES else "user",
                message=derived_id(SOURCE, session, str(number)),
                created_at=_moment(moment),
                source=SOURCE,
            )

    def memories(self) -> Iterator[MemoryRecord]:
        """The memories, without deleted ones. Raises NotPublished if the file is damaged."""
        if "memories" not in self._tables:
            return
        columns = _readable("text", "category", "confidence", "status", "created_at")
        query = f"SELECT {columns} FROM memories WHERE status IS NOT 'deleted' ORDER BY id"  # noqa: S608  constants
        for text, category, confidence, status, moment in self._rows(query):
            if not isinstance(text, str) or not text.strip():
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
        self._db.close()

    def _has(self, tables: dict[str, set[str]]) -> bool:
        return all(columns <= self._tables.get(name, set()) for name, columns in tables.items())

    def _columns(self, table: str) -> set[str]:
        return {str(row[0]) for row in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def _number(self, query: str) -> int:
        return int(self._db.execute(query).get)

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
