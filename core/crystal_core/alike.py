"""Texts that are almost the same, so that a page of results shows one of them.

Two texts are alike if they are of one kind and have the same words in the same order, or, from `WORDS_MIN` words on, at least
`SHARE_MIN` of their runs of three words in common and the very same numbers: "port 8080" and "port 8081" say two things. Case,
punctuation and spaces do not count. Which texts are compared is the caller's choice; nothing here depends on chance.
"""

import re
from collections import Counter

WORDS_MIN = 20
SHARE_MIN = 0.9
_RUN = 3

_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d")

_Run = tuple[str, ...]


class Alike:
    """Takes texts one after the other, the best first, and tells which earlier one a text is like."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, _Run], int] = {}
        self._holders: dict[_Run, list[int]] = {}
        self._runs: dict[int, tuple[str, int, Counter[str]]] = {}

    def first_like(self, key: int, kind: str, text: str) -> int | None:
        """The key of the first text that this one is like; None if there is none: it is then compared with later ones."""
        words = _WORDS.findall(text.casefold()) or [text]
        same = self._exact.setdefault((kind, tuple(words)), key)
        if same != key:
            return same
        if len(words) < WORDS_MIN:
            return None
        runs = set(zip(words, words[1:], words[2:], strict=False))
        numbers = Counter(word for word in words if _NUMBER.search(word))
        shared = Counter(holder for run in runs for holder in self._holders.get(run, ()))
        for holder, count in shared.most_common():
            of_kind, size, its_numbers = self._runs[holder]
            if count < SHARE_MIN * len(runs):
                break  # the next ones have even less in common with this
            if of_kind == kind and numbers == its_numbers and count >= SHARE_MIN * (size + len(runs) - count):
                self._exact[kind, tuple(words)] = holder
                return holder
        for run in runs:
            self._holders.setdefault(run, []).append(key)
        self._runs[key] = (kind, len(runs), numbers)
        return None
