"""``state/resume.db``: the sessions of all machines as a list shows them, cached as one value that is read at once.

It is a database because titles and last words are a person's: encrypted where the home's databases are, and overwritten when
they go. Loads next to nothing: a list is to be there when a person has typed the command.
"""

import os
from contextlib import closing

import apsw
import msgspec

from crystal_core.sqlite_file import SqliteFile
from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_node.base.errors import LocalStorage

VERSION = 1
INDEX_BYTES_MAX = 256 * 1024 * 1024

_SCHEMA = "CREATE TABLE list (one INTEGER PRIMARY KEY CHECK (one = 1), mark TEXT NOT NULL, value BLOB NOT NULL) STRICT"
_VALUE = "SELECT value FROM list WHERE length(value) <= ?"


class ListUnusable(LocalStorage):
    """The cache is damaged, or another version's: another one is begun."""

    hint = "Move state/resume.db away, with its -wal file: it is made again."


INDEX_FILE = SqliteFile(
    application_id=0x4352_5953 + 0x11,  # "CRYd"
    schema=_SCHEMA,
    busy_milliseconds=5_000,
    damaged=ListUnusable,
    too_new=ListUnusable,
    synchronous="NORMAL",
)

Stamp = tuple[tuple[str, str, int, int], ...]
"""Of each head: device, number, time of its last change in nanoseconds, size."""


class SessionRow(msgspec.Struct, frozen=True, array_like=True):
    """A session, or one branch of a forked one. ``device`` and ``number``: of the copy that holds most. ``project``: the
    repository, else the folder. ``new_lines``: how many lines of it this machine's own tool does not have. ``branches``: how
    many the session has. Times in milliseconds since 1970."""

    tool: str
    session: str
    device: str
    number: int
    title: str
    last_words: str
    project: str
    updated_at: int
    lines: int
    new_lines: int
    branches: int


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one session's folder."""

    stamp: Stamp
    rows: tuple[SessionRow, ...]


class SessionIndex(msgspec.Struct):
    """``device``: this machine's own id, "" if it is not known. ``names``: of devices. ``sessions``: by tool and folder."""

    version: int = VERSION
    device: str = ""
    names: dict[str, str] = {}
    sessions: dict[str, Known] = {}

    def rows(self) -> list[SessionRow]:
        """All sessions, that which grew last first."""
        found = [row for known in self.sessions.values() for row in known.rows]
        found.sort(key=lambda row: (-row.updated_at, row.session, row.device, row.number))
        return found

    def device_name(self, device: str) -> str:
        return self.names.get(device) or device[:8]


def index_path(home: str) -> str:
    """The cache's file in a home."""
    return os.path.join(home, "state", "resume.db")  # noqa: PTH118  pathlib costs 5 ms


def read_index(home: str) -> SessionIndex:
    """The cache as it is; an empty one if there is none that can be used."""
    from crystal_node.base.decoding import from_msgpack

    path = index_path(home)
    if not os.path.exists(path):  # noqa: PTH110
        return SessionIndex()
    try:
        with closing(INDEX_FILE.open(path)) as db:
            row = db.execute(_VALUE, (INDEX_BYTES_MAX,)).fetchone()
        found = from_msgpack(row[0], SessionIndex) if row and row[0] else SessionIndex()
    except (OSError, apsw.Error, CrystalError, *UNDECODABLE):
        return SessionIndex()
    return found if found.version == VERSION else SessionIndex()
