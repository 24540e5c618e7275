"""``state/sessions.db``: how far each transcript of this device is copied.

Losing it loses nothing: transcripts are compared with the copies from their beginning then, and copied on from where both
agree.
"""

import os
from pathlib import Path
from typing import Annotated

import apsw
import msgspec

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.errors import LocalStorage
from crystal_node.capture.line_reader import FileState
from crystal_node.derive.sessions.layout import Base

_SCHEMA = """
CREATE TABLE cursor (path BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
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

    def set_cursor(self, path: Path, cursor: Cursor) -> None:
        with immediate(self._db):
            self._db.execute(
                "INSERT OR REPLACE INTO cursor (path, value) VALUES (?, ?)",
                (os.fsencode(path), msgspec.msgpack.encode(cursor)),
            )

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
