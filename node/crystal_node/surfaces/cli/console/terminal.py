"""What this terminal can show: tables, and a code's QR."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from crystal_node.surfaces.cli.console.output import note, say

if TYPE_CHECKING:
    from rich.console import Console

    from crystal_node.safekeeping.pairing.qr import Screen

_COLUMNS, _LINES = 80, 24
_TALK_LINES = 3
"""That follow a code: they must not push its QR out of view."""


def is_terminal(*, output: bool = False) -> bool:
    """Whether standard input is a terminal (with ``output``: standard output)."""
    return _is_tty(sys.stdout) if output else _is_tty(sys.stdin)


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def screen() -> "Screen":
    """The size and abilities of the terminal on standard output."""
    from crystal_node.safekeeping.pairing.qr import Screen  # lazy: most commands draw no code

    columns, lines = _COLUMNS, _LINES
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        columns, lines = size.columns or columns, size.lines or lines
    except (OSError, ValueError):
        pass
    columns = _number("COLUMNS") or columns
    lines = _number("LINES") or lines
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return Screen(columns, lines, colours=can_move(), unicode=encoding == "utf8")


def can_move() -> bool:
    """Whether the terminal takes colours and other control sequences."""
    return os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def show_code(text: str, file: Path | None, *, short: str = "") -> None:
    """Print a code with its QR: in a file if one was named, else drawn if the terminal can.

    The whole QR has to be visible at once. It stands above the text if both fit, else below it. ``short``: the same code to be
    typed, which a terminal shows in place of the text; where output goes elsewhere, it follows the text.
    """
    from crystal_node.safekeeping.pairing.qr import Fit, draw, write

    if file is not None:
        write(text, file)
        say(short or text)
        note(f"The QR is in {file}. Delete it afterwards.")
        return
    if not is_terminal(output=True):
        say(text)
        if short:
            say(short)
        return
    drawn = text
    text = short or text
    there = screen()
    drawing = draw(drawn, there)
    below = len(text) // there.columns + 1 + _TALK_LINES
    if drawing.rows + below > there.lines or drawing.fit is not Fit.DRAWN:
        say(text)
    for line in drawing.lines:
        say(line)
    if drawing.rows + below <= there.lines and drawing.fit is Fit.DRAWN:
        say(text)
    if drawing.fit is not Fit.DRAWN:
        size = f" (a QR takes {drawing.columns} columns and {drawing.rows} lines)"
        note(
            f"No QR: {drawing.fit}{size if drawing.fit is Fit.TOO_SMALL else ''}. "
            f"{'Type or copy' if short else 'Copy'} the text, or have a picture made: --qr invite.png"
        )


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def console() -> "Console":
    """A console for tables that interprets no markup or emoji codes. rich is loaded only for this."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False)
