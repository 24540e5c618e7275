"""Patterns of ignore files, with git's rules.

They are translated by pathspec, whose expressions also match what is below a folder; here each entry is tested by itself.
The expressions are rewritten without backtracking: an ignore file comes with any repository that somebody cloned, and a
few stars in one could take years to match.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import cast

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


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern is invalid; None if it is valid."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"it is longer than {PATTERN_CHARS_MAX} characters"
    if not pattern.isprintable():
        return "it holds control characters"
    return None if _rule(pattern) is not None else "it matches nothing"


def _rule(line: str) -> tuple[str, bool] | None:
    """An expression for an entry by itself, and whether it ignores it."""
    from pathspec.patterns.gitignore.base import (
        GitIgnorePatternError,  # lazy: 10 ms, where most homes have no such file
    )
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

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
