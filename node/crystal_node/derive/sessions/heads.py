"""What the heads of all copies say, cached in ``state/sessions.db``: with 10,000 sessions reading them takes seconds.

A head is read again when its file's time or size changed. Whether any did is looked at only for a reason: the database
of the synced files changed, or an hour has passed. What this device writes itself is noted as it is written. So an idle service
looks at nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_core.sqlite_file import open_read_only
from crystal_node.base.home import Home
from crystal_node.derive.sessions.copies import SessionCopies, read_head
from crystal_node.derive.sessions.database import HeadRow, SessionDatabase
from crystal_node.derive.sessions.layout import FOLDER, HEAD_NAME, TOOLS, CopyPlace, Head

PACKED_BYTES_MAX = 2**45
"""A head that says more is taken for this much: sums stay numbers that SQLite has."""
LOOK_MS = 3_600_000
"""The heads are looked at at least this often: a person may have copied some here."""
NOTED_TOGETHER = 500
"""Rows that are written in one transaction."""
_META_LOOKED = "heads-looked"


@dataclass(frozen=True, slots=True)
class CopiesSummary:
    """All copies of a home. ``bytes``: of their segments; ``dropped``: sessions whose content the retention rules removed;
    ``unreadable``: heads that cannot be used."""

    sessions: int
    copies: int
    bytes: int
    dropped: int
    unreadable: int


class HeadCache:
    """The heads of one home. ``changes_of``: files whose change means that heads may have arrived."""

    def __init__(self, copies: SessionCopies, database: SessionDatabase, changes_of: Iterable[Path]) -> None:
        self._copies = copies
        self._database = database
        self._changes_of = tuple(changes_of)

    def refresh(self, now_ms: int) -> bool:
        """Read the heads that changed, if there is a reason to look. Returns whether it looked. Raises OSError."""
        looked = _looked(self._changes_of, now_ms)
        if self._database.meta(_META_LOOKED) == looked:
            return False
        known = {row.folder: row for row in self._database.heads()}
        seen: set[str] = set()
        changed: list[HeadRow] = []
        for folder, info in _stats(self._copies.root / FOLDER):
            seen.add(folder)
            before = known.get(folder)
            if before is None or (before.modified, before.size) != (info.st_mtime_ns, info.st_size):
                changed.append(_read(self._copies.root, folder, info))
                if len(changed) == NOTED_TOGETHER:
                    self._database.note_heads(changed)
                    changed = []
        self._database.note_heads(changed, gone=known.keys() - seen)
        self._database.set_meta(_META_LOOKED, looked)
        return True

    def note(self, place: CopyPlace) -> None:
        """Read one head that was just written. Raises OSError."""
        note_head(self._copies.root, self._database, place)

    def heads(self) -> list[HeadRow]:
        """All heads as they were looked at last."""
        return self._database.heads()

    def behind(self, forgets: int) -> list[HeadRow]:
        """Those that were not rewritten without this set of forgotten texts."""
        return self._database.heads(behind=forgets)

    def failed(self, place: CopyPlace, now_ms: int) -> None:
        """Note that a copy could not be read: it is not tried at once again. A changed head ends that."""
        self._database.note_failed(_folder(self._copies.root, place), now_ms)

    def summary(self) -> CopiesSummary:
        """What there is."""
        return CopiesSummary(*self._database.sums())


def head_cache(home: Home, database: SessionDatabase) -> HeadCache:
    """The cache of a home. Heads of other devices arrive as synced files."""
    return HeadCache(SessionCopies(home.root), database, _changes_of(home))


def arrivals(home: Home, now_ms: int) -> bytes:
    """A mark that changes when heads may have arrived in a home, and after each hour. Opens no database."""
    return _looked(_changes_of(home), now_ms)


def _changes_of(home: Home) -> tuple[Path, Path]:
    files = home.files_database
    return files, files.with_name(f"{files.name}-wal")


def _looked(changes_of: Iterable[Path], now_ms: int) -> bytes:
    return " ".join((str(now_ms // LOOK_MS), *map(_stamp, changes_of))).encode()


def copies_summary(home: Home) -> CopiesSummary | None:
    """What there is, as the cache has it, waiting for nobody; None where there is none, or it cannot be read."""
    path = home.sessions_database
    if not path.exists():
        return None
    try:
        with closing(open_read_only(path)) as connection:
            database = SessionDatabase(connection)
            return CopiesSummary(*database.sums()) if database.meta(_META_LOOKED) else None
    except apsw.Error:  # `crystal doctor` tells of a damaged one
        return None


def note_head(root: Path, database: SessionDatabase, place: CopyPlace) -> None:
    """Take over a head that this process just wrote, so that nobody has to look for it. Raises OSError."""
    folder = _folder(root, place)
    database.note_heads([_read(root, folder, _head_path(root, folder).lstat())])


def _read(root: Path, folder: str, info: os.stat_result) -> HeadRow:
    found, problem = None, ""
    try:
        found = read_head(_head_path(root, folder))
        if found.place.folder(root) != root / FOLDER / folder:
            found, problem = None, "it stands in another's place"
    except (OSError, ValueError) as error:
        problem = str(error) or type(error).__name__
    return _row_of(folder, info, found, problem)


def _row_of(folder: str, info: os.stat_result, head: Head | None, problem: str) -> HeadRow:
    if head is None:
        return HeadRow(folder, info.st_mtime_ns, info.st_size, problem=problem)
    return HeadRow(
        folder=folder,
        modified=info.st_mtime_ns,
        size=info.st_size,
        tool=head.tool,
        session=head.session,
        device=head.device,
        number=head.number,
        updated_at=head.updated_at,
        packed=min(head.packed, PACKED_BYTES_MAX),
        forgotten=head.forgotten,
        removed=head.removed,
    )


def _stats(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Each head's folder below ``root``, and its file's times."""
    for tool in TOOLS:
        for session in _folders(os.path.join(root, tool)):  # noqa: PTH118  pathlib takes three times as long
            for device in _folders(session.path):
                for number in _folders(device.path):
                    try:
                        info = os.lstat(os.path.join(number.path, HEAD_NAME))  # noqa: PTH118
                    except OSError:
                        continue
                    yield f"{tool}/{session.name}/{device.name}/{number.name}", info


def _folders(path: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(path) as entries:
            return [
                entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name.isprintable()
            ]
    except OSError:
        return []


def _folder(root: Path, place: CopyPlace) -> str:
    return place.folder(root).relative_to(root / FOLDER).as_posix()


def _head_path(root: Path, folder: str) -> Path:
    return root / FOLDER / folder / HEAD_NAME


def _stamp(path: Path) -> str:
    try:
        info = path.stat()
    except OSError:
        return "-"
    return f"{info.st_mtime_ns}.{info.st_size}"
