"""Ignore files with git's rules: which entries of a folder a person wants left out.

Read are ``.gitignore``, ``.ignore`` and ``.crystalignore`` of every folder from the repository's root down, and its
``info/exclude``. Of several rules that match, the last of the deepest file that has one decides; in one folder
``.crystalignore`` counts more than ``.ignore``, and that more than ``.gitignore``. Nothing in an ignored folder can be taken
back, because it is never looked into. What git has in its index plays no part: an ignored file stays out though it is
committed. Rules do not reach into a nested repository, as in git.

Patterns are translated by pathspec, whose expressions also match what is below a folder; here each entry is tested by itself.
The expressions are rewritten without backtracking: an ignore file comes with whatever somebody cloned, and a few stars in one
would take years to match.
"""

import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

NAMES = (".crystalignore", ".ignore", ".gitignore")
"""In a folder the first counts most."""
FILE_BYTES_MAX = 256 * 1024
PATTERNS_MAX = 5000
PATTERN_CHARS_MAX = 1000

_DIRECTORY_OR_END = "(?:(?P<ps_d>/)|$)"
_DIRECTORY = "(?P<ps_d>/)"
_STAR = "[^/]*"
_ABOVE, _BETWEEN = "(?:.+/)?", "(?:/.+)?"
"""What pathspec makes of two stars, at the beginning and within."""
_LAZY = {_STAR: "[^/]*?", _ABOVE: "(?:.+?/)??", _BETWEEN: "(?:/.+?)??"}
_TOKEN = re.compile(r"\(\?:\.\+/\)\?|\(\?:/\.\+\)\?|\[\^/\][*+]?|\\.|\[\^?\]?[^]]*\]|.", re.DOTALL)


class IgnoreFile:
    """The rules of one file, for paths relative to its folder; those of folders end with a slash."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[tuple[re.Pattern[str], bool]] = []
        sources: list[str] = []
        for line in lines:
            rule = _rule(line) if len(line) <= PATTERN_CHARS_MAX else None
            if rule is not None and len(self._rules) < PATTERNS_MAX:
                self._rules.append((re.compile(rule[0], re.DOTALL), rule[1]))
                sources.append(f"(?:{rule[0]})")
        self._rules.reverse()
        self._any = re.compile("|".join(sources), re.DOTALL) if sources else None

    def __bool__(self) -> bool:
        return self._any is not None

    def verdict(self, path: str) -> bool | None:
        """True: ignored, False: taken back, None: no rule matches."""
        if self._any is None or self._any.search(path) is None:
            return None
        return next((ignored for rule, ignored in self._rules if rule.search(path) is not None), None)


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


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern is invalid; None if it is valid."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"it is longer than {PATTERN_CHARS_MAX} characters"
    if not pattern.isprintable():
        return "it holds control characters"
    return None if _rule(pattern) is not None else "it matches nothing"


def _rule(line: str) -> tuple[str, bool] | None:
    """An expression for an entry by itself, and whether it ignores it."""
    try:
        pattern = GitIgnoreSpecPattern(line)
    except (GitIgnorePatternError, ValueError, re.error):  # git ignores such a line, too
        return None
    if pattern.regex is None or pattern.include is None:
        return None
    source = cast("re.Pattern[str]", pattern.regex).pattern
    if source.endswith(_DIRECTORY_OR_END):
        source = source.removesuffix(_DIRECTORY_OR_END) + r"/?\Z"
    elif source.endswith(_DIRECTORY):
        source = source.removesuffix(_DIRECTORY) + r"/\Z"
    elif source.endswith("/"):  # all that is below a folder, which is not the folder
        source += "."
    return _straight(source), pattern.include


def _straight(source: str) -> str:
    """The same expression, in which of several stars each but the last takes the first place where what follows it fits, for
    good: the next star takes the rest. No class of characters takes a slash, as git has it."""
    tokens: list[str] = _TOKEN.findall(source)
    tokens = [f"(?!/){each}" if each[0] == "[" and not each.startswith("[^/]") else each for each in tokens]
    parts = [[""]]  # what stands between two double stars, which begin each part but the first
    for token in tokens:
        if token in (_ABOVE, _BETWEEN):
            parts.append([token])
        else:
            parts[-1].append(token)
    made = [(part[0], "".join(map(_straight_name, _names(part[1:])))) for part in parts]
    settled = [f"(?>{_LAZY[double]}{rest}(?=/))" for double, rest in made[1:-1]]
    last = "".join(made[-1]) if len(made) > 1 else ""
    return "".join((made[0][1], *settled, last))


def _names(tokens: list[str]) -> list[list[str]]:
    """The tokens of each component of a path; the slash that ends one is with the next."""
    names: list[list[str]] = [[]]
    for each in tokens:
        if each == "/":
            names.append([])
        names[-1].append(each)
    return names


def _straight_name(tokens: list[str]) -> str:
    stars = [at for at, token in enumerate(tokens) if token == _STAR]
    begun = "".join(tokens[: stars[0]] if stars else tokens)
    settled = [f"(?>{_LAZY[_STAR]}{''.join(tokens[at + 1 : after])})" for at, after in pairwise(stars)]
    return "".join((begun, *settled, *(tokens[stars[-1] :] if stars else ())))


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
