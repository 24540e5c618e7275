"""Texts that are almost the same, so that a page of results shows one of them.

Two texts are alike if they are of one kind and have the same words in the same order, or, from `WORDS_MIN` words on, at least
`SHARE_MIN` of their runs of three words in common and the very same numbers: "port 8080" and "port 8081" say two things. Case,
punctuation and spaces do not count. Which texts are compared is the caller's choice; nothing here depends on chance.
"""

import re
from dataclasses import dataclass
from functools import cached_property

WORDS_MIN = 20
SHARE_MIN = 0.9

_WORDS = re.compile(r"\w+")
_NUMBERS = re.compile(r"\w*\d\w*")

_Run = tuple[str, ...]


@dataclass
class _Text:
    key: int
    words: list[str]

    @cached_property
    def runs(self) -> set[_Run]:
        return set(zip(self.words, self.words[1:], self.words[2:], strict=False))


class Alike:
    """Takes texts one after the other, the best first, and tells which earlier one a text is like."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, _Run], int] = {}
        self._by_numbers: dict[tuple[str, _Run], list[_Text]] = {}
        """Only texts with the same numbers are compared: mostly none."""

    def first_like(self, key: int, kind: str, text: str) -> int | None:
        """The key of the first text that this one is like; None if there is none: it is then compared with later ones."""
        folded = text.casefold()
        words = _WORDS.findall(folded) or [text]
        same = self._exact.setdefault((kind, tuple(words)), key)
        if same != key:
            return same
        if len(words) < WORDS_MIN:
            return None
        this = _Text(key, words)
        others = self._by_numbers.setdefault((kind, tuple(sorted(_NUMBERS.findall(folded)))), [])
        shared = {other.key: _shared(this, other) for other in others}
        most = max(shared, key=shared.__getitem__, default=None)
        if most is not None and shared[most] >= SHARE_MIN:
            self._exact[kind, tuple(words)] = most
            return most
        others.append(this)
        return None


def _shared(one: _Text, other: _Text) -> float:
    """The share of their runs of words that both have."""
    fewer, more = sorted((len(one.runs), len(other.runs)))
    if fewer < SHARE_MIN * more:
        return 0.0
    both = len(one.runs & other.runs)
    return both / (fewer + more - both)
