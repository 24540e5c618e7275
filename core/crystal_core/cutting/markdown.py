"""Markdown, cut into sections by heading; fences, tables, lists and front matter stay whole where they fit.

Not a full parser: blocks are recognised by the beginnings of lines, so malformed Markdown is still cut sensibly. A title is
the path of headings, ``Install › From source``.
"""

import re
from enum import Enum, auto

from crystal_core.cutting.blocks import Block, Border, lines_of

SEPARATOR = " › "

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_LIST = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_HEADING_CHARS_MAX = 200
_FRONT_LINES_MAX = 200


class _In(Enum):
    TEXT = auto()
    LIST = auto()
    TABLE = auto()
    FENCE = auto()
    FRONT = auto()


def markdown_blocks(text: str) -> list[Block]:
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = lines_of(text)
        self._blocks: list[Block] = []
        self._headings: list[tuple[int, str]] = []
        self._start = 0
        self._border = Border.HARD
        self._state = _In.TEXT
        self._fence = ""

    def read(self) -> list[Block]:
        number = self._front_matter()
        blank = False
        while number < len(self._lines):
            start, _ = self._lines[number]
            line = self._line(number)
            if self._state is _In.FENCE:
                if self._closes(line):
                    self._state = _In.TEXT
                    self._close(self._lines[number][1], Border.PARAGRAPH, solid=True)
                number += 1
                blank = False
                continue
            if not line.strip():
                blank = True
                number += 1
                continue
            fence = _FENCE.match(line)
            if fence is not None and not (fence[1][0] == "`" and "`" in fence[2]):
                self._break(start, Border.PARAGRAPH)
                self._state, self._fence = _In.FENCE, fence[1]
            elif (level := self._heading(number, line, blank=blank)) is not None:
                self._break(start, Border.HARD)
                self._name(level, line)
                self._state = _In.TEXT
                number += self._underlined(number)
            else:
                self._ordinary(start, line, blank=blank)
            blank = False
            number += 1
        self._close(len(self._text), Border.PARAGRAPH, solid=self._state is not _In.TEXT)
        return self._blocks

    def _ordinary(self, start: int, line: str, *, blank: bool) -> None:
        """Read a line of a paragraph, a list or a table."""
        table = line.lstrip().startswith("|")
        listed = _LIST.match(line) is not None
        goes_on = self._state is _In.LIST and (listed or line[0] in " \t")
        if table != (self._state is _In.TABLE) or (blank and not goes_on):
            self._break(start, Border.PARAGRAPH)
        elif listed and self._state is _In.LIST:
            # Each item is a place for a cut, though a worse one than the end of the list.
            self._break(start, Border.LINE)
        if table:
            self._state = _In.TABLE
        elif listed or goes_on:
            self._state = _In.LIST
        elif blank or self._state is _In.TABLE:
            self._state = _In.TEXT

    def _front_matter(self) -> int:
        """Skip front matter and return the number of the line after it."""
        if not self._lines or self._line(0).rstrip() != "---":
            return 0
        for number in range(1, min(len(self._lines), _FRONT_LINES_MAX)):
            if self._line(number).rstrip() in ("---", "..."):
                self._close(self._lines[number][1], Border.PARAGRAPH, solid=True)
                return number + 1
        return 0

    def _heading(self, number: int, line: str, *, blank: bool) -> int | None:
        """Return the level of a heading that begins here, or None."""
        found = _HEADING.match(line)
        if found is not None:
            return len(found[1])
        if self._state is _In.TEXT and self._underlined(number) and (blank or self._begins(number)):
            return 1 if self._line(number + 1).lstrip()[0] == "=" else 2
        return None

    def _underlined(self, number: int) -> int:
        """Return 1 if the next line underlines this one as a heading, else 0."""
        if number + 1 >= len(self._lines) or _HEADING.match(self._line(number)) is not None:
            return 0
        return int(_UNDERLINE.match(self._line(number + 1)) is not None)

    def _begins(self, number: int) -> bool:
        return self._lines[number][0] == self._start

    def _name(self, level: int, line: str) -> None:
        found = _HEADING.match(line)
        words = (found[2] or "") if found is not None else line
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        self._headings.append((level, " ".join(words.split())[:_HEADING_CHARS_MAX]))

    def _closes(self, line: str) -> bool:
        mark = line.strip()
        return (
            len(mark) >= len(self._fence)
            and set(mark) == {self._fence[0]}
            and len(line) - len(line.lstrip()) < 4
        )

    def _break(self, at: int, border: Border) -> None:
        """End the block before ``at``; the next one begins there, with this border."""
        self._close(at, border, solid=self._state in (_In.TABLE, _In.FENCE))
        self._border = border

    def _close(self, at: int, following: Border, *, solid: bool) -> None:
        if at > self._start:
            title = SEPARATOR.join(name for _, name in self._headings if name)
            self._blocks.append(Block(self._start, at, self._border, title, solid))
            self._start, self._border = at, following

    def _line(self, number: int) -> str:
        start, end = self._lines[number]
        return self._text[start:end].rstrip("\n")
