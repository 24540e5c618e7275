"""Output: tables and sentences for people, one JSON document for programs."""

import sys
import time
from collections.abc import Sequence
from typing import TextIO

import msgspec

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def show_json(document: object) -> None:
    """Print one JSON document on stdout."""
    print(msgspec.json.encode(document).decode(), flush=True)


def show_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns on stdout."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print a remark on stderr, so that stdout holds only the result."""
    print(text, file=to or sys.stderr, flush=True)


def size(count: int) -> str:
    """Bytes with a unit."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit has no end")


def moment(seconds: int) -> str:
    """Unix seconds as a date, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
