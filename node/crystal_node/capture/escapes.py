"""What a text says once its escapes are undone: terminal colours, `\\n` and `\\u003d` written out, `%3D`, `&quot;`.

Tools print JSON, JSON in JSON, addresses and pages, and a credential in them begins behind an escape or is cut by one. A view
has the lines with escapes as a person would read them, and knows for each character where it stands in the original, which is
what is cut. Lines without escapes are not in it. Undoing takes linear time.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

WINDOW_CHARS = 1500
"""So much of a line's text before and after an escape is looked at."""

_NAMED = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">", "ntilde": "ñ"}
_SHORT = {"n": "\n", "r": "\n", "t": "\t"}
_SIGNS = "\x1b\\%&"
# JSON in JSON doubles its backslashes, an address in an address has %253D, a page in a page &amp;quot;.
_FORMS = (
    # One class of characters first, so that the search runs from sign to sign.
    r"[\x1b\\%&](?:"
    r"(?<=\x1b)(?P<colour>\[[0-?]{0,40}+[ -/]{0,4}+[@-~]|\][^\x07\x1b\n]{0,400}+(?:\x07|\x1b\\)|[@-Z\\^_])"
    r"|(?<=\\)\\{0,7}+(?:(?P<written>(?:u001[bB]|x1[bB]|033|e)\[[0-9;]{0,40}+[A-Za-z])"
    r"|(?:u00|x)(?P<hex>[02-7][0-9a-fA-F]|[bB]4|[fF]1)"
    r"|(?P<short>[nrt])SHORT"
    r"|(?P<quote>[\"'`/])QUOTE)"
    r"|(?<=%)(?:25){0,3}+(?P<percent>[02-7][0-9a-fA-F])"
    r"|(?<=&)(?:amp;){0,3}+(?:(?P<name>quot|apos|amp|lt|gt|ntilde)|#(?P<decimal>[0-9]{1,3})|#[xX](?P<number>[0-9a-fA-F]{1,2}));)"
)
_ESCAPE = re.compile(_FORMS.replace("SHORT", "").replace("QUOTE", ""))
# A line break at a string's end, before its quote, hides nothing: these are most of what stands in source code.
_TELLING = re.compile(_FORMS.replace("SHORT", r"(?=[\w-])").replace("QUOTE", r"(?<=[\"'])"))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a view: where it begins there and in the original, and how much of that one escape takes (0: as it stands)."""

    start: int
    origin: int
    width: int


class View:
    """What the lines with escapes say. ``text``: all of it."""

    def __init__(self, original: str, runs: list[tuple[int, int]]) -> None:
        """``runs``: where lines with escapes stand in the original."""
        self._original = original
        self._runs = runs
        self._pieces: list[_Piece] = []
        self.text = "\n".join(_ESCAPE.sub(_meaning, original[first:last]) for first, last in runs)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a span of the view stands in the original, with its escapes."""
        # Most views are searched and hold nothing: places are only gathered once there is something to cut.
        if not self._pieces:
            self._pieces = [*self._placed()]
        first, last = self._piece(start), self._piece(end - 1)
        begins = first.origin if first.width else first.origin + start - first.start
        ends = last.origin + (last.width or end - last.start)
        return begins, ends

    def _piece(self, at: int) -> _Piece:
        return self._pieces[bisect_right(self._pieces, at, key=lambda piece: piece.start) - 1]

    def _placed(self) -> Iterator[_Piece]:
        said = 0
        for first, last in self._runs:
            here = 0
            piece = self._original[first:last]
            for match in _ESCAPE.finditer(piece):
                if match.start() > here:
                    yield _Piece(said, first + here, 0)
                    said += match.start() - here
                meaning = len(_meaning(match))
                if meaning:
                    yield _Piece(said, first + match.start(), match.end() - match.start())
                    said += meaning
                here = match.end()
            if here < len(piece):
                yield _Piece(said, first + here, 0)
                said += len(piece) - here
            # The line break between two runs stands for the last character of the first.
            yield _Piece(said, last - 1, 1)
            said += 1


def view(text: str) -> View | None:
    """The lines of ``text`` in which an escape stands before a possible name or value. None: there are none."""
    if not any(sign in text for sign in _SIGNS):
        return None
    runs = _runs(text)
    if not runs:
        return None
    return View(text, runs)


def _runs(text: str) -> list[tuple[int, int]]:
    """Lines with escapes, or what is near to them if a line is long; neighbours are one run."""
    runs: list[tuple[int, int]] = []
    match = _TELLING.search(text)
    while match is not None:
        near = max(0, match.start() - WINDOW_CHARS)
        first = text.rfind("\n", near, match.start()) + 1 or near
        last = text.find("\n", match.end(), match.end() + WINDOW_CHARS)
        searched = last
        if last < 0:
            last = min(len(text), match.end() + WINDOW_CHARS)
            searched = last if last == len(text) else last - WINDOW_CHARS // 2
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
        match = _TELLING.search(text, searched)
    return runs


def _meaning(match: re.Match[str]) -> str:
    if match["colour"] is not None or match["written"] is not None:
        return ""
    if match["short"] is not None:
        return _SHORT[match["short"]]
    if match["quote"] is not None:
        return match["quote"]
    if match["name"] is not None:
        return _NAMED[match["name"]]
    if match["decimal"] is not None:
        return chr(int(match["decimal"]))
    number = match["hex"] or match["percent"] or match["number"]
    return chr(int(number, 16))
