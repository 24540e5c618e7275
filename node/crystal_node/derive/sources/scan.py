"""Scan of a source: one pass over its folders that opens only folders and ignore files.

Links are never followed and other file systems never entered. A folder that cannot be listed is noted in ``unlisted``: what is
below it does not count as gone.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crystal_crypto.errors import Malformed
from crystal_mirror.operations import check_words
from crystal_node.base.file_rules import MARKER_NAME
from crystal_node.base.ignore_patterns import IgnoreFile
from crystal_node.derive.sources.filetypes import Skipped, bytes_max, kind_of, skipped_file, skipped_folder
from crystal_node.derive.sources.ignorefiles import IgnoreRules, ignore_rules_at, patterns
from crystal_node.sync.files.scan import shown

DEPTH_MAX = 64
FILES_MAX = 250_000
"""Files of one source; the rest counts as over the limit."""
BYTES_MAX = 2 * 1024**3
"""Total size of one source's files."""
PATH_CHARS_MAX = 1000
NAMED_MAX = 200
"""Skipped files that a person is told by name."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """Tells without reading whether a file changed."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass
class Skips:
    """What was skipped and why: counts, and the names of some."""

    counts: Counter[Skipped] = field(default_factory=Counter[Skipped])
    named: dict[str, Skipped] = field(default_factory=dict[str, Skipped])
    secrets: list[str] = field(default_factory=list[str])
    """Those that are secrets by their names; some, too. Told to the person who adds the source, and stored nowhere."""

    def add(self, path: str, why: Skipped) -> None:
        self.counts[why] += 1
        if why is Skipped.SECRET and len(self.secrets) < NAMED_MAX:
            self.secrets.append(shown(path))
        if why.told and len(self.named) < NAMED_MAX:
            self.named[shown(path)] = why


