"""Ignore files with git's rules: which entries of a folder a person wants left out.

Read are ``.gitignore``, ``.ignore`` and ``.crystalignore`` of every folder from the repository's root down, and its
``info/exclude``. Of several rules that match, the last of the deepest file that has one decides; in one folder
``.crystalignore`` counts more than ``.ignore``, and that more than ``.gitignore``. Nothing in an ignored folder can be taken
back, because it is never looked into. What git has in its index plays no part: an ignored file stays out though it is
committed. Rules do not reach into a nested repository, as in git.

What one pattern means: ``base.ignore_patterns``.
"""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.ignore_patterns import IgnoreFile

NAMES = (".crystalignore", ".ignore", ".gitignore")
"""In a folder the first counts most."""
FILE_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Rules of one folder. ``files``: ignore files in force with the length of their folder's path, nearest first. Paths are
    relative to ``origin``, which is at or above the source's root."""

    origin: str
    files: tuple[tuple[int, IgnoreFile], ...] = ()

    def ignores(self, path: str) -> bool:
        """Whether an entry of this folder is ignored. The path of a folder ends with a slash."""
        for start, file in self.files:
            verdict = file.verdict(path[start:])
            if verdict is not None:
                return verdict
        return False

    def below(self, prefix: str, descriptor: int, names: Iterable[str]) -> "IgnoreRules":
        """Rules of a folder below. ``prefix``: its path with a final slash. ``names``: its entries."""
        present = set(names)
        files = self.files
        if ".git" in present and prefix:
            files = tuple(_excluded(descriptor, len(prefix)))
        own = [
            (len(prefix), file)
            for name in NAMES
            if name in present and (file := _read_ignore_file(name, descriptor))
        ]
        return IgnoreRules(self.origin, (*own, *files)) if own or files is not self.files else self


def ignore_rules_at(root: Path) -> tuple[IgnoreRules, str]:
    """Rules from above a source's root, and the root's path from there: "" or with a final slash."""
    top = next((place for place in (root, *root.parents) if _is_repository(place)), root)
    files: list[tuple[int, IgnoreFile]] = []
    with suppress(OSError), _opened_folder(top) as descriptor:
        files += _excluded(descriptor, 0)
    below = root.relative_to(top).parts
    for depth in range(len(below)):
        folder = top.joinpath(*below[:depth])
        length = len("/".join(below[:depth])) + 1 if depth else 0
        with suppress(OSError), _opened_folder(folder) as descriptor:
            own = [(length, file) for name in NAMES if (file := _read_ignore_file(name, descriptor))]
            files = own + files
    prefix = "/".join(below) + "/" if below else ""
    return IgnoreRules(str(top), tuple(files)), prefix


def patterns(lines: Iterable[str]) -> IgnoreFile:
    """Patterns that a person gave, with the same syntax."""
    return IgnoreFile(lines)


def _excluded(descriptor: int, length: int) -> Iterator[tuple[int, IgnoreFile]]:
    file = _read_ignore_file(".git/info/exclude", descriptor)
    if file:
        yield length, file


def _read_ignore_file(name: str, folder: int) -> IgnoreFile | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except OSError:  # none, a link, a folder: git follows no links here either
        return None
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    found = IgnoreFile(line.removesuffix("\r") for line in text.split("\n"))
    return found or None


def _is_repository(place: Path) -> bool:
    try:
        return (place / ".git").exists()
    except OSError:
        return False


@contextmanager
def _opened_folder(path: Path) -> Generator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
