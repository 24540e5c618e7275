"""``commands.db``: the book of commands (``crystal_mirror.commands.ports``) on SQLite.

A file of its own: it can be lost without losing memory, and what happens then is part of the protocol (a new book runs nothing
that was asked before it). Rows are MessagePack under the names by which they are looked up. Like the journal: WAL,
``synchronous=FULL``, each transaction begins ``IMMEDIATE``, and several processes may hold it.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from crystal_crypto.errors import CrystalError
from crystal_mirror.commands.ports import Asked, Outgoing, Received, Tail
from crystal_mirror.ports import Stream
from crystal_node.home import FILE_MODE

APPLICATION_ID = 0x43525943  # "CRYC"
SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 30_000

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE stream (one INTEGER PRIMARY KEY CHECK (one = 1), incarnation BLOB NOT NULL, sequence INTEGER NOT NULL,
                     previous BLOB NOT NULL) STRICT;
CREATE TABLE outgoing (turn INTEGER PRIMARY KEY AUTOINCREMENT, row BLOB NOT NULL) STRICT;
CREATE TABLE asked (number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, row BLOB NOT NULL) STRICT;
CREATE TABLE received (number INTEGER PRIMARY KEY AUTOINCREMENT, sender BLOB NOT NULL, id BLOB NOT NULL, row BLOB NOT NULL,
                       UNIQUE (sender, id)) STRICT;
CREATE TABLE tail (device BLOB NOT NULL, incarnation BLOB NOT NULL, row BLOB NOT NULL,
                   PRIMARY KEY (device, incarnation)) WITHOUT ROWID, STRICT;
"""

_encode = msgspec.msgpack.Encoder().encode
_T = TypeVar("_T")


class BookDamaged(CrystalError):
    """``commands.db`` cannot be read as one."""

    exit_code = 8
    hint = "It holds no memory: move it away, and commands start anew. Those that were asked before are then not run."


class SqliteBook:
    """The book over one SQLite file. ``":memory:"`` gives one that lives as long as the object."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._inside = False

    @classmethod
    def open(cls, path: Path | str) -> "SqliteBook":
        """Opens or makes the file, for its owner only. Raises BookDamaged."""
        if path != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        try:
            db = apsw.Connection(str(path))
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA secure_delete=ON")
            book = cls(db)
            with book.transaction():
                book._make_schema(path)
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise BookDamaged(f"{path} is damaged: {error}") from error
        return book

    def _make_schema(self, path: Path | str) -> None:
        version = self._one("PRAGMA user_version")
        known = version == SCHEMA_VERSION and self._one("PRAGMA application_id") == APPLICATION_ID
        if known:
            return
        if version > SCHEMA_VERSION:
            raise BookDamaged(f"{path} has schema {version}, this version knows {SCHEMA_VERSION}")
        if self._one("SELECT count(*) FROM sqlite_schema"):
            raise BookDamaged(f"{path} is a database of something else")
        self._db.execute(_SCHEMA)
        self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator["SqliteBook"]:
        """One transaction; the book itself offers its methods. Not nested."""
        assert not self._inside, "the book's transactions are not nested"
        self._db.execute("BEGIN IMMEDIATE")
        self._inside = True
        try:
            yield self
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has rolled back by itself
                self._db.execute("ROLLBACK")
            raise
        finally:
            self._inside = False

    def stream(self) -> Stream | None:
        row = self._db.execute("SELECT incarnation, sequence, previous FROM stream").fetchone()
        return Stream(*row) if row else None

    def set_stream(self, stream: Stream) -> None:
        self._write(
            "INSERT OR REPLACE INTO stream (one, incarnation, sequence, previous) VALUES (1, ?, ?, ?)",
            (stream.incarnation, stream.sequence, stream.previous),
        )

    def outgoing(self) -> list[Outgoing]:
        rows: list[Any] = self._db.execute("SELECT turn, row FROM outgoing ORDER BY turn").fetchall()
        return [msgspec.structs.replace(_decoded(row, Outgoing), turn=turn) for turn, row in rows]

    def add_outgoing(self, message: Outgoing) -> None:
        self._write("INSERT INTO outgoing (row) VALUES (?)", (_encode(message),))

    def set_outgoing(self, message: Outgoing) -> None:
        self._write("UPDATE outgoing SET row = ? WHERE turn = ?", (_encode(message), message.turn))

    def remove_outgoing(self, turn: int) -> None:
        self._write("DELETE FROM outgoing WHERE turn = ?", (turn,))

    def asked(self, request: bytes) -> Asked | None:
        return self._row("SELECT row FROM asked WHERE id = ?", (request,), Asked)

    def all_asked(self) -> list[Asked]:
        return [_decoded(row, Asked) for (row,) in self._db.execute("SELECT row FROM asked ORDER BY number")]

    def put_asked(self, row: Asked) -> None:
        self._write(
            "INSERT INTO asked (id, row) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row",
            (row.id, _encode(row)),
        )

    def remove_asked(self, request: bytes) -> None:
        self._write("DELETE FROM asked WHERE id = ?", (request,))

    def received(self, sender: bytes, request: bytes) -> Received | None:
        return self._row("SELECT row FROM received WHERE sender = ? AND id = ?", (sender, request), Received)

    def all_received(self) -> list[Received]:
        rows = self._db.execute("SELECT row FROM received ORDER BY number")
        return [_decoded(row, Received) for (row,) in rows]

    def put_received(self, row: Received) -> None:
        self._write(
            "INSERT INTO received (sender, id, row) VALUES (?, ?, ?) "
            "ON CONFLICT (sender, id) DO UPDATE SET row = excluded.row",
            (row.sender, row.id, _encode(row)),
        )

    def remove_received(self, sender: bytes, request: bytes) -> None:
        self._write("DELETE FROM received WHERE sender = ? AND id = ?", (sender, request))

    def tail(self, device: bytes, incarnation: bytes) -> Tail | None:
        return self._row(
            "SELECT row FROM tail WHERE device = ? AND incarnation = ?", (device, incarnation), Tail
        )

    def set_tail(self, device: bytes, incarnation: bytes, tail: Tail) -> None:
        self._write(
            "INSERT OR REPLACE INTO tail (device, incarnation, row) VALUES (?, ?, ?)",
            (device, incarnation, _encode(tail)),
        )

    def meta_get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def meta_set(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._write("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self._write("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    def wipe(self) -> None:
        for table in ("meta", "stream", "outgoing", "asked", "received", "tail"):
            self._write(f"DELETE FROM {table}", ())  # noqa: S608

    def _row(self, statement: str, values: tuple[Any, ...], kind: type[_T]) -> _T | None:
        found = self._db.execute(statement, values).fetchone()
        return _decoded(found[0], kind) if found else None

    def _one(self, statement: str) -> Any:
        row = self._db.execute(statement).fetchone()
        return row[0] if row else None

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        assert self._inside, "the book is written in transactions only"
        self._db.execute(statement, values)


def _decoded(row: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(row, type=kind)
    except msgspec.MsgspecError as error:
        raise BookDamaged(f"a row of the book of commands cannot be read: {error}") from error
