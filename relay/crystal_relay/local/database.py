"""The SQLite file of a local store: its settings, its one table, and what its errors mean.

One row is one object. A small object's bytes stand in the row; a large one's row names a file. Listing reads rows only,
so an object whose row is not committed does not exist. `synchronous=FULL`: a commit that returned is on the disk.
`secure_delete`: what was deleted is overwritten, in the file at the next checkpoint; the writer makes one after deletions.
"""

import errno
from pathlib import Path

import apsw

from crystal_relay.errors import InUse, RelayError, StoreDamaged, StoreFull, StoreUnavailable

APPLICATION_ID = 0x43525953
"""`CRYS`: what `file` and SQLite tools show of the database."""
SCHEMA_VERSION = 1
WAL_PAGES_MAX = 2048
"""Pages of 4 KiB after which a commit also copies the log into the database."""
BUSY_MS = 5_000

_FLUSH_FAILED = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE object (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  size INTEGER NOT NULL CHECK (size >= 0),
  file TEXT,
  body BLOB,
  CHECK ((file IS NULL) <> (body IS NULL))
);
CREATE UNIQUE INDEX object_file ON object (file) WHERE file IS NOT NULL;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


def open_for_writing(path: Path) -> apsw.Connection:
    """Open or create the database. Raises StoreDamaged for a file that is none, or of a newer version."""
    connection = apsw.Connection(str(path))
    try:
        _configure(connection)
        application = connection.pragma("application_id")
        version = connection.pragma("user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_master").get
        if application == 0 and version == 0 and tables == 0:
            connection.pragma("journal_mode", "wal")
            connection.execute(_SCHEMA)
        elif application != APPLICATION_ID:
            raise StoreDamaged("that directory holds another program's database")
        elif version != SCHEMA_VERSION:
            raise StoreDamaged(
                f"the store has version {version}, this program knows {SCHEMA_VERSION}",
                hint="Run the relay that wrote it, or a newer one.",
            )
        connection.pragma("wal_autocheckpoint", WAL_PAGES_MAX)
        connection.pragma("synchronous", "full")
        connection.pragma("secure_delete", 1)
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> apsw.Connection:
    """Another connection to a database that `open_for_writing` has opened."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    _configure(connection)
    connection.pragma("query_only", 1)
    return connection


def lock(path: Path) -> apsw.Connection:
    """Hold `path` for this process, until the connection is closed or the process dies. Raises InUse."""
    connection = apsw.Connection(str(path))
    try:
        # Nothing is ever written to it: SQLite's lock works the same on every system.
        connection.pragma("journal_mode", "memory")
        connection.execute("BEGIN EXCLUSIVE")
    except apsw.BusyError:
        connection.close()
        raise InUse(
            "another process uses this store's directory",
            hint="One relay at a time may use a directory. Stop the other one, or choose another directory.",
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def error_of_sqlite(error: apsw.Error, connection: apsw.Connection | None = None) -> RelayError:
    """The store's error for an error of SQLite."""
    number = connection.system_errno if connection is not None else 0
    # If a flush fails, everything was written and may reappear after a crash: never report "nothing was stored".
    flush = getattr(error, "extendedresult", 0) in _FLUSH_FAILED
    if isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and is_full(number) and not flush
    ):
        return StoreFull("the relay's disk is full")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreDamaged("the relay's database is damaged")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreUnavailable(
            f"the relay's database cannot be used ({type(error).__name__})",
            hint="Check the owner and the permissions of the relay's directory.",
        )
    return StoreUnavailable(f"the relay's database failed ({type(error).__name__})")


def error_of_system(error: OSError) -> RelayError:
    """The store's error for an error of the file system."""
    if is_full(error.errno):
        return StoreFull("the relay's disk is full")
    return StoreUnavailable(f"the relay's disk failed ({errno.errorcode.get(error.errno or 0, 'unknown')})")


def is_full(number: int | None) -> bool:
    """Whether an errno means that there is no space: disk, quota or file size limit."""
    return number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_MS)
    connection.pragma("trusted_schema", 0)
