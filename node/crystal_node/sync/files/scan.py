"""All files of the tree, in the order of full paths, from one pass over its folders.

Only folders are opened. A file is recognised by size, times and inode. One that changed so shortly before the scan that another
change might not alter them is not ``quiet``, and is read again by the next round.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crystal_mirror.file_paths import DEPTH_MAX, folded
from crystal_mirror.files.ports import FileStamp, FileTrouble, LocalFile
from crystal_node.base.file_rules import MARKER_NAME, TEMPORARY_PREFIX, TreeRules, allow_command, held_reason
from crystal_node.base.obeyed_names import is_allowed
from crystal_node.sync.files.folders import FOLDER, folder_of, open_root, trouble, troubles

QUIET_NS = 50_000_000
"""A file that changed less than this before the scan may change again and keep its stamp: the slowest kernel's clock for files
moves every ten milliseconds."""
QUIET_COARSE_NS = 2_000_000_000
"""The same where the file system may count whole seconds, or every other one."""
_SECOND_NS = 1_000_000_000

_LINK = "it is a link, which is never followed and never synced"
_SPECIAL = "it is no regular file"
_HOME = "it is another home of Crystal, with its keys; it is never synced"
_EXECUTABLE = 0o100
_GIT_PARTS = frozenset({"head", "objects", "refs"})
"""A folder with these is a repository of git, whatever it is called."""
_PLAIN = re.compile(
    r"(?!con|prn|aux|nul|com|lpt|clock)[a-z0-9_-](?:[a-z0-9_. -]{0,100}[a-z0-9_-])?", re.ASCII | re.IGNORECASE
)
"""Names that are valid everywhere, which most are. Others are checked by ``crystal_mirror.file_paths``."""
_PLAIN_PATH_MAX = 1000


@dataclass
class Scan:
    """One pass. What follows ``clock_ns`` is filled while it is iterated over.

    ``closed``: folders that are left out as they are: repositories of git by another name, and other homes of Crystal.
    """

    root: Path
    rules: TreeRules
    clock_ns: Callable[[], int] = time.time_ns
    refused: dict[str, str] = field(default_factory=dict[str, str])
    temporaries: list[str] = field(default_factory=list[str])
    closed: list[str] = field(default_factory=list[str])
    _judged: str = ""
    _ordinary: bool = False

    def __iter__(self) -> Iterator[LocalFile]:
        with troubles():
            descriptor = open_root(self.root)
        yield from self._folder(descriptor, "", 1)

    def _folder(self, descriptor: int, prefix: str, depth: int) -> Iterator[LocalFile]:
        """Yields the files of an open folder and of those below it. Closes the descriptor."""
        try:
            entries: list[tuple[str, os.stat_result]] = []
            with os.scandir(descriptor) as listing:
                found = list(listing)
            if self._closes(prefix, found):
                return
            for entry in found:
                self._take(entry, prefix, entries)
            entries.sort(key=lambda one: one[0])
            now = self.clock_ns()
            for name, info in entries:
                if name[-1] != "/":
                    yield local_of(prefix + name, info, now)
                elif depth < DEPTH_MAX:
                    yield from self._below(descriptor, prefix, name[:-1], depth)
        except OSError as error:
            self.refused[shown(prefix)] = str(trouble(error))
        finally:
            os.close(descriptor)

    def _closes(self, prefix: str, found: "list[os.DirEntry[str]]") -> bool:
        """Whether a folder below the home is left out for what it is."""
        if not prefix or self.rules.allowed is None:
            return False
        reason = closed_reason(prefix[:-1], {entry.name for entry in found}, self.rules)
        if reason is not None:
            self.refused[shown(prefix)] = reason
            self.closed.append(prefix[:-1])
        return reason is not None

    def _is_plain(self, prefix: str, length: int) -> bool:
        """Whether no plain name in this folder can be one of Crystal's own files, in any spelling."""
        if prefix != self._judged:
            self._judged = prefix
            folder = folded(prefix[:-1])
            self._ordinary = bool(prefix) and not self.rules.has_own_in(folder)
        return self._ordinary and length <= _PLAIN_PATH_MAX

    def _holds(self, path: str, folder: bool) -> bool:
        """Whether it is held back for its name. A folder's content is not listed then."""
        part = self.rules.held(path + "/" if folder else path)
        if part is None:
            return False
        if not (self.rules.patterns and self.rules.excluded(path)):
            self.refused[shown(path + "/" if folder else path)] = held_reason(shown(part))
        return True

    def _below(self, folder: int, prefix: str, name: str, depth: int) -> Iterator[LocalFile]:
        try:
            below = os.open(name, FOLDER, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self.refused[shown(f"{prefix}{name}/")] = str(trouble(error))
            return
        yield from self._folder(below, f"{prefix}{name}/", depth + 1)

    def _take(
        self, entry: "os.DirEntry[str]", prefix: str, entries: list[tuple[str, os.stat_result]]
    ) -> None:
        name = entry.name
        path = prefix + name
        plain = _PLAIN.fullmatch(name) is not None and self._is_plain(prefix, len(path))
        if not plain and self.rules.is_own(path):
            if name.startswith(TEMPORARY_PREFIX):
                self.temporaries.append(path)
            return
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            self.refused[shown(path)] = str(trouble(error))
            return
        folder = stat.S_ISDIR(info.st_mode)
        if self.rules.patterns and self.rules.excluded(path) and not folder:
            return
        if self._holds(path, folder):
            return
        fault = None if plain else self.rules.fault(path)
        if fault is None and not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
            fault = _LINK if stat.S_ISLNK(info.st_mode) else _SPECIAL
        if fault is not None:
            self.refused[shown(path)] = fault
        else:
            entries.append((name + "/" if stat.S_ISDIR(info.st_mode) else name, info))


def closed_reason(folder: str, names: Collection[str], rules: TreeRules) -> str | None:
    """Why a folder with these names in it is left out with all of them; None if it is not."""
    lowered = {name.lower() for name in names}
    if MARKER_NAME in lowered:
        return _HOME
    if not lowered >= _GIT_PARTS or is_allowed(folder, rules.allowed or ()):
        return None
    return f"it is a repository of git; {allow_command(folder)} lets it be synced here"


def closed_above(root: Path, path: str, rules: TreeRules) -> str | None:
    """Why a folder above the path is left out with all that it holds, by what stands on the disk now; None if none is."""
    folder = path.rpartition("/")[0] if rules.allowed is not None else ""
    while folder:
        with suppress(OSError):
            reason = closed_reason(folder, _names_in(root / folder), rules)
            if reason is not None:
                return reason
        folder = folder.rpartition("/")[0]
    return None


def _names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def is_closed_folder(root: Path, path: str) -> bool:
    """Whether a folder of this disk is left out as it is, and may be allowed."""
    try:
        return closed_reason(path, _names_in(root / path), TreeRules(allowed=())) not in (None, _HOME)
    except OSError:
        return False


def is_held(root: Path, path: str, rules: TreeRules) -> bool:
    """Whether a path is held back, by its names or by a folder in which it would come to stand."""
    return rules.held(path) is not None or closed_above(root, path, rules) is not None


def look(root: Path, path: str, clock_ns: Callable[[], int] = time.time_ns) -> LocalFile | None:
    """One file as it is now; None if there is none, or a folder stands in its place.

    Raises FileTrouble for a link or another file that is not regular, and for a link on the way.
    """
    with folder_of(root, path) as found:
        if found is None:
            return None
        return look_in(found[0], found[1], path, clock_ns)


def look_in(
    folder: int, name: str, path: str, clock_ns: Callable[[], int] = time.time_ns
) -> LocalFile | None:
    """``look`` in an open folder."""
    with troubles():
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
    if stat.S_ISDIR(info.st_mode):
        return None
    if not stat.S_ISREG(info.st_mode):
        raise FileTrouble(_LINK if stat.S_ISLNK(info.st_mode) else _SPECIAL)
    return local_of(path, info, clock_ns())


def local_of(path: str, info: os.stat_result, now_ns: int) -> LocalFile:
    stamp = FileStamp(info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
    # No program can set this time, so a fraction in it shows that the file system keeps fractions of a second.
    window = QUIET_NS if stamp.changed_ns % _SECOND_NS else QUIET_COARSE_NS
    quiet = now_ns - stamp.changed_ns > window and abs(now_ns - stamp.modified_ns) > window
    return LocalFile(path, stamp, bool(info.st_mode & _EXECUTABLE), quiet)


def shown(path: str) -> str:
    """A path, possibly not valid Unicode, as text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