@dataclass
class SourceScan:
    """One pass over a folder or a file. Fills ``skips``, ``unlisted``, ``device`` and ``inode``."""

    root: Path
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    kept_out: Path | None = None
    """A folder that is never entered: the memory home."""
    skips: Skips = field(default_factory=Skips)
    unlisted: list[str] = field(default_factory=list[str])
    device: int = 0
    inode: int = 0
    _files: int = 0
    _bytes: int = 0
    _include: IgnoreFile = field(default_factory=lambda: patterns(()))
    _exclude: IgnoreFile = field(default_factory=lambda: patterns(()))
    _home: tuple[int, int] = (0, 0)

    def files(self) -> Iterator[tuple[str, SourceStamp]]:
        """Each file to be read, with its path below the root; a source that is a file has one, under its name.

        Raises OSError if the root is missing, cannot be listed, or has become a link.
        """
        self._include, self._exclude = patterns(self.include), patterns(self.exclude)
        if self.kept_out is not None and self.kept_out.exists():
            info = self.kept_out.stat()
            self._home = info.st_dev, info.st_ino
        info = self.root.lstat()
        self.device, self.inode = info.st_dev, info.st_ino
        if stat.S_ISLNK(info.st_mode):
            raise OSError(errno.ELOOP, "a link stands in its place", str(self.root))
        if not stat.S_ISDIR(info.st_mode):
            yield from self._file(self.root.name, self.root.name, info)
            return
        ignoring, prefix = ignore_rules_at(self.root)
        descriptor = os.open(self.root, FOLDER)
        yield from self._folder(descriptor, prefix, len(prefix), ignoring, 1)

    def _folder(
        self, descriptor: int, prefix: str, start: int, ignoring: IgnoreRules, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        """The files of an open folder, which is closed afterwards. ``prefix[start:]`` is its path below the root."""
        try:
            try:
                with os.scandir(descriptor) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                if depth == 1:
                    raise
                self._out_of_sight(prefix[start:])
                return
            if any(entry.name == MARKER_NAME for entry in entries):
                self.skips.add(prefix[start:] or "./", Skipped.SECRET)
                return
            ignoring = ignoring.below(prefix, descriptor, (entry.name for entry in entries))
            for entry in entries:
                yield from self._entry(entry, descriptor, prefix, start, ignoring, depth)
        finally:
            os.close(descriptor)

    def _entry(
        self,
        entry: "os.DirEntry[str]",
        folder: int,
        prefix: str,
        start: int,
        ignoring: IgnoreRules,
        depth: int,
    ) -> Iterator[tuple[str, SourceStamp]]:
        name = entry.name
        path = prefix + name
        own = path[start:]
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:
            self._out_of_sight(own)
            return
        if stat.S_ISDIR(info.st_mode):
            why = self._kept_from_folder(name, own, info) or (
                Skipped.IGNORED if ignoring.ignores(path + "/") else None
            )
            if why is not None or depth >= DEPTH_MAX:
                self.skips.add(own + "/", why or Skipped.TOO_MANY)
                return
            try:
                below = os.open(name, FOLDER, dir_fd=folder)
            except FileNotFoundError:
                return
            except OSError:
                self._out_of_sight(own + "/")
                return
            yield from self._folder(below, path + "/", start, ignoring, depth + 1)
        elif not stat.S_ISREG(info.st_mode):
            self.skips.add(own, Skipped.LINK if stat.S_ISLNK(info.st_mode) else Skipped.SPECIAL)
        elif ignoring.files and ignoring.ignores(path):
            self.skips.add(own, Skipped.IGNORED)
        else:
            yield from self._file(name, own, info)

    def _file(self, name: str, path: str, info: os.stat_result) -> Iterator[tuple[str, SourceStamp]]:
        why = self._kept_from_file(name, path, info)
        if why is not None:
            self.skips.add(path, why)
            return
        self._files += 1
        self._bytes += info.st_size
        yield path, stamp_of(info)

    def _kept_from_folder(self, name: str, path: str, info: os.stat_result) -> Skipped | None:
        if (info.st_dev, info.st_ino) == self._home:
            return Skipped.MACHINERY
        if self._exclude and self._exclude.verdict(path + "/"):
            return Skipped.IGNORED
        if info.st_dev != self.device:
            return Skipped.OTHER_DISK
        return skipped_folder(name)

    def _kept_from_file(self, name: str, path: str, info: os.stat_result) -> Skipped | None:
        if self._exclude and self._exclude.verdict(path):
            return Skipped.IGNORED
        if self._include and not self._included(path):
            return Skipped.IGNORED
        if not stat.S_ISREG(info.st_mode):
            return Skipped.SPECIAL
        why = skipped_file(name)
        if why is not None:
            return why
        if not info.st_size:
            return Skipped.EMPTY
        if info.st_size > bytes_max(kind_of(name)):
            return Skipped.TOO_LARGE
        if len(path) > PATH_CHARS_MAX or not _is_text(path):
            return Skipped.ODD_NAME
        if self._files >= FILES_MAX or self._bytes + info.st_size > BYTES_MAX:
            return Skipped.TOO_MANY
        return None

    def _included(self, path: str) -> bool:
        """Whether a pattern matches the file or a folder above it."""
        if self._include.verdict(path):
            return True
        at = path.rfind("/")
        while at > 0:
            if self._include.verdict(path[: at + 1]):
                return True
            at = path.rfind("/", 0, at)
        return False

    def _out_of_sight(self, path: str) -> None:
        self.unlisted.append(path)
        self.skips.add(path, Skipped.UNREADABLE)


def stamp_of(info: os.stat_result) -> SourceStamp:
    return SourceStamp(info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


def _is_text(path: str) -> bool:
    """Whether a path can be sent: UTF-8 without control characters."""
    if path.isascii() and path.isprintable():
        return True
    try:
        path.encode()
        check_words(path)
    except (UnicodeEncodeError, Malformed):
        return False
    return True
