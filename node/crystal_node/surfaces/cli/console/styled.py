"""Styled lines for a terminal, as wide as it is. A search prints them without the 27 ms that loading rich's console takes.

The widths of characters are rich's; so are the names of the styles, and where lines are broken. On Windows lines are plain: its
older consoles have to be told to take colours, which rich does for other output.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

from rich.cells import cell_len, chop_cells, set_cell_size

from crystal_node.surfaces.cli.console.terminal import can_move

_CODES = {"bold": "1", "dim": "2", "cyan": "36", "yellow": "33", "bold yellow": "1;33"}
_WITHOUT_COLOUR = {"bold": "1", "dim": "2", "bold yellow": "1"}
_WORD = re.compile(r"\s*\S+\s*")
_COLUMNS = 80

Span = tuple[int, int, str]
"""Start, end and style."""


def columns() -> int:
    """The width of this process's terminal."""
    if not can_move():
        return _COLUMNS
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and 0 < len(given) < 6:
        return int(given) or _COLUMNS
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            width = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
        except (OSError, ValueError):
            continue
        if width:
            return width
    return _COLUMNS


def joined(*parts: tuple[str, str]) -> tuple[str, list[Span]]:
    """Texts with their styles ("" for none), as one text and its spans."""
    text, spans = "", list[Span]()
    for part, style in parts:
        if style and part:
            spans.append((len(text), len(text) + len(part), style))
        text += part
    return text, spans


def cut(text: str, spans: Iterable[Span], width: int) -> str:
    """One styled line, cut with an ellipsis where it is wider."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return _styled(text, spans, 0, len(text))


def wrapped(text: str, spans: Iterable[Span], width: int) -> Iterator[str]:
    """Styled lines of this width, broken between words; a word that fits no line is broken itself."""
    marked = list(spans)
    breaks = [0, *_breaks(text, width), len(text)]
    for start, end in pairwise(breaks):
        line = text[start:end].rstrip()
        if cell_len(line) > width:
            line = set_cell_size(line, width)
        yield _styled(line, marked, start, start + len(line))


def _breaks(text: str, width: int) -> Iterator[int]:
    filled = 0
    for found in _WORD.finditer(text):
        start, word = found.start(), found[0]
        needed = cell_len(word.rstrip())
        if needed <= width - filled:
            filled += cell_len(word)
        elif needed > width:
            *whole, last = chop_cells(word, width)
            if start:
                yield start
            for piece in whole:
                start += len(piece)
                yield start
            filled = cell_len(last)
        else:
            if filled and start:
                yield start
            filled = cell_len(word)


def _styled(line: str, spans: Iterable[Span], start: int, end: int) -> str:
    """A line that stood from ``start`` to ``end`` of a text with these spans."""
    codes = _codes()
    said, at = "", 0
    for first, last, style in sorted(spans):
        begins, ends = max(first - start, at), min(last, end) - start
        if begins < ends and style in codes:
            said += f"{line[at:begins]}\x1b[{codes[style]}m{line[begins:ends]}\x1b[0m"
            at = ends
    return said + line[at:]


def _codes() -> dict[str, str]:
    if os.name == "nt" or not can_move():
        return {}
    return _WITHOUT_COLOUR if os.environ.get("NO_COLOR") else _CODES
