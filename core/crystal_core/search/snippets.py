"""Snippets: the passage of a text that answers a query, on one line, with the query's words marked.

Words are compared by FTS5's own tokenizer, so exactly what makes a text match is marked, inflected forms included. A phrase is
marked where its words follow each other. For a text found by meaning only, the caller gives the passage's offset.

Offsets count characters (code points). White space becomes single blanks; an ellipsis marks a cut.
"""

import re
from operator import itemgetter
from typing import Any

import apsw
from msgspec import Struct

from crystal_core.database import Database
from crystal_core.schema import TOKENIZER
from crystal_core.search.keywords import terms

SNIPPET_CHARS = 320
"""Length of a snippet, plus or minus a word and the ellipses."""
MARKS_MAX = 200

_ELLIPSIS = "…"
_LEAD_CHARS = 60
"""Most text before the first mark of a snippet, unless there is space."""
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"[.!?:]\s|\n")

Span = tuple[int, int]
Token = tuple[int, int, str]
"""Start, end and stem of a word: in bytes, as the tokenizer counts, until `_in_characters`."""

_STEM = itemgetter(2)


class Snippet(Struct, frozen=True):
    """A passage, its marks (start and end of each), and the share of the query's words that the whole text has."""

    text: str
    marks: tuple[Span, ...]
    coverage: float


class Snippets:
    """Makes snippets for one query."""

    def __init__(self, database: Database, query: str) -> None:
        words: list[str] = list(TOKENIZER.split())
        self._tokenizer = database.connection.fts5_tokenizer(words[0], words[1:])
        phrases = [self._tokens(term, query=True) for term in terms(query)]
        self._phrases = {tuple(token for _, _, token in phrase) for phrase in phrases if phrase}
        self._words = {word for phrase in self._phrases for word in phrase}
        self._longest = max((len(phrase) for phrase in self._phrases), default=0)
        self._cut: dict[str, list[Token]] = {}
        self._had: dict[str, frozenset[str]] = {}

    def snippet(self, text: str, depth: float = 0.0) -> Snippet:
        """Return the passage with most of the query's words; without any, from `depth` (0 to 1) of the text on."""
        tokens = self._tokens_once(text)
        found = _in_characters(self._found(tokens), text)
        begin = self._best(found) if found else _sentence_begin(text, int(len(text) * depth))
        begin, end = _bounds(text, begin)
        spans = [(start, stop) for start, stop, _ in found if begin <= start and stop <= end][:MARKS_MAX]
        return Snippet(*_one_line(text, begin, end, spans), self.coverage(text))

    def coverage(self, *texts: str) -> float:
        """Return the share of the query's words that the texts have together."""
        had = frozenset[str]().union(*map(self._words_in, texts))
        return len(had) / max(len(self._words), 1)

    def _words_in(self, text: str) -> frozenset[str]:
        """Return the query's words that a text has."""
        had = self._had.get(text)
        if had is None:
            had = self._had[text] = frozenset(self._words.intersection(map(_STEM, self._tokens_once(text))))
        return had

    def _tokens_once(self, text: str) -> list[Token]:
        """Cutting a text into words is most of what it costs to show a hit."""
        tokens = self._cut.get(text)
        if tokens is None:
            tokens = self._cut[text] = self._tokens(text)
        return tokens

    def _tokens(self, text: str, *, query: bool = False) -> list[Token]:
        encoded = text.encode("utf-8", "surrogatepass")
        reason = apsw.FTS5_TOKENIZE_QUERY if query else apsw.FTS5_TOKENIZE_DOCUMENT
        found: Any = self._tokenizer(encoded, reason, None, include_offsets=True, include_colocated=False)
        tokens: list[Token] = list(found)
        return tokens

    def _found(self, tokens: list[Token]) -> list[Token]:
        """Return the query's words and phrases in the text, in order, not overlapping: start, end, stems."""
        found: list[Token] = []
        words, beyond = self._words, 0
        for place in [number for number, (_, _, stem) in enumerate(tokens) if stem in words]:
            if place < beyond:
                continue
            for length in range(min(self._longest, len(tokens) - place), 0, -1):
                run = tokens[place : place + length]
                if tuple(token for _, _, token in run) in self._phrases:
                    found.append((run[0][0], run[-1][1], " ".join(token for _, _, token in run)))
                    beyond = place + length
                    break
        return found

    def _best(self, found: list[Token]) -> int:
        """Return the start of the passage with the most different words of the query, then with the most words."""
        best, begin = (0, 0, 0), found[0][0]
        last = 0
        for first, (start, _, _) in enumerate(found):
            last = max(last, first)
            while last < len(found) and found[last][1] - start <= SNIPPET_CHARS - _LEAD_CHARS:
                last += 1
            inside = found[first : max(last, first + 1)]
            different = {stem for _, _, stem in inside}
            value = (len(different), sum(map(len, different)), min(len(inside), 2 * len(different)))
            if value > best:
                best, begin = value, start
        return begin


def _in_characters(found: list[Token], text: str) -> list[Token]:
    """Convert the tokenizer's offsets from bytes to characters."""
    if text.isascii():
        return found
    encoded = text.encode("utf-8", "surrogatepass")
    return [
        (
            len(encoded[:start].decode("utf-8", "surrogatepass")),
            len(encoded[:end].decode("utf-8", "surrogatepass")),
            token,
        )
        for start, end, token in found
    ]


def _bounds(text: str, begin: int) -> Span:
    """Return a snippet's bounds: from a sentence or word a little before `begin`."""
    if len(text) <= SNIPPET_CHARS:
        return 0, len(text)
    start = min(begin, max(len(text) - SNIPPET_CHARS, 0))
    start = _sentence_begin(text, start, back=_LEAD_CHARS)
    end = start + SNIPPET_CHARS
    if end >= len(text):
        return start, len(text)
    blank = max((text.rfind(space, start + SNIPPET_CHARS // 2, end + 1) for space in " \n\t"), default=-1)
    return start, blank if blank > 0 else end


def _sentence_begin(text: str, place: int, back: int = SNIPPET_CHARS // 2) -> int:
    """Return the beginning of the sentence around `place` if near, else of the word."""
    earliest = max(place - back, 0)
    if earliest == 0:
        return 0
    ends = [found.end() for found in _SENTENCE_END.finditer(text, earliest, place)]
    if ends:
        return ends[0]
    blank = text.find(" ", earliest, place)
    return blank + 1 if blank >= 0 else place


def _one_line(text: str, begin: int, end: int, spans: list[Span]) -> tuple[str, tuple[Span, ...]]:
    """Return the passage with single blanks and ellipses, and the spans within it."""
    parts: list[str] = []
    length = 0
    marks: list[Span] = []

    def add(piece: str) -> None:
        nonlocal length
        flat = _SPACE.sub(" ", piece)
        if flat.startswith(" ") and (not parts or parts == [_ELLIPSIS] or parts[-1].endswith(" ")):
            flat = flat[1:]
        if flat:
            parts.append(flat)
            length += len(flat)

    if text[:begin].strip():
        add(_ELLIPSIS)
    place = begin
    for start, stop in spans:
        add(text[place:start])
        before = length
        add(text[start:stop])
        marks.append((before, length))
        place = stop
    add(text[place:end].rstrip())
    if text[end:].strip():
        add(_ELLIPSIS)
    return "".join(parts), tuple(marks)
