"""What commands print: JSON documents for programs, plain sentences and tables for people.

Text that came from conversations may hold control characters and terminal escapes; everything shown on a
terminal goes through ``printable`` first. JSON escapes them by itself.
"""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

KIB = 1024


def json_line(document: Mapping[str, object]) -> str:
    """One JSON document on lines of its own, stable in its order, with every character readable."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def emit(document: Mapping[str, object]) -> None:
    """Prints a result for programs."""
    text = json_line(document)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def say(text: str = "") -> None:
    """Prints one line for people."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def note(text: str) -> None:
    """Prints a line about the work (not its result) to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Text without control characters, escapes and direction overrides; line breaks become spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str, width: int) -> str:
    """The text on one line, cut to ``width`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"


def size(count: int) -> str:
    """Bytes for people: "812 B", "1.2 KiB", "3.4 MiB"."""
    if count < KIB:
        return f"{count} B"
    value = count / KIB
    for unit in ("KiB", "MiB"):
        if value < KIB:
            return f"{value:.1f} {unit}"
        value /= KIB
    return f"{value:.1f} GiB"


def counted(count: int, one: str, many: str = "") -> str:
    """ "1 message", "2 messages"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def iso(milliseconds: int) -> str | None:
    """A time as ISO 8601 in UTC, or None when it is unknown (0) or not a time."""
    if milliseconds <= 0:
        return None
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return None


def ago(seconds: float) -> str:
    """An age for people: "12 s", "5 min", "3 h", "2 days"."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"
