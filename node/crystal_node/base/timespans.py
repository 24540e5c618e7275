"""Times as people type them for ``--since`` and ``--until``: an age (``24h``, ``7d``) or a date (ISO 8601)."""

import re
from datetime import UTC, datetime, timedelta

from crystal_node.base.errors import UsageError

_DAY = timedelta(days=1)
_DATE_CHARS_MAX = 10
"""Of a date without a time of day."""
_AGE = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def parse_since(text: str, now_ms: int) -> int:
    """The time in milliseconds since 1970, at least 0. A date without a zone is in this machine's.

    Raises:
        Usage: neither an age nor a date.
    """
    return _moment(text, now_ms, end=False)


def parse_until(text: str, now_ms: int) -> int:
    """``parse_since``, except that a date without a time of day means the end of that day."""
    return _moment(text, now_ms, end=True)


def _moment(text: str, now_ms: int, *, end: bool) -> int:
    given = text.strip()
    age = _AGE.fullmatch(given.lower())
    if age:
        span = _UNITS[age[2]] * int(age[1])
        return max(now_ms - span // timedelta(milliseconds=1), 0)
    try:
        moment = datetime.fromisoformat(given)
        if end and len(given) <= _DATE_CHARS_MAX:
            moment += _DAY - timedelta(milliseconds=1)
        if moment.tzinfo is None:
            moment = moment.astimezone()
        since_start = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{text[:60]!r} is neither an age nor a date",
            hint="Use 24h, 7d, 4w, or a date such as 2026-01-31 or 2026-01-31T18:00.",
        ) from error
    return max(since_start // timedelta(milliseconds=1), 0)
