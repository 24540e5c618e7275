"""``state/works.db``: which rows of the memory belong to which conversation, and the files made of them.

    conversation  one of an agent; since when it has changes that no file shows yet, whether it lost a message
    piece         the rowid of each of its occurrences, with 8 bytes of the text's keyed hash
    day           its part of each day
    stale_day     days whose log is not written again yet
    work          files that were made, or were about to be
    hidden        keyed hashes that forgets of this device hide, though they are not ordered yet
    digest        a language model's summary of a conversation
    agent         each agent and its staging state (``catalog.agents``)

Holds no text of a conversation but a model's summaries; deleted rows are overwritten. One SQLite file (apsw, WAL,
``synchronous=FULL``), written under ``state/works.lock``. Everything but the agents' states can be computed again.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from crystal_core.sqlite_file import SqliteFile, open_read_only
from crystal_crypto.errors import CrystalError

BUSY_TIMEOUT_MS = 10_000
ORPHAN_CHECK = "swept"
"""Name of the value that says when orphaned files were last looked for."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE agent (agent TEXT PRIMARY KEY, state TEXT NOT NULL, since INTEGER NOT NULL, weave TEXT NOT NULL,
                    failure TEXT NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE conversation (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, last_at INTEGER NOT NULL,
                           changed_at INTEGER NOT NULL, dirty_since INTEGER NOT NULL, lost INTEGER NOT NULL,
                           staged INTEGER NOT NULL, made INTEGER NOT NULL, problem TEXT NOT NULL,
                           UNIQUE (agent, session)) STRICT;
CREATE INDEX conversation_by_dirt ON conversation (dirty_since) WHERE dirty_since > 0;
CREATE TABLE piece (occurrence INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, mark BLOB NOT NULL) STRICT;
CREATE INDEX piece_by_conversation ON piece (conversation, occurrence);
CREATE TABLE day (conversation INTEGER NOT NULL, day TEXT NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
                  pieces INTEGER NOT NULL, request INTEGER NOT NULL, PRIMARY KEY (conversation, day)) WITHOUT ROWID, STRICT;
CREATE INDEX day_by_day ON day (day, conversation);
CREATE TABLE stale_day (agent TEXT NOT NULL, day TEXT NOT NULL, lost INTEGER NOT NULL, problem TEXT NOT NULL,
                        PRIMARY KEY (agent, day))
                        WITHOUT ROWID, STRICT;
CREATE TABLE work (path TEXT PRIMARY KEY, agent TEXT NOT NULL, conversation INTEGER NOT NULL, kept INTEGER NOT NULL)
                   WITHOUT ROWID, STRICT;
CREATE INDEX work_by_conversation ON work (conversation);
CREATE TABLE hidden (mark BLOB PRIMARY KEY) WITHOUT ROWID, STRICT;
CREATE TABLE digest (conversation INTEGER PRIMARY KEY, pieces BLOB NOT NULL, text TEXT NOT NULL, model TEXT NOT NULL) STRICT;
"""


class CatalogDamaged(CrystalError):
    """``works.db`` is not a readable catalog."""

    exit_code = 8
    hint = (
        "Restore state/works.db from a backup, or move it away: files are made again from the memory; agents that were"
        " rejected are asked about again."
    )


class CatalogTooNew(CrystalError):
    """``works.db`` was written by a newer version."""

    exit_code = 8
    hint = "Upgrade Crystal on this machine; nothing was changed."


_FILE = SqliteFile(
    application_id=0x43525957,  # "CRYW"
    schema=_SCHEMA,
    busy_milliseconds=BUSY_TIMEOUT_MS,
    damaged=CatalogDamaged,
    too_new=CatalogTooNew,
)


class Catalog:
    """The database. One thread at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path | str) -> "Catalog":
        """Opens or makes the file.

        Raises:
            CatalogDamaged: not a file of ours, or SQLite cannot read it.
            CatalogTooNew: made by a later version.
        """
        return cls(_FILE.open(path))

    @classmethod
    def open_readonly(cls, path: Path) -> "Catalog | None":
        """The file opened for reading; None if there is none. Raises CatalogDamaged."""
        try:
            db = open_read_only(path, busy_milliseconds=BUSY_TIMEOUT_MS)
        except apsw.CantOpenError:
            return None
        try:
            if db.execute("PRAGMA user_version").get != _FILE.version:
                db.close()
                return None
        except (apsw.NotADBError, apsw.CorruptError) as error:
            db.close()
            raise CatalogDamaged(f"{path} is damaged: {error}") from error
        return cls(db)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Catalog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, query: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._db.execute(query, bindings))

    def each(self, query: str, bindings: Sequence[Any] = ()) -> Generator[tuple[Any, ...]]:
        yield from self._db.execute(query, bindings)

    def value(self, query: str, bindings: Sequence[Any] = ()) -> Any:
        row = self._db.execute(query, bindings).fetchone()
        return None if row is None else row[0]

    def run(self, statement: str, bindings: Sequence[Any] = ()) -> int:
        """Executes one statement and returns how many rows it changed."""
        self._db.execute(statement, bindings)
        return self._db.changes()

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._db.executemany(statement, rows)

    def meta(self, name: str) -> bytes | None:
        found = self.value("SELECT value FROM meta WHERE name = ?", (name,))
        return None if found is None else bytes(found)

    def set_meta(self, name: str, value: bytes) -> None:
        self.run("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    def request_orphan_check(self) -> None:
        """Has the next run look for orphaned files."""
        self.set_meta(ORPHAN_CHECK, b"0")

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All or nothing, durable on exit. Joins a transaction that is open already."""
        if self.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def commit(self) -> None:
        """Used by ``transaction`` only."""
        self._db.execute("COMMIT")

    def scrub(self) -> None:
        """Empties the write-ahead log of deleted content, unless a reader holds it."""
        with suppress(apsw.BusyError):  # the last to close the file does the rest
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
