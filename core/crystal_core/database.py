"""One open `crystal.db`: opening, transactions, and SQLite's errors in our words.

Rules:

- One `Database` belongs to one thread at a time. Any number of processes, and of `Database` objects in one process, may
  hold the same file; nothing read in one transaction is trusted in the next.
- A write transaction begins with the write lock (BEGIN IMMEDIATE): whoever waits for it, waits at the beginning, where
  nothing has been done yet. A commit is on the disk when it returns (`synchronous=FULL`).
- What was deleted is overwritten (`secure_delete`), in the file at the next checkpoint. `scrub` makes that now.
- A database of a newer program, or of another program, is refused before a byte of it is changed.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apsw

from crystal_core.errors import (
    ForeignFile,
    SchemaTooNew,
    VaultBusy,
    VaultDamaged,
    VaultDataError,
    VaultFull,
)
from crystal_core.schema import APPLICATION_ID, MIGRATIONS, Migration
from crystal_core.sqlite_file import MEMORY, NoBackup, NoWal, SqliteFile

BUSY_MILLISECONDS = 10_000
"""How long a statement waits for another process before it gives up."""
SCRUB_MILLISECONDS = 500
"""How long `scrub` waits for readers of old states before it leaves the work to the next one."""
CACHE_KIBIBYTES = 16 * 1024
"""SQLite's page cache for one connection."""
PAGE_BYTES = 8192
"""Page size of a new file: texts of a thousand characters fill 4 KiB pages badly."""
CHECKPOINT_PAGES = 8192
"""WAL pages after which a commit copies the WAL into the file. Adding rows dirties the same index pages again and again:
a long WAL spares copying most of them (measured: 1.6 times the rate of 4,000 pages)."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""A larger WAL file is cut to this at the next checkpoint."""

Row = tuple[Any, ...]
"""A row as SQLite gives it; its types are the schema's."""
Bindings = Sequence[Any]


