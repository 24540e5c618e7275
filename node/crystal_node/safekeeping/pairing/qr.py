"""A code as a QR that a camera reads: drawn on a terminal, or written to a file.

On a terminal both colours are set, black on white: most terminals are dark, and many cameras don't read inverted codes. With
UTF-8, two rows of modules share a line (half blocks); without, a module is two spaces with a background. A code that does not
fit, or a terminal without colours, gets no drawing. In a file the border is four modules, as the standard requires; on a
terminal it is two, so that an invite fits 24 lines.
"""

import io
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal_node.base.errors import UsageError
from crystal_node.base.home import write_private

if TYPE_CHECKING:
    from qrcode import QRCode

FILE_BORDER_MODULES = 4
TERMINAL_BORDER_MODULES = 2
FILE_MODULE_PIXELS = 10

_BLACK, _WHITE = "38;5;16", "48;5;231"  # from the fixed part of the 256 colours, which no theme changes
_BLACK_GROUND = "48;5;16"
_RESET = "\x1b[0m"
_HALVES = {(False, False): " ", (True, False): "\u2580", (False, True): "\u2584", (True, True): "\u2588"}


class Fit(StrEnum):
    """Whether a terminal can show a code."""

    DRAWN = "drawn"
    NO_COLOURS = "this terminal shows no colours"
    TOO_SMALL = "this window is too small"


@dataclass(frozen=True, slots=True)
class Screen:
    """What a drawing depends on. ``colours`` is False for TERM=dumb and the like."""

    columns: int
    lines: int
    colours: bool
    unicode: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """``lines`` is empty unless ``fit`` is DRAWN. ``columns`` and ``rows``: the space needed."""

    fit: Fit
    columns: int
    rows: int
    lines: tuple[str, ...] = ()


def draw(text: str, screen: Screen) -> Drawing:
    """The QR of ``text`` for this terminal, or why there is none."""
    modules = [[bool(dark) for dark in row] for row in _code(text, TERMINAL_BORDER_MODULES).get_matrix()]
    side = len(modules)
    columns, rows = (side, (side + 1) // 2) if screen.unicode else (2 * side, side)
    if not screen.colours:
        return Drawing(Fit.NO_COLOURS, columns, rows)
    if columns > screen.columns or rows > screen.lines:
        return Drawing(Fit.TOO_SMALL, columns, rows)
    lines = _half_blocks(modules) if screen.unicode else _spaces(modules)
    return Drawing(Fit.DRAWN, columns, rows, tuple(lines))


def check_file(path: Path) -> None:
    """Checks a file name before a code is made, so that no invite is wasted.

    Raises:
        UsageError: the name's ending is neither .png nor .svg, or there is no such folder.
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(
            f"the QR can be a PNG or an SVG, not {path.suffix or 'a file without an ending'}",
            hint="Name it --qr invite.png or --qr invite.svg.",
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder {path.absolute().parent}", hint="Make it first, or name another one."
        )


def write(text: str, path: Path) -> None:
    """Writes the QR as PNG or SVG, by the name's ending, atomically and readable by its owner only.

    Raises:
        UsageError: as ``check_file``.
    """
    check_file(path)
    # Lazy, as in `_code`: only a drawn code needs the library.
    from qrcode.image.pure import PyPNGImage
    from qrcode.image.svg import SvgPathFillImage

    factory = PyPNGImage if path.suffix.lower() == ".png" else SvgPathFillImage
    buffer = io.BytesIO()
    image: Any = _code(text, FILE_BORDER_MODULES).make_image(image_factory=factory)
    image.save(buffer)
    write_private(path, buffer.getvalue())


def _code(text: str, border: int) -> "QRCode[Any]":
    from qrcode import QRCode
    from qrcode.constants import ERROR_CORRECT_L

    code: QRCode[Any] = QRCode(border=border, box_size=FILE_MODULE_PIXELS, error_correction=ERROR_CORRECT_L)
    code.add_data(
        text, optimize=0
    )  # one mode for all of it: capitals and digits take two thirds of the space
    code.make(fit=True)
    return code


def _half_blocks(modules: list[list[bool]]) -> list[str]:
    light = [False] * len(modules[0])
    lower = [*modules[1::2], light]
    return [
        f"\x1b[{_BLACK};{_WHITE}m"
        + "".join(_HALVES[pair] for pair in zip(upper, below, strict=True))
        + _RESET
        for upper, below in zip(modules[::2], lower, strict=False)
    ]


def _spaces(modules: list[list[bool]]) -> list[str]:
    return [
        "".join(f"\x1b[{_BLACK_GROUND if dark else _WHITE}m  " for dark in row) + _RESET for row in modules
    ]
