"""Opening of SQLite files: every database except the relay's, which imports none of these packages.

Rules:

- A new file is readable by its owner only. WAL, ``synchronous=FULL`` and ``secure_delete`` unless a file says otherwise.
- Opening a file that needs no change takes no lock: a reader waits for no writer.
- A file of another program or of a later version is refused before a byte of it is changed. The caller chooses the error,
  because only the caller knows how valuable the file is.
- An older schema is migrated in one transaction, after a backup beside the file (``<path>.schema-<n>``).
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import apsw
from msgspec import Struct

from crystal_core.encryption import connect
from crystal_crypto.errors import CrystalError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MEMORY = ":memory:"
"""Path of a database that exists only while its connection is open."""
FILE_MODE = 0o600
_WAL_RETRY_SECONDS = 0.02
_REOPENINGS_MAX = 3
"""How often a file is opened again because another one has taken its name meanwhile."""

Migration = Callable[[apsw.Connection], object]
"""Migration from one version of a schema to the next, within a transaction."""


ROOM_BYTES_MIN = 64 * 1024
"""A disk with less room than this is full: a page and a frame of the log no longer fit beside each other."""


class NoWal(OSError):
    """The file's folder does not support WAL mode; most often a network share."""


class NoBackup(OSError):
    """The backup before a migration failed."""


class SqliteFile(Struct, frozen=True):
    """A kind of file: its schema, and how it is opened.

    ``schema`` creates version 1; ``migrations`` lead from each version to the next, without ``schema`` the first one from an
    empty file. ``damaged``, ``too_new`` and ``foreign`` create errors from a message that names the file. ``remake``: a file of
    another version or program is emptied and recreated, because its content can be rebuilt. ``page_bytes``: page size of a new
    file; ``prepare``: called with a connection before the first read; ``pragmas``: further settings. ``needs_wal``: refuse a
    file that does not support WAL mode.
    """

    application_id: int
    schema: str
    busy_milliseconds: int
    damaged: Callable[[str], Exception]
    too_new: Callable[[str], Exception]
    foreign: Callable[[str], Exception] | None = None
    migrations: Sequence[Migration] = ()
    synchronous: str = "FULL"
    secure_delete: bool = True
    foreign_keys: bool = False
    remake: bool = False
    page_bytes: int = 0
    prepare: Callable[[apsw.Connection], None] | None = None
    needs_wal: bool = False
    pragmas: str = ""

    @property
    def version(self) -> int:
        """The newest version of the schema."""
        return len(self.migrations) + bool(self.schema)

    def open(self, path: Path | str) -> apsw.Connection:
        """Open or create the file; ``":memory:"`` creates one in memory.

        Raises the errors of ``damaged``, ``too_new`` and ``foreign``; NoWal, NoBackup, other OSErrors, DatabaseKeyMissing,
        NoCiphers, and apsw's errors.
        """
        if path == MEMORY:
            return self._opened(path)
        for _ in range(_REOPENINGS_MAX):
            _make_private(path)
            before = _inode(path)
            try:
                db = self._opened(path)
            except (apsw.Error, CrystalError):
                if _inode(path) == before:
                    raise
                continue
            if _inode(path) == before:
                return db
            # Encrypting or restoring has put another file there while this one waited: what is written here would be lost.
            db.close()
        return self._opened(path)

    def _opened(self, path: Path | str) -> apsw.Connection:
        db = (
            apsw.Connection(MEMORY)
            if path == MEMORY
            else connect(path, busy_milliseconds=self.busy_milliseconds)
        )
        try:
            self.set_up(db, path)
        except BaseException:
            db.close()
            raise
        return db

    def set_up(self, db: apsw.Connection, path: Path | str) -> None:
        """Check, configure and if necessary migrate an opened file. Raises as ``open``."""
        try:
            db.set_busy_timeout(self.busy_milliseconds)
            if self.page_bytes and path != MEMORY:
                db.execute(f"PRAGMA page_size={self.page_bytes}")  # of no effect on a file that has pages
            if self.prepare is not None:
                self.prepare(db)
            version = self._version(db, path)
            if path != MEMORY:
                mode = _use_wal(db, self.busy_milliseconds)
                if self.needs_wal and mode != "wal":
                    raise NoWal(f"{path} cannot be used in WAL mode")
            _configure(db, self.synchronous, secure_delete=self.secure_delete)
            if self.foreign_keys:
                db.execute("PRAGMA foreign_keys=ON")
            if self.pragmas:
                db.execute(self.pragmas)
            if version != self.version:
                with immediate(db):
                    self._migrate(db, path)
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise self.damaged(f"{path} is damaged: {error}") from error

    def _version(self, db: apsw.Connection, path: Path | str) -> int:
        """Return the schema's version; 0 for an empty file, -1 for one to recreate."""
        application, version = _number(db, "application_id"), _number(db, "user_version")
        if application != self.application_id or not version:
            if not (application or version or db.execute("SELECT count(*) FROM sqlite_schema").get):
                return 0
            # Another process may have created the file between these queries.
            application, version = _number(db, "application_id"), _number(db, "user_version")
        if application != self.application_id or not version:
            if self.remake:
                return -1
            raise (self.foreign or self.damaged)(f"{path} is a database of another program")
        if version > self.version and not self.remake:
            raise self.too_new(
                f"{path} has schema {version}; this program knows schemas up to {self.version}"
            )
        return version

    def _migrate(self, db: apsw.Connection, path: Path | str) -> None:
        version = self._version(db, path)
        if version == self.version:
            return  # by another process, meanwhile
        if self.remake and version:
            _drop_tables(db)
            version = 0
        if version and path != MEMORY:
            _back_up(Path(path), Path(f"{path}.schema-{version}"))
        if self.schema and not version:
            db.execute(self.schema)
        for migrate in self.migrations[max(version - bool(self.schema), 0) :]:
            migrate(db)
        db.execute(f"PRAGMA application_id={self.application_id}")
        db.execute(f"PRAGMA user_version={self.version}")


