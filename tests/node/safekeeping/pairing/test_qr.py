"""A code as a QR: what is drawn and written is read back by a decoder that somebody else wrote."""

import io
import re
import stat
from pathlib import Path
from typing import Any, cast

import numpy as np
import png
import pytest
import zxingcpp

from crystal_node.base.errors import UsageError
from crystal_node.safekeeping.pairing.qr import Fit, Screen, check_file, draw, write

_INVITE = "MC2:" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 5  # of a relay with an address of 30 characters
_OFFLINE = "mc3:" + "aZ+/09bY" * 6
_CELL = re.compile(r"\x1b\[([0-9;]+)m|(.)", re.DOTALL)
_PIXELS = 6


def _screen(*, columns: int = 200, lines: int = 100, colours: bool = True, unicode: bool = True) -> Screen:
    return Screen(columns=columns, lines=lines, colours=colours, unicode=unicode)


def _read(dark: list[list[bool]]) -> str:
    """What a decoder sees where dark is black on white."""
    image = np.where(np.array(dark), 0, 255).astype(np.uint8)
    (found,) = zxingcpp.read_barcodes(np.kron(image, np.ones((_PIXELS, _PIXELS), np.uint8)))
    return str(found.text)


def _shown(lines: tuple[str, ...]) -> list[list[bool]]:
    """The modules that a terminal would show, by the colours that are said and nothing else."""
    rows: list[list[bool]] = []
    for line in lines:
        ink = paper = ""
        upper: list[bool] = []
        lower: list[bool] = []
        for codes, char in _CELL.findall(line):
            if codes:
                for plane, colour in re.findall(r"(38|48);5;(\d+)", codes):
                    ink, paper = (colour, paper) if plane == "38" else (ink, colour)
                continue
            assert paper in {"16", "231"}, "a cell whose background is the terminal's own"
            assert char == " " or (ink, paper) == ("16", "231")
            upper.append(paper == "16" or char in "\u2580\u2588")
            lower.append(paper == "16" or char in "\u2584\u2588")
        assert line.endswith("\x1b[0m")
        rows += [upper, lower]
    return rows


@pytest.mark.parametrize("text", [_INVITE, _OFFLINE], ids=["invite", "offline"])
def test_half_blocks_are_read_back_whatever_the_terminals_own_colours(text: str) -> None:
    drawing = draw(text, _screen())
    assert drawing.fit is Fit.DRAWN
    assert _read(_shown(drawing.lines)) == text


@pytest.mark.parametrize("text", [_INVITE, _OFFLINE], ids=["invite", "offline"])
def test_without_utf8_two_spaces_a_module_are_read_back(text: str) -> None:
    drawing = draw(text, _screen(unicode=False))
    assert all(line.isascii() for line in drawing.lines)
    square = [row[::2] for row in _shown(drawing.lines)[::2]]
    assert _read(square) == text


def test_an_invite_fits_a_terminal_of_80_by_24() -> None:
    assert draw(_INVITE, _screen(columns=80, lines=24)).fit is Fit.DRAWN


def test_the_width_and_height_are_checked_to_the_column_and_the_line() -> None:
    for unicode in (True, False):
        whole = draw(_INVITE, _screen(unicode=unicode))
        exact = _screen(columns=whole.columns, lines=whole.rows, unicode=unicode)
        fitting = draw(_INVITE, exact)
        assert fitting.fit is Fit.DRAWN
        widths = {len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in fitting.lines}
        assert (widths, len(fitting.lines)) == ({whole.columns}, whole.rows)
        for columns, lines in ((whole.columns - 1, whole.rows), (whole.columns, whole.rows - 1)):
            small = draw(_INVITE, _screen(columns=columns, lines=lines, unicode=unicode))
            assert (small.fit, small.lines) == (Fit.TOO_SMALL, ())


def test_a_dumb_terminal_gets_no_drawing() -> None:
    drawing = draw(_INVITE, _screen(colours=False))
    assert (drawing.fit, drawing.lines) == (Fit.NO_COLOURS, ())


def test_a_png_is_read_back_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "invite.PNG"
    write(_INVITE, path)
    read = cast(Any, png.Reader(io.BytesIO(path.read_bytes()))).asDirect()
    pixels = np.vstack([np.array(row, np.uint8) for row in read[2]]) * np.uint8(255)
    (found,) = zxingcpp.read_barcodes(pixels)
    assert found.text == _INVITE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["invite.PNG"]


def test_an_svg_has_a_white_ground_and_the_same_modules(tmp_path: Path) -> None:
    path = tmp_path / "invite.svg"
    path.write_text("an older file")
    write(_INVITE, path)
    text = path.read_text()
    assert '<rect fill="white"' in text
    assert _read(_svg_modules(text)) == _INVITE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _svg_modules(text: str) -> list[list[bool]]:
    """The squares of the one path: `M x,y H x V y H x z`, a millimetre a module."""
    side = int(re.findall(r'width="(\d+)mm"', text)[0])
    modules = [[False] * side for _ in range(side)]
    for x, y in re.findall(r"M(\d+),(\d+)H", text):
        modules[int(y)][int(x)] = True
    return modules


def test_a_name_that_is_no_picture_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for name in ("invite.jpg", "invite"):
        with pytest.raises(UsageError, match="PNG or an SVG"):
            check_file(tmp_path / name)
    with pytest.raises(UsageError, match="no folder"):
        check_file(tmp_path / "absent" / "invite.png")
