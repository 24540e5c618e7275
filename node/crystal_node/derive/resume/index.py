"""Keeping the cache of the copies' heads (``rows``) as the copies are.

With 10,000 sessions the heads take seconds to read, the cache takes milliseconds. What changed since is found by the times and
sizes of the heads. Lost or damaged, it is made again. Copies lose forgotten words some time after the memory does: ``follow``
empties the cache at once, and ``drop_changed`` takes out what it has learnt in between.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import msgspec
from msgspec import structs

from crystal_core.sqlite_file import immediate
from crystal_node.derive.resume.rows import (
    INDEX_FILE,
    Known,
    ListUnusable,
    SessionIndex,
    SessionRow,
    Stamp,
    index_path,
    read_index,
)
from crystal_node.derive.sessions.copies import SessionCopies, heads_in
from crystal_node.derive.sessions.layout import HEAD_NAME, Head
from crystal_node.derive.sessions.streams import Branch, branches

TITLE_CHARS_MAX = 300
WORDS_CHARS_MAX = 600
CHANGED_PER_DRAW = 500
"""After so many sessions were read, those that are known so far are told."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The cache in a home. ``root``: the home's folder."""

    root: Path
    copies: SessionCopies = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", SessionCopies(self.root))

    @property
    def path(self) -> Path:
        return Path(index_path(str(self.root)))

    @property
    def former(self) -> Path:
        """The list that versions before the database wrote: never encrypted, and reached by no forget."""
        return self.root / "state" / "resume" / "index.json"

    def read(self) -> SessionIndex:
        """The cache as it is; an empty one if there is none that can be used."""
        return read_index(str(self.root))

    def refreshed(
        self,
        known: SessionIndex,
        device: str,
        names: dict[str, str],
        tell: Callable[[SessionIndex], None] = lambda _: None,
    ) -> SessionIndex:
        """The index as the copies are now; written if something changed. ``tell`` is called with what is known so far."""
        fresh = SessionIndex(device=device, names=names)
        same_device = known.device == device
        read = 0
        for folder in self.copies.names():
            key = f"{folder.parent.name}/{folder.name}"
            stamp = _stamp(folder)
            there = known.sessions.get(key) if same_device else None
            if there is None or there.stamp != stamp:
                there = Known(stamp, tuple(self._rows(folder, device)))
                read += 1
                if read % CHANGED_PER_DRAW == 0:
                    tell(SessionIndex(device=device, names=names, sessions=known.sessions | fresh.sessions))
            fresh.sessions[key] = there
        if read or fresh.sessions.keys() != known.sessions.keys() or known.names != names:
            self._write(fresh)
        return fresh

    def follows(self, mark: str) -> bool:
        """Whether nothing was forgotten since ``follow``. ``mark``: changes with each forget (``forget_mark``)."""
        with self._opened() as db:
            row = db.execute("SELECT mark FROM list").fetchone()
        return row is not None and row[0] == mark

    def follow(self, mark: str) -> None:
        """Empties the cache, and notes up to which forget."""
        with self._opened() as db:
            with immediate(db):
                db.execute("INSERT OR REPLACE INTO list VALUES (1, ?, x'')", (mark,))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def drop_changed(self) -> int:
        """Takes out sessions whose copies are no longer as they were read, or are gone. Returns how many."""
        known = self.read()
        there = {f"{folder.parent.name}/{folder.name}": folder for folder in self.copies.names()}
        kept = {
            key: each
            for key, each in known.sessions.items()
            if key in there and each.stamp == _stamp(there[key])
        }
        if len(kept) != len(known.sessions):
            self._write(structs.replace(known, sessions=kept))
        return len(known.sessions) - len(kept)

    def _write(self, index: SessionIndex) -> None:
        with self._opened() as db:
            with immediate(db):
                db.execute(
                    "INSERT INTO list VALUES (1, '', ?) ON CONFLICT (one) DO UPDATE SET value = excluded.value",
                    (msgspec.msgpack.encode(index),),
                )
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def _opened(self) -> Generator[apsw.Connection]:
        """Raises LocalStorage, OSError, apsw's errors, DatabaseKeyMissing."""
        self.former.unlink(missing_ok=True)
        try:
            db = INDEX_FILE.open(self.path)
        except ListUnusable:
            for ending in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
            db = INDEX_FILE.open(self.path)
        try:
            yield db
        finally:
            db.close()

    def _rows(self, folder: Path, device: str) -> list[SessionRow]:
        heads = list(heads_in(folder))
        found = branches(heads, self.copies.digest_at)
        return [_row(branch, device, len(found)) for branch in found]


def _row(branch: Branch, device: str, count: int) -> SessionRow:
    tip = branch.tip
    own = max((each.lines for each in branch.copies if each.device == device), default=0)
    return SessionRow(
        tool=tip.tool,
        session=tip.session,
        device=tip.device,
        number=tip.number,
        title=tip.title[:TITLE_CHARS_MAX],
        last_words=tip.last_words[:WORDS_CHARS_MAX],
        project=project_of(tip),
        updated_at=tip.updated_at,
        lines=tip.lines,
        new_lines=max(tip.lines - own, 0),
        branches=count,
    )


def project_of(head: Head) -> str:
    """A session's project as people know it: its repository, else its folder."""
    return head.repository or head.cwd


def _stamp(folder: Path) -> Stamp:
    found: list[tuple[str, str, int, int]] = []
    for device in _folders(str(folder)):
        for number in _folders(device.path):
            try:
                head = os.stat(os.path.join(number.path, HEAD_NAME))  # noqa: PTH116, PTH118  pathlib takes three times as long
            except OSError:
                continue
            found.append((device.name, number.name, head.st_mtime_ns, head.st_size))
    return tuple(sorted(found))


def _folders(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