def open_read_only(
    path: Path | str, *, busy_milliseconds: int = 0, immutable: bool = False, trusted: bool = True
) -> apsw.Connection:
    """Open a file for reading, without checking its kind.

    ``immutable``: nothing changes it meanwhile, so no lock is taken and no file is created beside it. Not ``trusted``: its
    schema may be another program's and must not run functions with side effects, and it has no key of ours. Raises apsw's
    errors, DatabaseKeyMissing, NoCiphers.
    """
    parameters = "mode=ro&immutable=1" if immutable else "mode=ro"
    uri = f"file:{quote(os.fsencode(Path(path).absolute()))}?{parameters}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    if trusted:
        return connect(path, filename=uri, flags=flags, busy_milliseconds=busy_milliseconds)
    db = apsw.Connection(uri, flags=flags)
    if busy_milliseconds:
        db.set_busy_timeout(busy_milliseconds)
    db.execute("PRAGMA trusted_schema=OFF")
    return db


def open_scratch(path: Path | str, schema: str, *, busy_milliseconds: int) -> apsw.Connection:
    """Open or create a disposable file without versions, with a rollback journal so that removing it leaves nothing."""
    _make_private(path)
    db = connect(path, busy_milliseconds=busy_milliseconds)
    try:
        db.execute("PRAGMA journal_mode=DELETE")
        _configure(db, "FULL", secure_delete=True)
        db.execute(schema)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def immediate(db: apsw.Connection) -> Generator[None]:
    """Transaction that holds the write lock from its beginning. Not nested."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:  # a full disk has rolled back by itself
            db.execute("ROLLBACK")
        if isinstance(error, apsw.IOError) and no_room(db.filename):
            raise apsw.FullError(f"there is no room left to write {db.filename}") from error
        raise


def no_room(path: Path | str) -> bool:
    """Whether the disk of that file is full. SQLite calls some failures on a full disk an I/O error."""
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN


def _make_private(path: Path | str) -> None:
    """Create a missing file as private: SQLite would apply the umask."""
    if path != MEMORY:
        with suppress(IsADirectoryError):  # SQLite says that it cannot be opened, as of anything else
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def _inode(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _configure(db: apsw.Connection, synchronous: str, *, secure_delete: bool) -> None:
    db.execute(f"PRAGMA synchronous={synchronous}")
    if secure_delete:
        db.execute("PRAGMA secure_delete=ON")


def _use_wal(db: apsw.Connection, busy_milliseconds: int) -> str:
    """Turn on WAL mode and return the mode.

    Two processes creating the file at once can conflict here, and SQLite does not wait for this lock by itself.
    """
    deadline = time.monotonic() + busy_milliseconds / 1000
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode=WAL").get)
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAL_RETRY_SECONDS)


def _drop_tables(db: apsw.Connection) -> None:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (name,) in list(db.execute(query)):
        db.execute(f'DROP TABLE "{name}"')


def _back_up(source: Path, target: Path) -> None:
    """Copy the committed state, synced to disk before it gets its name. The caller holds the write lock."""
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        committed, copy = open_read_only(source), connect(draft)
        try:
            copy.execute(
                f"PRAGMA page_size={_number(committed, 'page_size')}"
            )  # encrypted files are copied page by page
            with copy.backup("main", committed, "main") as backup:
                backup.step()
        finally:
            copy.close()
            committed.close()
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise NoBackup(error.errno, error.strerror, str(target)) from error
    finally:
        draft.unlink(missing_ok=True)


def _number(db: apsw.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").get)


def integers(joined: str | None) -> "NDArray[np.int64]":
    """Parse the integers of `group_concat(column)`, which is NULL for no rows.

    Joined by SQLite, 100,000 rows take 5 ms, and NumPy parses them in 1 ms; fetched one by one they take 50 ms.
    """
    import numpy as np  # lazy: commands and hooks that open a database need no NumPy

    if not joined:
        return np.empty(0, np.int64)
    return np.fromstring(joined, np.int64, sep=",")
