"""The journal, ``state.db``: the outbox, the device log, the capture offsets, and small values that must never go back.

A transaction that has returned is on disk. Several processes may open the file: every transaction begins ``IMMEDIATE``, and
nothing read in one is trusted in the next. It is apart from ``crystal.db`` because SQLite is not atomic across two WAL files,
and because the memory can be rebuilt from the log while this cannot.
"""

from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw

from crystal_core.sqlite_file import SqliteFile
from crystal_crypto.errors import CrystalError
from crystal_mirror.ports import OutboxName, OutboxRow, OutboxState
from crystal_mirror.types import Origin
from crystal_node.base.stream_database import StreamDatabase

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE stream (one INTEGER PRIMARY KEY CHECK (one = 1), incarnation BLOB NOT NULL, sequence INTEGER NOT NULL,
                     previous BLOB NOT NULL) STRICT;
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, incarnation BLOB NOT NULL, sequence INTEGER NOT NULL,
                     origin_device BLOB NOT NULL, origin_incarnation BLOB NOT NULL, origin_sequence INTEGER NOT NULL,
                     digest BLOB NOT NULL, operation BLOB NOT NULL, sealed BLOB NOT NULL, state INTEGER NOT NULL,
                     UNIQUE (incarnation, sequence)) STRICT;
