"""The sessions of all machines as a list shows them, cached in one file that is read at once.

Loads next to nothing: a list is to be there when a person has typed the command.
"""

import os

import msgspec

VERSION = 1
INDEX_BYTES_MAX = 256 * 1024 * 1024

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
    return os.path.join(home, "state", "resume", "index.json")  # noqa: PTH118  pathlib costs 5 ms


def read_index(home: str) -> SessionIndex:
    """The cache as it is; an empty one if there is none that can be used."""
    from crystal_crypto.errors import UNDECODABLE
    from crystal_node.base.decoding import from_json

    try:
        with open(index_path(home), "rb") as file:  # noqa: PTH123
            found = from_json(file.read(INDEX_BYTES_MAX), SessionIndex)
    except (OSError, *UNDECODABLE):
        return SessionIndex()
    return found if found.version == VERSION else SessionIndex()