class Database:
    """One connection to the memory. Made by `open` or `from_bytes`."""

    def __init__(
        self, connection: apsw.Connection, path: str, busy_milliseconds: int = BUSY_MILLISECONDS
    ) -> None:
        self.connection = connection
        self.path = path
        self._busy_milliseconds = busy_milliseconds
        self.temporary_changes = 0
        """Rows that were written to temporary tables, which are no content."""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        busy_milliseconds: int = BUSY_MILLISECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> "Database":
        """Open the database at `path`, or make it (readable by its owner only); `:memory:` makes a new one in memory.

        An older schema is brought up to date, after a backup beside it (`<path>.schema-<n>`).

        Raises VaultDamaged, ForeignFile, SchemaTooNew, VaultBusy, VaultFull or VaultDataError.
        """
        name = str(path)
        file = replace(_FILE, busy_milliseconds=busy_milliseconds, migrations=migrations)
        try:
            connection = file.open(name)
        except NoWal as error:
            raise VaultDataError(
                str(error), hint="A memory must be on a local disk, not on a network share"
            ) from error
        except NoBackup as error:
            raise VaultDataError(f"no backup could be made at {error.filename}: {error.strerror}") from error
        except OSError as error:
            raise VaultDataError(f"{name} cannot be opened: {error.strerror}") from error
        except apsw.Error as error:
            raise translated(error, name) from error
        return cls(connection, name, busy_milliseconds)

    @classmethod
    def from_bytes(cls, image: bytes) -> "Database":
        """A database in memory with the content that `to_bytes` gave."""
        connection = apsw.Connection(MEMORY)
        try:
            connection.deserialize("main", image)
            _FILE.set_up(connection, MEMORY)
        except apsw.Error as error:
            connection.close()
            raise translated(error, MEMORY) from error
        except BaseException:
            connection.close()
            raise
        return cls(connection, MEMORY)

    def to_bytes(self) -> bytes:
        """The whole committed content, as `from_bytes` takes it."""
        return self.connection.serialize("main")

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Statements. Errors of SQLite come out translated; what is not translated is a bug of ours.

    def run(self, statements: str, bindings: Bindings = ()) -> None:
        """Execute one or several statements to their end."""
        try:
            for _ in self.connection.execute(statements, bindings):
                pass
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def changed(self, statement: str, bindings: Bindings = ()) -> int:
        """Execute one statement and count the rows that it changed itself (what triggers did does not count)."""
        self.run(statement, bindings)
        return self.connection.changes()

    def each(self, query: str, bindings: Bindings = ()) -> Iterator[Row]:
        """The rows one by one, for results that should not stand in memory as a whole."""
        try:
            yield from self._cursor(query, bindings)
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def run_many(self, statement: str, rows: Iterable[Bindings]) -> None:
        try:
            for _ in self.connection.executemany(statement, rows):
                pass
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def rows_of_many(self, query: str, bindings: Iterable[Bindings]) -> list[Row]:
        """The rows of the query with each of the bindings, one after the other."""
        try:
            many: Iterator[Row] = self.connection.executemany(query, bindings)
            return list(many)
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def rows(self, query: str, bindings: Bindings = ()) -> list[Row]:
        try:
            return list(self._cursor(query, bindings))
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def row(self, query: str, bindings: Bindings = ()) -> Row | None:
        """The first row, or None."""
        try:
            for row in self._cursor(query, bindings):
                return row
        except apsw.Error as error:
            raise translated(error, self.path) from error
        return None

    def value(self, query: str, bindings: Bindings = ()) -> Any:
        """The first column of the first row, or None if there is no row."""
        row = self.row(query, bindings)
        return None if row is None else row[0]

    def _cursor(self, query: str, bindings: Bindings) -> Iterator[Row]:
        return self.connection.execute(query, bindings)

    # Transactions.

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[None]:
        """All or nothing, with the write lock from the start. Any exception rolls back and goes on.

        Without `durable` the commit does not wait for the disk: it may be lost when the power fails (never when the
        process dies), and the file is sound all the same. For rows that are made again from elsewhere.
        """
        if self.in_transaction():
            raise RuntimeError("a transaction is already open on this connection")
        if not durable:
            self.run("PRAGMA synchronous = NORMAL")
        try:
            self.run("BEGIN IMMEDIATE")
            yield
            self.run("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself after some errors (a full disk, for one).
            if self.in_transaction():
                self.run("ROLLBACK")
            raise
        finally:
            if not durable:
                self.run("PRAGMA synchronous = FULL")

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Reads inside see one and the same state. Inside a write transaction they see that."""
        if self.in_transaction():
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            if self.in_transaction():
                self.run("ROLLBACK")

    def version(self) -> tuple[int, int]:
        """Differs whenever the content may differ from before: by commits of others, and by changes of our own."""
        return int(
            self.value("PRAGMA data_version")
        ), self.connection.total_changes() - self.temporary_changes

    # Care.

    def scrub(self) -> bool:
        """Bring every committed page into the file and empty the WAL, so that deleted bytes are gone from both.

        False if another process still reads an older state: nothing is lost, call again later.
        """
        if self.path == MEMORY:
            return True
        if self.in_transaction():
            return False
        self.connection.set_busy_timeout(SCRUB_MILLISECONDS)
        try:
            row = self.row("PRAGMA wal_checkpoint(TRUNCATE)")
        except VaultBusy:
            return False
        finally:
            self.connection.set_busy_timeout(self._busy_milliseconds)
        return row is not None and row[0] == 0

    def check(self) -> list[str]:
        """What is wrong with the file, its constraints and its indexes, in words; nothing if it is sound. Full scan."""
        found: list[str] = []
        try:
            found += [str(row[0]) for row in self.rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
            found += [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
                for row in self.rows("PRAGMA foreign_key_check")
            ]
            self.run("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
            if self.value("SELECT dimensions FROM index_state"):
                lone = self.value(
                    "SELECT (SELECT count(*) FROM windows WHERE rowid NOT IN (SELECT rowid FROM chunks_vec))"
                    " + (SELECT count(*) FROM chunks_vec WHERE rowid NOT IN (SELECT rowid FROM windows))"
                )
                if lone:
                    found.append(f"{lone} vectors stand in only one of windows and chunks_vec")
        except VaultDamaged as error:
            found.append(str(error))
        return found


def extension_path() -> str:
    """The path of sqlite-vec's library, without the ending. Importing the package would load numpy only to know this."""
    found = find_spec("sqlite_vec")
    if found is None or not found.submodule_search_locations:
        raise VaultDataError("sqlite-vec is not installed", hint="Install memory-crystal again")
    return str(Path(found.submodule_search_locations[0]) / "vec0")


def load_vectors(connection: apsw.Connection) -> None:
    """Loads sqlite-vec, which the table of vectors needs. Raises apsw's errors."""
    connection.enable_load_extension(True)
    connection.load_extension(extension_path())
    connection.enable_load_extension(False)


def _prepare(connection: apsw.Connection) -> None:
    try:
        load_vectors(connection)
    except apsw.Error as error:
        raise VaultDataError(
            f"sqlite-vec cannot be loaded: {error}", hint="Install memory-crystal again"
        ) from error


_FILE = SqliteFile(
    application_id=APPLICATION_ID,
    schema="",
    migrations=MIGRATIONS,
    busy_milliseconds=BUSY_MILLISECONDS,
    damaged=VaultDamaged,
    foreign=ForeignFile,
    too_new=SchemaTooNew,
    foreign_keys=True,
    needs_wal=True,
    page_bytes=PAGE_BYTES,
    prepare=_prepare,
    pragmas=f"PRAGMA recursive_triggers = ON; PRAGMA cache_size = -{CACHE_KIBIBYTES};"
    f" PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = {WAL_BYTES_KEPT};"
    f" PRAGMA temp_store = MEMORY",
)


def translated(error: apsw.Error, path: str) -> Exception:
    """SQLite's error as one of ours, or unchanged if it can only come from a bug."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return VaultBusy(f"{path} is in use by another process")
        case apsw.FullError():
            return VaultFull(f"there is no room left to write {path}")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return VaultDamaged(f"{path} is damaged: {error}")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return VaultDataError(
                f"{path} may not be written: {error}", hint="Check who owns the file and its folder"
            )
        case apsw.CantOpenError() | apsw.IOError() | apsw.NoLFSError():
            return VaultDataError(f"{path} cannot be read or written: {error}")
        case _:
            return error