CREATE INDEX outbox_by_state ON outbox (state, id);
CREATE TABLE device_log (slot INTEGER PRIMARY KEY, data BLOB NOT NULL, void INTEGER NOT NULL) STRICT;
CREATE TABLE capture_file (path TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID, STRICT;
"""

_ROW = (
    "SELECT incarnation, sequence, origin_device, origin_incarnation, origin_sequence, operation, sealed, state "
    "FROM outbox"
)
_NAMES = (
    "SELECT incarnation, sequence, origin_device, origin_incarnation, origin_sequence, digest, state "
    "FROM outbox"
)


def _name(values: tuple[Any, ...]) -> OutboxName:
    incarnation, sequence, device, origin, number, digest, state = values
    return OutboxName(incarnation, sequence, Origin(device, origin, number), digest, OutboxState(state))


class JournalDamaged(CrystalError):
    """``state.db`` is damaged, or something else."""

    exit_code = 8
    hint = "Do not delete it: it may hold conversations that are nowhere else yet. Restore it from a backup, or copy it away."


class JournalTooNew(CrystalError):
    """``state.db`` was written by a newer version."""

    exit_code = 8
    hint = "Upgrade Crystal on this machine; nothing was changed."


_FILE = SqliteFile(
    application_id=0x43525953,  # "CRYS"
    schema=_SCHEMA,
    busy_milliseconds=30_000,
    damaged=JournalDamaged,
    too_new=JournalTooNew,
)
SCHEMA_VERSION = _FILE.version


class SqliteJournal(StreamDatabase):
    """The journal in one SQLite file; ``":memory:"`` for one that lives as long as the object."""

    @classmethod
    def open(cls, path: Path | str) -> "SqliteJournal":
        """Opens or makes the file.

        Raises:
            JournalDamaged: not a journal, or SQLite cannot read it.
            JournalTooNew: made by a later version.
        """
        return cls(_FILE.open(path))

    @property
    def connection(self) -> apsw.Connection:
        """The connection, for backups and clones."""
        return self._db

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return Path(self._db.filename) if self._db.filename else None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way on this object."""
        return self._inside

    def scrub(self) -> None:
        """Empties the write-ahead log, so that deleted rows leave no bytes behind (``secure_delete`` does the rest).

        While another process reads, part of the work is left to the next call.
        """
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def names(self) -> list[OutboxName]:
        return [_name(values) for values in self._db.execute(_NAMES + " ORDER BY id")]

    def name(self, incarnation: bytes, sequence: int) -> OutboxName | None:
        where = " WHERE incarnation = ? AND sequence = ?"
        found = self._db.execute(_NAMES + where, (incarnation, sequence)).fetchone()
        return None if found is None else _name(found)

    def row(self, incarnation: bytes, sequence: int) -> OutboxRow | None:
        return self._row(_ROW + " WHERE incarnation = ? AND sequence = ?", (incarnation, sequence))

    def first_row(self, state: OutboxState) -> OutboxRow | None:
        return self._row(_ROW + " WHERE state = ? ORDER BY id LIMIT 1", (int(state),))

    def _row(self, statement: str, values: tuple[Any, ...]) -> OutboxRow | None:
        found = self._db.execute(statement, values).fetchone()
        if found is None:
            return None
        incarnation, sequence, device, origin, number, operation, sealed, state = found
        return OutboxRow(
            incarnation, sequence, Origin(device, origin, number), operation, sealed, OutboxState(state)
        )

    def outbox_count(self) -> int:
        """How many operations are not durable yet."""
        return int(_one(self._db, "SELECT count(*) FROM outbox"))

    def add_row(self, row: OutboxRow) -> None:
        self._write(
            "INSERT INTO outbox (incarnation, sequence, origin_device, origin_incarnation, origin_sequence, digest, "
            "operation, sealed, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.incarnation,
                row.sequence,
                *row.origin,
                sha256(row.operation).digest(),
                row.operation,
                row.sealed,
                int(row.state),
            ),
        )

    def remove_row(self, incarnation: bytes, sequence: int) -> None:
        self._write("DELETE FROM outbox WHERE incarnation = ? AND sequence = ?", (incarnation, sequence))

    def set_row_state(self, incarnation: bytes, sequence: int, state: OutboxState) -> None:
        self._write(
            "UPDATE outbox SET state = ? WHERE incarnation = ? AND sequence = ?",
            (int(state), incarnation, sequence),
        )

    def set_all_states(self, before: OutboxState, after: OutboxState) -> None:
        self._write("UPDATE outbox SET state = ? WHERE state = ?", (int(after), int(before)))

    def log_entries(self) -> list[tuple[int, bytes, bool]]:
        rows = self._db.execute("SELECT slot, data, void FROM device_log ORDER BY slot")
        return [(slot, data, bool(void)) for slot, data, void in rows]

    def keep_log_entry(self, slot: int, data: bytes, *, void: bool) -> None:
        """Keeps a slot of the device log. One that is kept already must hold the same bytes: the log never changes."""
        row = self._db.execute("SELECT data FROM device_log WHERE slot = ?", (slot,)).fetchone()
        if row is not None:
            assert row[0] == data, "a verified device-log slot never changes"
            return
        self._write("INSERT INTO device_log (slot, data, void) VALUES (?, ?, ?)", (slot, data, int(void)))

    def drop_void_log_entries(self, first: int) -> None:
        """Drops the kept slots from ``first`` on, which must all be void."""
        valid = _one(self._db, f"SELECT count(*) FROM device_log WHERE slot >= {int(first)} AND NOT void")  # noqa: S608
        assert not valid, "a verified device-log entry never goes"
        self._write("DELETE FROM device_log WHERE slot >= ?", (first,))

    def drop_log(self) -> None:
        """Drops the whole device log: it led where nobody else is. Within a transaction."""
        self._write("DELETE FROM device_log", ())

    def become_anothers(self, kept: Collection[str], *, beginning: str) -> None:
        """Drops what belongs to the former device of this journal: its stream, and every named value but ``kept`` and those
        whose names start with ``beginning``. Within a transaction.

        The outbox stays, sealed by the former device, until another one takes it over.
        """
        self._write("DELETE FROM stream", ())
        names = [str(name) for (name,) in self._db.execute("SELECT name FROM meta")]
        for name in names:
            if name not in kept and not name.startswith(beginning):
                self.meta_set(name, None)

    def file_state(self, path: str) -> bytes | None:
        """How far capture has read a transcript, or None."""
        row = self._db.execute("SELECT state FROM capture_file WHERE path = ?", (path,)).fetchone()
        return row[0] if row else None

    def file_states(self) -> dict[str, bytes]:
        return dict(self._db.execute("SELECT path, state FROM capture_file ORDER BY path"))

    def set_file_state(self, path: str, state: bytes | None) -> None:
        if state is None:
            self._write("DELETE FROM capture_file WHERE path = ?", (path,))
        else:
            self._write("INSERT OR REPLACE INTO capture_file (path, state) VALUES (?, ?)", (path, state))


def _one(db: apsw.Connection, statement: str) -> Any:
    row = db.execute(statement).fetchone()
    return row[0] if row else None
