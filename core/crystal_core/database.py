"""The database connection: opens `crystal.db`, runs transactions and translates SQLite's errors.

Rules:

- A `Database` belongs to one thread at a time. Any number of processes, and of `Database` objects in one process, may
  open the same file; nothing read in one transaction is trusted in the next.
- A write transaction takes the write lock at its beginning (BEGIN IMMEDIATE), so that waiting happens before any work.
  A commit is on the disk when it returns (`synchronous=FULL`).
- Deleted content is overwritten (`secure_delete`), in the file itself at the next checkpoint; `scrub` forces one.
- A database of a newer version or of another program is refused before a byte of it is changed.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import apsw
from msgspec.structs import replace

from crystal_core.errors import (
    ForeignFile,
    SchemaTooNew,
    VaultBusy,
    VaultDamaged,
    VaultDataError,
    VaultFull,
)
from crystal_core.schema import APPLICATION_ID, MIGRATIONS, Migration
from crystal_core.sqlite_file import MEMORY, NoBackup, NoWal, SqliteFile, no_room

BUSY_MILLISECONDS = 10_000
"""How long a statement waits for another process before it gives up."""
SCRUB_MILLISECONDS = 500
"""How long `scrub` waits for readers of old states before it gives up until the next call."""
CACHE_KIBIBYTES = 16 * 1024
"""SQLite's page cache for one connection."""
PAGE_BYTES = 8192
"""Page size of a new file: texts of a thousand characters fill 4 KiB pages badly."""
CHECKPOINT_PAGES = 8192
"""WAL pages after which a commit runs a checkpoint. Inserts dirty the same index pages repeatedly; a long WAL copies most of
them once (measured: 1.6 times the rate of 4,000 pages)."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""A larger WAL file is cut to this at the next checkpoint."""

