"""Databases that other programs own: opened for reading alone, while their program may write.

One is read from one snapshot, or, if it has no journal, as an immutable file, so that nothing is made beside it; that it
did not change is checked afterwards. Beside a database whose program was killed and left a journal, SQLite makes that
journal's index again (``-shm``), which the program uses at its next start.
"""

import errno
import stat
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from crystal_core.sqlite_file import open_read_only
from crystal_node.capture.line_reader import FileState

JOURNAL_ENDING = "-wal"
BUSY_MS = 2000
READ_SECONDS_MAX = 30.0
"""Time limit of one pass: reading a foreign database might never end."""
_STEPS_LOOK = 100_000
_TRIES_MAX = 3
_OF_VALUES = (ValueError, TypeError, OverflowError)
"""Raised by values of unexpected types."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatabaseStamp:
    """Size and times of the database's file and journal together, for ``FileState``; ``file_size`` is the file's alone."""

    file_size: int
    size: int
    modified: int
    changed: int
    inode: int
    journal: bool

    def same(self, state: FileState) -> bool:
        """Whether it is the stamp of the database when the state was taken."""
        return (self.size, self.modified, self.changed, self.inode) == (
            state.size,
            state.modified,
            state.changed,
            state.inode,
        )


def stamp_of(path: Path) -> DatabaseStamp:
    """The database's stamp. Raises OSError: it is missing, or no regular file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    size, modified = found.st_size, found.st_mtime_ns
    try:
        journal = path.with_name(path.name + JOURNAL_ENDING).lstat()
    except FileNotFoundError:
        return DatabaseStamp(size, size, modified, found.st_ctime_ns, found.st_ino, journal=False)
    return DatabaseStamp(
        size,
        size + journal.st_size,
        max(modified, journal.st_mtime_ns),
        found.st_ctime_ns,  # the journal's changes when somebody only opens it
        found.st_ino,
        journal=journal.st_size > 0,
    )


def read_snapshot(path: Path, read: Callable[[apsw.Connection], T], unknown: T) -> tuple[T, DatabaseStamp]:
    """What ``read`` makes of one moment of the database, with its stamp; ``unknown`` if tables or columns are missing.

    ``read`` may be called again. Raises OSError: the database cannot be read, or is written all the time.
    """
    for _ in range(_TRIES_MAX):
        stamp, result = stamp_of(path), unknown
        try:
            with closing(_opened(path, stamp)) as database, database:
                result = read(database)
        except apsw.SQLError as error:
            if not _of_unknown_form(error):
                raise _failure(path, error) from error
        except (apsw.Error, *_OF_VALUES) as error:
            raise _failure(path, error) from error
        if stamp.journal or stamp_of(path) == stamp:
            return result, stamp
    raise OSError(errno.EAGAIN, "it was written all the time", str(path))


def tables_of(database: apsw.Connection) -> dict[str, list[str]]:
    """The columns of each table, by its name. Views, which may compute anything, are none."""
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    names = [str(name) for (name,) in database.execute(query)]
    columns = "SELECT name FROM pragma_table_info(?)"
    return {name: [str(column) for (column,) in database.execute(columns, (name,))] for name in names}


def _opened(path: Path, stamp: DatabaseStamp) -> apsw.Connection:
    """Opens it read-only; without a journal as an immutable file, so that no file is made beside it."""
    database = open_read_only(path, busy_milliseconds=BUSY_MS, immutable=not stamp.journal, trusted=False)
    deadline = time.monotonic() + READ_SECONDS_MAX
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_LOOK)
    return database


def _of_unknown_form(error: apsw.SQLError) -> bool:
    return "no such table" in str(error) or "no such column" in str(error)


def _failure(path: Path, error: Exception) -> OSError:
    return OSError(errno.EIO, f"its database says: {error}", str(path))
