"""Keeping the cache of the copies' heads (``rows``) as the copies are.

With 10,000 sessions the heads take seconds to read, the cache takes milliseconds. What changed since is found by the times and
sizes of the heads. Lost or damaged, it is made again.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.derive.resume.rows import Known, SessionIndex, SessionRow, Stamp, index_path, read_index
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
            self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            write_private(self.path, msgspec.json.encode(fresh))
        return fresh

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