Row = tuple[Any, ...]
"""A row as SQLite returns it; its types are the schema's."""
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
        """Rows written to temporary tables, which are not content."""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        busy_milliseconds: int = BUSY_MILLISECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> "Database":
        """Open or create the database at `path`, readable by its owner only; `:memory:` creates one in memory.

        An older schema is migrated after a backup beside the file (`<path>.schema-<n>`).

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
        """Open an image from `to_bytes` as a database in memory."""
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
        """Return the whole committed content, for `from_bytes`."""
        return self.connection.serialize("main")

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Statements. SQLite's errors are translated; one that is not translated is a bug here.

    def run(self, statements: str, bindings: Bindings = ()) -> None:
        """Execute one or more statements to completion."""
        try:
            for _ in self.connection.execute(statements, bindings):
                pass
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def changed(self, statement: str, bindings: Bindings = ()) -> int:
        """Execute one statement and return the number of rows that it changed, without those changed by triggers."""
        self.run(statement, bindings)
        return self.connection.changes()

    def each(self, query: str, bindings: Bindings = ()) -> Iterator[Row]:
        """Iterate over the rows, for results too large for memory."""
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
        """Run the query with each of the bindings in turn and return all rows."""
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
        """Return the first row, or None."""
        try:
            for row in self._cursor(query, bindings):
                return row
        except apsw.Error as error:
            raise translated(error, self.path) from error
        return None

    def value(self, query: str, bindings: Bindings = ()) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        row = self.row(query, bindings)
        return None if row is None else row[0]

    def _cursor(self, query: str, bindings: Bindings) -> Iterator[Row]:
        return self.connection.execute(query, bindings)

    # Transactions.

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[None]:
        """Write transaction that holds the write lock from the start. Any exception rolls back and propagates.

        Without `durable` the commit does not wait for the disk: a power failure may lose it (a crash of the process does
        not), and the file stays consistent. For rows that can be rebuilt from elsewhere.
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
            # SQLite rolls back by itself after some errors, such as a full disk.
            if self.in_transaction():
                self.run("ROLLBACK")
            raise
        finally:
            if not durable:
                self.run("PRAGMA synchronous = FULL")

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Read transaction: all reads inside see one state. Inside a write transaction, its state."""
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
        """Changes whenever the content may have changed, by other connections' commits or by this one."""
        return int(
            self.value("PRAGMA data_version")
        ), self.connection.total_changes() - self.temporary_changes

    # Maintenance.

    def scrub(self) -> bool:
        """Checkpoint every committed page and empty the WAL, so that deleted bytes are gone from both files.

        False if another process still reads an older state: call again later.
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
        """Describe what is wrong with the file, its constraints and its indexes; empty if it is sound. Full scan."""
        found: list[str] = []
        try:
            found += [str(row[0]) for row in self.rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
            found += [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
                for row in self.rows("PRAGMA foreign_key_check")
            ]
            self.run("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
            found += self._vector_faults()
        except VaultDamaged as error:
            found.append(str(error))
        return found

    def _vector_faults(self) -> Iterator[str]:
        """Compare windows, vectors and signs, which sqlite-vec makes from the vectors once more."""
        size = int(self.value("SELECT dimensions FROM index_state"))
        lone = self.value(
            "SELECT (SELECT count(*) FROM windows WHERE rowid NOT IN (SELECT rowid FROM vectors))"
            " + (SELECT count(*) FROM vectors WHERE rowid NOT IN (SELECT rowid FROM windows))"
        )
        if lone:
            yield f"{lone} vectors stand in only one of windows and vectors"
        wrong = self.value("SELECT count(*) FROM vectors WHERE length(embedding) <> ?", (2 * size,))
        if wrong:
            yield f"{wrong} vectors are not of {size} float16 numbers"
        elif size % 8 == 0:  # vec_quantize_binary takes no others
            signs = self.value(
                "SELECT count(*) FROM windows JOIN vectors USING (rowid)"
                " WHERE bits <> vec_quantize_binary(crystal_float32(embedding))"
            )
            if signs:
                yield f"{signs} vectors have other signs than those in windows"

    def rebuild_indexes(self) -> None:
        """Write again from the rows: the full-text index, the signs of vectors, SQLite's indexes. Belongs in a transaction.

        Raises VaultDamaged if the rows themselves cannot be read or contradict each other.
        """
        self.run("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
        self.run("REINDEX")
        if self.value("SELECT dimensions % 8 = 0 FROM index_state"):
            self.run(
                "UPDATE windows SET bits = vec_quantize_binary(crystal_float32(embedding)) FROM vectors"
                " WHERE vectors.rowid = windows.rowid AND length(embedding) = (SELECT 2 * dimensions FROM index_state)"
            )


def extension_path() -> str:
    """Return the path of sqlite-vec's library without its suffix. Importing the package would load NumPy."""
    found = find_spec("sqlite_vec")
    if found is None or not found.submodule_search_locations:
        raise VaultDataError("sqlite-vec is not installed", hint="Install memory-crystal again")
    return str(Path(found.submodule_search_locations[0]) / "vec0")


def load_vectors(connection: apsw.Connection) -> None:
    """Load sqlite-vec and the two functions that make its float32 numbers from float16 and back. Raises apsw's errors."""
    connection.enable_load_extension(True)
    connection.load_extension(extension_path())
    connection.enable_load_extension(False)
    for name, function in (("crystal_float32", _float32), ("crystal_float16", _float16)):
        connection.create_scalar_function(name, cast("Callable[..., bytes]", function), 1, deterministic=True)


def _float32(halves: bytes) -> bytes:
    import numpy as np  # lazy: most commands touch no vector

    return np.frombuffer(halves, "<f2").astype("<f4").tobytes()


def _float16(floats: bytes) -> bytes:
    import numpy as np  # lazy: as above

    return np.frombuffer(floats, "<f4").astype("<f2").tobytes()


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
    """Return SQLite's error as one of `errors`, or unchanged if only a bug can cause it."""
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
        case apsw.CantOpenError() | apsw.IOError() if no_room(path):
            return VaultFull(f"there is no room left to write {path}")
        case apsw.CantOpenError() | apsw.IOError() | apsw.NoLFSError():
            return VaultDataError(f"{path} cannot be read or written: {error}")
        case _:
            return error
