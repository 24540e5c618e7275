"""Near-duplicate detection, so that a page of results shows one of several similar texts.

Two texts are near duplicates if they are of one kind and have the same words in the same order or, from `WORDS_MIN` words on,
share at least `SHARE_MIN` of their runs of three words and have exactly the same numbers: "port 8080" and "port 8081" differ.
Case, punctuation and spaces do not count. The caller chooses which texts are compared; the result is deterministic.

A text is compared with `COMPARED_MAX` others at most, so that thousands of texts that are somewhat alike take linear time.
Where there are more, those that share most of its anchors are compared: its `ANCHORS` runs with the smallest checksums (Broder,
*On the resemblance and containment of documents*, 1997). Near duplicates share nearly all of theirs.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from itertools import filterfalse
from zlib import crc32

WORDS_MIN = 20
SHARE_MIN = 0.9
COMPARED_MAX = 16
ANCHORS = 32

_DIGIT = re.compile(r"\d")
_ASCII = bytes(range(128))
_WORD_BYTES = bytes(
    code if code >= 128 or chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in range(256)
)
"""A table for `bytes.translate`: blanks for ASCII characters that are not part of a word."""
_MARK_BITS = 256

_Run = tuple[str, ...]


@dataclass
class _Text:
    key: int
    words: list[str]

    @cached_property
    def runs(self) -> set[_Run]:
        return set(zip(self.words, self.words[1:], self.words[2:], strict=False))

    @cached_property
    def marks(self) -> int:
        """A bit for each word; different words may share one."""
        marks = 0
        for word in set(self.words):
            marks |= 1 << hash(word) % _MARK_BITS
        return marks

    @cached_property
    def anchors(self) -> list[int]:
        sums = {crc32(" ".join(run).encode("utf-8", "surrogatepass")) for run in self.runs}
        return nsmallest(ANCHORS, sums)


@dataclass
class _Others:
    """Texts with the same numbers, by their anchors as soon as they are many."""

    texts: list[_Text] = field(default_factory=list[_Text])
    by_anchor: dict[int, list[_Text]] = field(default_factory=dict[int, list[_Text]])

    def add(self, text: _Text) -> None:
        self.texts.append(text)
        if len(self.texts) <= COMPARED_MAX:
            return
        for each in self.texts if len(self.texts) == COMPARED_MAX + 1 else [text]:
            for anchor in each.anchors:
                having = self.by_anchor.setdefault(anchor, [])
                if len(having) < COMPARED_MAX:  # what so many have tells none of them apart
                    having.append(each)

    def nearest(self, text: _Text) -> list[_Text]:
        """Return those to compare with a text, in the order in which they came."""
        if len(self.texts) <= COMPARED_MAX:
            return self.texts
        having = [self.by_anchor.get(anchor, []) for anchor in text.anchors]
        telling = [texts for texts in having if len(texts) < COMPARED_MAX]
        shared = Counter(other.key for texts in telling or having for other in texts)
        nearest = {key for key, _ in shared.most_common(COMPARED_MAX)}
        found = {other.key: other for texts in having for other in texts if other.key in nearest}
        return [found[key] for key in sorted(found)]


class Alike:
    """Compares each text, best first, with the earlier ones."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], int] = {}
        self._by_numbers: dict[tuple[str, _Run], _Others] = {}
        """Only texts with the same numbers are compared, which are mostly none."""

    def first_like(self, key: int, kind: str, text: str) -> int | None:
        """Return the key of the nearest duplicate, the first of equally near ones; None without one, and later texts are then
        compared with this one. Keys rise from call to call."""
        words, numbers = words_of(text)
        whole = " ".join(words) or text
        same = self._exact.setdefault((kind, whole), key)
        if same != key:
            return same
        if len(words) < WORDS_MIN:
            return None
        this = _Text(key, words)
        others = self._by_numbers.setdefault((kind, numbers), _Others())
        shared = {
            other.key: _shared(this, other) for other in others.nearest(this) if not _apart(this, other)
        }
        most = max(shared, key=shared.__getitem__, default=None)
        if most is not None and shared[most] >= SHARE_MIN:
            self._exact[kind, whole] = most
            return most
        others.add(this)
        return None


def words_of(text: str) -> tuple[list[str], _Run]:
    """Return the words (runs of letters, digits and underscores), case-folded, and the sorted ones with a digit.

    Several times as fast as the expression `\\w+`.
    """
    folded = text.casefold()
    if not folded.isascii():
        others = folded.encode("utf-8", "surrogatepass").translate(None, _ASCII)
        for sign in set(others.decode("utf-8", "surrogatepass")):
            if not sign.isalnum():
                folded = folded.replace(sign, " ")
    plain = folded.encode("utf-8", "surrogatepass").translate(_WORD_BYTES)
    words = plain.decode("utf-8", "surrogatepass").split()
    mixed = filterfalse(str.isalpha, words)  # of the thousands of words in a search, next to none
    return words, tuple(sorted(filter(_DIGIT.search, mixed)))


def _apart(one: _Text, other: _Text) -> bool:
    """Whether so many words are in only one of the texts that they cannot share enough runs.

    Each such word is in a run of its own text only, and a run has three words. The texts may differ in a tenth of all runs
    of either, which are at most the shorter one's divided by `SHARE_MIN`.
    """
    runs_max = min(len(one.words), len(other.words)) / SHARE_MIN
    return (one.marks ^ other.marks).bit_count() > 3 * (1 - SHARE_MIN) * runs_max


def _shared(one: _Text, other: _Text) -> float:
    """Return the Jaccard similarity of their runs of words."""
    fewer, more = sorted((len(one.runs), len(other.runs)))
    if fewer < SHARE_MIN * more:
        return 0.0
    both = len(one.runs & other.runs)
    return both / (fewer + more - both)
