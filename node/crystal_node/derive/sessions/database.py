"""``state/sessions.db``: how far each transcript of this device is copied, and what the heads of all copies say (``heads``).

Losing it loses nothing: transcripts are compared with the copies from their beginning then, and copied on from where both
agree; heads are read again.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import apsw
import msgspec

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.errors import LocalStorage
from crystal_node.capture.line_reader import FileState
from crystal_node.derive.sessions.layout import Base, CopyPlace

_SCHEMA = """
CREATE TABLE cursor (path BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
"""
_HEADS = """
CREATE TABLE head (folder TEXT PRIMARY KEY, modified INTEGER NOT NULL, size INTEGER NOT NULL, tool TEXT NOT NULL,
                   session TEXT NOT NULL, device TEXT NOT NULL, number INTEGER NOT NULL, updated_at INTEGER NOT NULL,
                   packed INTEGER NOT NULL, forgotten INTEGER NOT NULL, removed INTEGER NOT NULL, failed INTEGER NOT NULL,
                   problem TEXT NOT NULL) WITHOUT ROWID, STRICT;
"""
_HEAD = """SELECT folder, modified, size, tool, session, device, number, updated_at, packed, forgotten, removed, failed, problem
           FROM head"""
_SUMS = """
SELECT (SELECT count(*) FROM (SELECT DISTINCT tool, session FROM head WHERE removed = 0 AND problem = '')),
       count(*) FILTER (WHERE removed = 0 AND problem = ''), coalesce(sum(packed) FILTER (WHERE removed = 0), 0),
       (SELECT count(*) FROM (SELECT 1 FROM head WHERE problem = '' GROUP BY tool, session HAVING min(removed) > 0)),
       count(*) FILTER (WHERE problem <> '')
FROM head
"""


def _damaged(text: str) -> LocalStorage:
    return LocalStorage(text, hint="Move state/sessions.db away, with its -wal file: it is made again.")


_FILE = SqliteFile(
    application_id=0x4352_5953 + 0x10,  # "CRYc"
    schema=_SCHEMA,
    busy_milliseconds=30_000,
    damaged=_damaged,
    too_new=lambda text: LocalStorage(text, hint="Upgrade Crystal on this machine; nothing was changed."),
    synchronous="NORMAL",
    migrations=(lambda db: db.execute(_HEADS),),
)

Count = Annotated[int, msgspec.Meta(ge=0)]


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """How far a transcript is copied, and into which stream. ``base``: what that stream stands on, if it has no head yet.
    ``context``: what earlier lines say about later ones (``capture.context``). ``moment``: the last time that a line named, in
    milliseconds. ``ended``: the last line was taken without its newline."""

    session: str
    tool_session: str = ""
    number: int = 0
    state: FileState = FileState()
    length: Count = 0
    digest: str = "0" * 64
    base: Base | None = None
    context: bytes = b""
    moment: int = 0
    cwd: str = ""
    repository: str = ""
    ended: bool = False
    side: dict[str, FileState] = {}
    settled: bool = False


class HeadRow(NamedTuple):
    """What a head said when it was last read. ``folder``: its folder below ``sessions``; ``modified`` (ns) and ``size`` of its
    file; ``failed``: when its copy was last found incomplete or damaged, in milliseconds, 0 if it was not; ``problem``: why the
    head cannot be used, "" if it can. All else as in ``layout.Head``; ``packed`` is the sum of its segments."""

    folder: str
    modified: int
    size: int
    tool: str = ""
    session: str = ""
    device: str = ""
    number: int = 0
    updated_at: int = 0
    packed: int = 0
    forgotten: int = 0
    removed: int = 0
    failed: int = 0
    problem: str = ""

    @property
    def place(self) -> CopyPlace:
        return CopyPlace(self.tool, self.session, self.device, self.number)


class SessionDatabase:
    """The cursors of one home, over one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path) -> "SessionDatabase":
        """Raises LocalStorage."""
        return cls(_FILE.open(path))

    def close(self) -> None:
        self._db.close()

    def cursor(self, path: Path) -> Cursor | None:
        """None also for one that another version wrote: the transcript is compared with its copies then."""
        row = self._db.execute("SELECT value FROM cursor WHERE path = ?", (os.fsencode(path),)).fetchone()
        return None if row is None else _decoded(row[0])

    def cursors(self) -> list[tuple[Path, Cursor]]:
        found = [
            (Path(os.fsdecode(path)), _decoded(value))
            for path, value in self._db.execute("SELECT path, value FROM cursor")
        ]
        return [(path, cursor) for path, cursor in found if cursor is not None]

    def drop_cursor(self, path: Path) -> None:
        with immediate(self._db):
            self._db.execute("DELETE FROM cursor WHERE path = ?", (os.fsencode(path),))

    def set_cursor(self, path: Path, cursor: Cursor) -> None:
        with immediate(self._db):
            self._db.execute(
                "INSERT OR REPLACE INTO cursor (path, value) VALUES (?, ?)",
                (os.fsencode(path), msgspec.msgpack.encode(cursor)),
            )

    def heads(self, *, behind: int | None = None) -> list[HeadRow]:
        """What is known of the heads; with ``behind`` only of usable ones that followed other forgets."""
        if behind is None:
            rows = self._db.execute(_HEAD)
        else:
            rows = self._db.execute(
                f"{_HEAD} WHERE forgotten <> ? AND removed = 0 AND problem = '' ORDER BY folder", (behind,)
            )
        return [HeadRow(*row) for row in rows]

    def note_heads(self, rows: Iterable[HeadRow], gone: Iterable[str] = ()) -> None:
        """Replaces what is known of these heads, and removes those in ``gone``."""
        rows, gone = list(rows), list(gone)
        if not rows and not gone:
            return
        with immediate(self._db):
            self._db.executemany(
                "INSERT OR REPLACE INTO head VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            self._db.executemany("DELETE FROM head WHERE folder = ?", [(folder,) for folder in gone])

    def note_failed(self, folder: str, at: int) -> None:
        with immediate(self._db):
            self._db.execute("UPDATE head SET failed = ? WHERE folder = ?", (at, folder))

    def sums(self) -> tuple[int, int, int, int, int]:
        """Sessions, copies, their bytes, sessions whose content was removed, and heads that cannot be used."""
        row = self._db.execute(_SUMS).fetchone()
        assert row is not None, "sums are one row"
        sessions, copies, packed, removed, unreadable = row
        return int(sessions), int(copies), int(packed), int(removed), int(unreadable)

    def meta(self, name: str) -> bytes:
        """A named value, b"" if it is not set."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else b""

    def set_meta(self, name: str, value: bytes) -> None:
        with immediate(self._db):
            self._db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def _decoded(value: bytes) -> Cursor | None:
    try:
        return from_msgpack(value, Cursor)
    except UNDECODABLE:
        return None
