"""``recall.db``: which messages and memories a session of an agent was given, so that none is given twice.

Each is noted as four bytes of a hash of session and id: enough to recognise it within its session, too little to show what it
was. Nothing here is the only copy of anything: a damaged file is replaced by a new one whenever the damage is met.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

import apsw

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_node.base.errors import LocalStorage

KEPT_MILLISECONDS = 14 * 86_400_000
MARK_BYTES = 4

_SCHEMA = """
CREATE TABLE given (session BLOB NOT NULL, mark INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (session, mark))
    WITHOUT ROWID, STRICT;
CREATE INDEX given_by_time ON given (at);
"""


def _too_new(_: str) -> LocalStorage:
    return LocalStorage(
        "recall.db was made by a later version of Crystal", hint="Update Crystal on this machine."
    )


_FILE = SqliteFile(
    application_id=0x43525952,  # "CRYR"
    schema=_SCHEMA,
    busy_milliseconds=50,
    damaged=apsw.CorruptError,
    too_new=_too_new,
    synchronous="OFF",
)


T = TypeVar("T")


class RecallDatabase:
    """One process's hold of the file. Close it."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    @classmethod
    def open(cls, path: Path) -> "RecallDatabase":
        """Opens or makes it. Raises LocalStorage if a later version made it, apsw.Error."""
        try:
            return cls(_FILE.open(path), path)
        except (apsw.NotADBError, apsw.CorruptError):
            return cls(_new_file(path), path)

    def given(self, session: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that the session was given."""
        key = _session(session)

        def read() -> set[int]:
            found = self._db.execute("SELECT mark FROM given WHERE session = ?", (key,))
            return {mark for (mark,) in cast("Iterable[tuple[int]]", found)}

        marks = self._whole(read)
        return {name for name in ids if _mark(session, name) in marks}

    def note(self, session: str, ids: Iterable[str], now_ms: int) -> None:
        """Note what the session was given, and remove old notes."""
        rows = [(_session(session), _mark(session, name), now_ms) for name in ids]

        def write() -> None:
            with immediate(self._db):
                self._db.execute("DELETE FROM given WHERE at < ?", (now_ms - KEPT_MILLISECONDS,))
                self._db.executemany("INSERT OR REPLACE INTO given VALUES (?, ?, ?)", rows)

        self._whole(write)

    def strike(self, session: str, ids: Iterable[str]) -> None:
        """Remove notes: the session was not given these after all."""
        rows = [(_session(session), _mark(session, name)) for name in ids]

        def write() -> None:
            with immediate(self._db):
                self._db.executemany("DELETE FROM given WHERE session = ? AND mark = ?", rows)

        self._whole(write)

    def clear(self, session: str) -> None:
        """Forget what the session was given: its context was emptied."""

        def write() -> None:
            with immediate(self._db):
                self._db.execute("DELETE FROM given WHERE session = ?", (_session(session),))

        self._whole(write)

    def close(self) -> None:
        self._db.close()

    def _whole(self, act: Callable[[], T]) -> T:
        """The result of ``act``, on a new file if damage shows only now."""
        try:
            return act()
        except (apsw.NotADBError, apsw.CorruptError):
            self._db.close()
            self._db = _new_file(self._path)
            return act()


def _new_file(path: Path) -> apsw.Connection:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    return _FILE.open(path)


def _session(session: str) -> bytes:
    return sha256(session.encode("utf-8", "surrogatepass")).digest()[:16]


def _mark(session: str, name: str) -> int:
    digest = sha256(f"{session}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:MARK_BYTES], "big")
