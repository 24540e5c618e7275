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
_ESCAPE = re.compile(
    # One class of characters first, so that the search runs from sign to sign.
    r"[\x1b\\%&](?:"
    r"(?<=\x1b)(?P<colour>\[[0-?]{0,40}+[ -/]{0,4}+[@-~]|\][^\x07\x1b\n]{0,400}+(?:\x07|\x1b\\)|[@-Z\\^_])"
    r"|(?<=\\)\\{0,7}+(?:(?P<written>(?:u001[bB]|x1[bB]|033|e)\[[0-9;]{0,40}+[A-Za-z])"
    r"|(?:u00|x)(?P<hex>[02-7][0-9a-fA-F]|[bB]4|[fF]1)"
    r"|(?P<short>[nrt])(?=(?P<follows>.?))"
    r"|(?P<quote>[\"'`/]))"
    r"|(?<=%)(?:25){0,3}+(?P<percent>[02-7][0-9a-fA-F])"
    r"|(?<=&)(?:amp;){0,3}+(?:(?P<name>quot|apos|amp|lt|gt|ntilde)|#(?P<decimal>[0-9]{1,3})|#[xX](?P<number>[0-9a-fA-F]{1,2}));)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class View:
    """``text``: what the lines with escapes say; ``starts``: where each piece of it begins; ``origins`` and ``widths``: where
    it begins in the original, and how much of it one escape takes there (0 for a piece that stands as it is).
    """

    text: str
    starts: list[int]
    origins: list[int]
    widths: list[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a span of the view stands in the original, with its escapes."""
        first = bisect_right(self.starts, start) - 1
        last = bisect_right(self.starts, end - 1) - 1
        begins = self.origins[first] + (0 if self.widths[first] else start - self.starts[first])
        ends = self.origins[last] + (self.widths[last] or end - self.starts[last])
        return begins, ends


def view(text: str) -> View | None:
    """The lines of ``text`` in which an escape stands before a possible name or value. None: there are none."""
    if not any(sign in text for sign in _SIGNS):
        return None
    found = list(_ESCAPE.finditer(text))
    if not any(_counts(match) for match in found):
        return None
    starts: list[int] = []
    origins: list[int] = []
    widths: list[int] = []
    pieces: list[str] = []
    size = 0

    def add(piece: str, origin: int, width: int) -> None:
        nonlocal size
        if piece:
            starts.append(size)
            origins.append(origin)
            widths.append(width)
            pieces.append(piece)
            size += len(piece)

    at = 0
    for first, end in _windows(text, found):
        while at < len(found) and found[at].end() <= first:
            at += 1
        here = first
        while at < len(found) and found[at].start() < end:
            match = found[at]
            add(text[here : match.start()], here, 0)
            add(_meaning(match), match.start(), match.end() - match.start())
            here = match.end()
            at += 1
        add(text[here:end], here, 0)
        add("\n", max(here, end) - 1, 1)
    return View("".join(pieces), starts, origins, widths)


def _counts(match: re.Match[str]) -> bool:
    """A line break at a string's end, before its quote, hides nothing: these are most of what stands in source code."""
    follows: str | None = match["follows"]
    if match["quote"] is not None:
        return match["quote"] in "\"'"
    return follows is None or follows.isalnum() or follows in "_-"


def _windows(text: str, found: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Lines with escapes, or what is near to them if a line is long; neighbours are one."""
    begins = ends = -1
    for match in found:
        if not _counts(match):
            continue
        if match.end() + WINDOW_CHARS // 2 <= ends:
            continue
        line = text.rfind("\n", max(0, match.start() - WINDOW_CHARS), match.start()) + 1
        first = line or max(0, match.start() - WINDOW_CHARS)
        after = text.find("\n", match.end(), match.end() + WINDOW_CHARS)
        end = min(len(text), match.end() + WINDOW_CHARS) if after < 0 else after
        if first <= ends + 1:
            ends = max(ends, end)
            continue
        if ends >= 0:
            yield begins, ends
        begins, ends = first, end
    if ends >= 0:
        yield begins, ends


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
