"""The small databases beside ``crystal.db``: one way to open or make them, and one kind of transaction.

Rules:

- WAL, ``synchronous=FULL`` and ``secure_delete`` unless the file says otherwise; readable by its owner only.
- Whoever finds the file as it should be takes no lock: who only looks waits for nobody who writes.
- A file of another program, or of a later version, is refused before a byte of it is changed. What is raised then is the
  caller's, for only that knows what the file is worth to a person.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

MEMORY = ":memory:"
"""The path of a database that lives as long as its connection."""
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """What a file holds. ``damaged`` and ``too_new`` make the errors, from a sentence that names the file."""

    application_id: int
    version: int
    schema: str
    busy_milliseconds: int
    damaged: Callable[[str], Exception]
    too_new: Callable[[str], Exception]
    synchronous: str = "FULL"
    secure_delete: bool = True

    def open(self, path: Path | str) -> apsw.Connection:
        """Opens or makes the file; ``":memory:"`` gives a new one in memory."""
        if path != MEMORY:
            with suppress(IsADirectoryError):  # SQLite says that it cannot be opened, as of anything else
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        db = apsw.Connection(str(path))
        try:
            db.set_busy_timeout(self.busy_milliseconds)
            made = self._is_made(db, path)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(f"PRAGMA synchronous={self.synchronous}")
            if self.secure_delete:
                db.execute("PRAGMA secure_delete=ON")
            if not made:
                with immediate(db):
                    self._make(db, path)
        except (apsw.NotADBError, apsw.CorruptError) as error:
            db.close()
            raise self.damaged(f"{path} is damaged: {error}") from error
        except BaseException:
            db.close()
            raise
        return db

    def _is_made(self, db: apsw.Connection, path: Path | str) -> bool:
        """False for an empty file. Raises what ``damaged`` and ``too_new`` make."""
        version, application_id = _number(db, "user_version"), _number(db, "application_id")
        if version == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").get:
            return False
        if application_id != self.application_id or version == 0:
            raise self.damaged(f"{path} is a database of something else")
        if version > self.version:
            raise self.too_new(f"{path} has schema {version}, this version knows {self.version}")
        return True

    def _make(self, db: apsw.Connection, path: Path | str) -> None:
        if self._is_made(db, path):
            return  # by another process, meanwhile
        db.execute(self.schema)
        db.execute(f"PRAGMA application_id={self.application_id}")
        db.execute(f"PRAGMA user_version={self.version}")


@contextmanager
def immediate(db: apsw.Connection) -> Generator[None]:
    """A transaction that has the write lock from its beginning. Not nested."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled back by itself
            db.execute("ROLLBACK")
        raise


def _number(db: apsw.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").get)
