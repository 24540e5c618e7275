"""``commands.db``: the database of commands (``crystal_mirror.commands.database``) on SQLite.

A file of its own, which can be lost without losing memory: by the protocol a new one runs nothing that was asked before. Rows
are MessagePack under the keys by which they are read. As the journal: WAL, ``synchronous=FULL``, transactions begin
``IMMEDIATE``, and several processes may open it.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crystal_core.sqlite_file import SqliteFile
from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_mirror.commands.database import AskedRequest, OutgoingMessage, ReceivedRequest, StreamTail
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.stream_database import StreamDatabase

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


class CommandsDamaged(CrystalError):
    """``commands.db`` is not a readable database of commands."""

    exit_code = 8
    hint = "It holds no memory: move it away, and commands start anew. Those that were asked before are then not run."


_FILE = SqliteFile(
    application_id=0x43525943,  # "CRYC"
    schema=_SCHEMA,
    busy_milliseconds=30_000,
    damaged=CommandsDamaged,
    too_new=CommandsDamaged,
)


class SqliteCommandDatabase(StreamDatabase):
    """Commands in one SQLite file; ``":memory:"`` gives a database of the object's lifetime."""

    @classmethod
    def open(cls, path: Path | str) -> "SqliteCommandDatabase":
        """Opens or makes the file, for its owner only. Raises CommandsDamaged."""
        return cls(_FILE.open(path))

    def outgoing(self) -> list[OutgoingMessage]:
        rows = self._db.execute("SELECT turn, row FROM outgoing ORDER BY turn")
        return [msgspec.structs.replace(_decoded(row, OutgoingMessage), turn=turn) for turn, row in rows]

    def add_outgoing(self, message: OutgoingMessage) -> None:
        self._write("INSERT INTO outgoing (row) VALUES (?)", (_encode(message),))

    def set_outgoing(self, message: OutgoingMessage) -> None:
        self._write("UPDATE outgoing SET row = ? WHERE turn = ?", (_encode(message), message.turn))

    def remove_outgoing(self, turn: int) -> None:
        self._write("DELETE FROM outgoing WHERE turn = ?", (turn,))

    def asked(self, request: bytes) -> AskedRequest | None:
        return self._row("SELECT row FROM asked WHERE id = ?", (request,), AskedRequest)

    def all_asked(self) -> list[AskedRequest]:
        return [
            _decoded(row, AskedRequest)
            for (row,) in self._db.execute("SELECT row FROM asked ORDER BY number")
        ]

    def put_asked(self, row: AskedRequest) -> None:
        self._write(
            "INSERT INTO asked (id, row) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row",
            (row.id, _encode(row)),
        )

    def remove_asked(self, request: bytes) -> None:
        self._write("DELETE FROM asked WHERE id = ?", (request,))

    def received(self, sender: bytes, request: bytes) -> ReceivedRequest | None:
        return self._row(
            "SELECT row FROM received WHERE sender = ? AND id = ?", (sender, request), ReceivedRequest
        )

    def all_received(self) -> list[ReceivedRequest]:
        rows = self._db.execute("SELECT row FROM received ORDER BY number")
        return [_decoded(row, ReceivedRequest) for (row,) in rows]

    def put_received(self, row: ReceivedRequest) -> None:
        self._write(
            "INSERT INTO received (sender, id, row) VALUES (?, ?, ?) "
            "ON CONFLICT (sender, id) DO UPDATE SET row = excluded.row",
            (row.sender, row.id, _encode(row)),
        )

    def remove_received(self, sender: bytes, request: bytes) -> None:
        self._write("DELETE FROM received WHERE sender = ? AND id = ?", (sender, request))

    def tail(self, device: bytes, incarnation: bytes) -> StreamTail | None:
        return self._row(
            "SELECT row FROM tail WHERE device = ? AND incarnation = ?", (device, incarnation), StreamTail
        )

    def set_tail(self, device: bytes, incarnation: bytes, tail: StreamTail) -> None:
        self._write(
            "INSERT OR REPLACE INTO tail (device, incarnation, row) VALUES (?, ?, ?)",
            (device, incarnation, _encode(tail)),
        )

    def wipe(self) -> None:
        for table in ("meta", "stream", "outgoing", "asked", "received", "tail"):
            self._write(f"DELETE FROM {table}", ())  # noqa: S608

    def _row(self, statement: str, values: tuple[Any, ...], kind: type[_T]) -> _T | None:
        found = self._db.execute(statement, values).fetchone()
        return _decoded(found[0], kind) if found else None


def _decoded(row: Any, kind: type[_T]) -> _T:
    try:
        return from_msgpack(row, kind)
    except UNDECODABLE as error:
        raise CommandsDamaged(f"a row of commands.db cannot be read: {error}") from error
