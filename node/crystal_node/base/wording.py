"""Numbers, times and foreign text as people read them.

Text from conversations may hold control characters and terminal escapes: everything that is shown on a terminal passes
``printable`` first.
"""

from datetime import UTC, datetime

_KIB = 1024


def printable(text: str) -> str:
    """Text without control characters, escapes and direction overrides; line breaks become spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str, width: int) -> str:
    """The text on one line, cut to ``width`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"


def size(count: int) -> str:
    """Bytes for people: "812 B", "1.2 KiB", "3.4 MiB"."""
    if count < _KIB:
        return f"{count} B"
    value = count / _KIB
    for unit in ("KiB", "MiB"):
        if value < _KIB:
            return f"{value:.1f} {unit}"
        value /= _KIB
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


def clock_time(milliseconds: int) -> str:
    """A time in this machine's zone: "2026-01-31 18:00:05"; "" when it is unknown (0) or not a time."""
    if milliseconds <= 0:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""


def ago(seconds: float) -> str:
    """An age for people: "12 s", "5 min", "3 h", "2 days"."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"
