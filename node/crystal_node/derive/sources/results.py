"""Results about sources for commands, MCP and the gateway: one schema, with times as ISO 8601 in UTC.

A result may gain fields; none is removed or changes its meaning.
"""

import msgspec


class SourceAdded(msgspec.Struct, frozen=True, kw_only=True):
    """``changed``: the source existed, and its patterns were changed. ``files``: how many are to be read. ``skipped``: how many
    are not, by reason; ``secrets``: names of some that are secrets by their names, folders with a slash at the end. What a file
    holds is judged when it is read: see ``SourceSynced``."""

    name: str
    path: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    changed: bool
    files: int
    skipped: dict[str, int]
    secrets: tuple[str, ...]


class SourceSynced(msgspec.Struct, frozen=True, kw_only=True):
    """What one sync of a source did. ``problem``: why it was not read, "" if it was. ``waiting``: documents whose files are
    gone and which stay until a person confirms their removal. ``complete``: nothing is left for the next sync."""

    name: str
    files: int
    new: int
    changed: int
    removed: int
    pieces: int
    redacted: int
    waiting: int
    waiting_paths: tuple[str, ...]
    skipped: dict[str, int]
    skipped_paths: dict[str, str]
    complete: bool
    problem: str


class SourceLetGo(msgspec.Struct, frozen=True, kw_only=True):
    """A source of this device whose name another one took: ``path`` is not read any more."""

    name: str
    path: str
    device: str


class SourcesSynced(msgspec.Struct, frozen=True, kw_only=True):
    sources: tuple[SourceSynced, ...]
    elsewhere: tuple[str, ...]
    """Names of sources that belong to other devices."""
    let_go: tuple[SourceLetGo, ...] = ()


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source of the vault. What only its own device knows is null on the others: ``path``, ``last_sync``, ``skipped``…

    ``documents`` and ``pieces`` are in the memory here; ``pending`` counts documents that only this device has so far.
    """

    name: str
    device: str
    here: bool
    folder: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    documents: int
    pieces: int
    pending: int
    path: str | None = None
    last_sync: str | None = None
    last_change: str | None = None
    complete: bool | None = None
    bytes: int | None = None
    redacted: int | None = None
    waiting: int = 0
    waiting_paths: tuple[str, ...] = ()
    skipped: dict[str, int] | None = None
    skipped_paths: dict[str, str] | None = None
    problem: str = ""


class SourcesStatus(msgspec.Struct, frozen=True, kw_only=True):
    sources: tuple[SourceStatus, ...]


class SourceRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """``documents``: how many go with it, on every device."""

    name: str
    device: str
    here: bool
    documents: int
