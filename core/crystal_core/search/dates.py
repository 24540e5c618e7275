"""Dates in a query understood: "last week", "in March", "vor zwei Tagen", "2026-01-31", "先週".

Rules:

- Precision first. Code, paths, versions and what stands in double quotes or backticks are no dates; a word that is more often
  something else counts only where a preposition or a number makes it a date. A day that does not exist is none.
- Without a year, a month, a day or a season is the latest one that has begun. What lies in the future is left out.
- `01/02/2026` has both its readings.
- A text is read word by word, each with a few words around it (`date_expressions`): time grows with its length alone.
- A text longer than `READ_CHARS_MAX` is something pasted, and speaks of no date.
"""

import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from msgspec import Struct

from crystal_core.search.date_tokens import may_speak_of_dates, tokens_of

if TYPE_CHECKING:
    from crystal_core.search.periods import Calendar, Period

READ_CHARS_MAX = 2000
"""Longest text that dates are looked for in."""
RANGES_MAX = 4
"""Most ranges of one query; the first ones."""
MOMENT_CHARS_MAX = 100
"""Longest expression of a moment."""

_QUOTED = r'`[^`]*`|"[^"]*"'
_AGE = r"([0-9]{1,6})([mhdw])"
_JAPANESE = frozenset("月日年週前今昨先去朝曜きおゆ")
_AGE_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DATE_CHARS_MAX = 10
"""Of a date in ISO 8601 without a time of day."""
_MILLISECOND = timedelta(milliseconds=1)


class DateRange(Struct, frozen=True):
    """From `start_ms` up to `end_ms`, without it, in milliseconds since 1970. Never empty."""

    start_ms: int
    end_ms: int


def date_ranges(query: str, now_ms: int, zone: tzinfo) -> tuple[DateRange, ...]:
    """The dates that a query speaks of, in its order, at most `RANGES_MAX`; none that lies in the future. Never raises."""
    if len(query) > READ_CHARS_MAX:
        return ()
    text = re.sub(_QUOTED, " ` ", query) if '"' in query or "`" in query else query
    tokens = tokens_of(text)
    japanese = not text.isascii() and not _JAPANESE.isdisjoint(text)
    if not japanese and not may_speak_of_dates(tokens):
        return ()
    # Lazy: most queries speak of none.
    from crystal_core.search.date_expressions import Reader
    from crystal_core.search.periods import Calendar

    calendar = Calendar(now_ms, zone)
    periods = _japanese(text, calendar) if japanese else []
    periods += Reader(tokens, calendar).periods()
    ranges = (_range(period, calendar) for period in periods)
    found = dict.fromkeys(one for one in ranges if one is not None and one.start_ms <= now_ms)
    return tuple(found)[:RANGES_MAX]


def moment_range(text: str, now_ms: int, zone: tzinfo) -> DateRange | None:
    """What one expression means: "yesterday", "last week", "monday", "24h", "2026-01-31", "2026-01-31T18:00".

    An age, and a date with a time of day, are a single millisecond, and what lies before 1970 is the first one. None if the
    text is no such expression, or one with two readings.
    """
    given = text.strip()
    if not given or len(given) > MOMENT_CHARS_MAX:
        return None
    if given.lower() == "now":
        return DateRange(now_ms, now_ms + 1)
    age = re.fullmatch(_AGE, given.lower())
    if age:
        moment = max(now_ms - _AGE_UNITS[age[2]] * int(age[1]) // _MILLISECOND, 0)
        return DateRange(moment, moment + 1)
    from crystal_core.search.date_expressions import Reader
    from crystal_core.search.periods import EPOCH, Calendar

    calendar = Calendar(now_ms, zone)
    period = _iso(given) or Reader(tokens_of(given), calendar, alone=True).whole()
    if period is None and not _JAPANESE.isdisjoint(given):
        period = next(iter(_japanese(given, calendar, whole=True)), None)
    if period is None:
        return None
    if period.end.replace(tzinfo=UTC) <= EPOCH:
        return DateRange(0, 1)
    return _range(period, calendar)


def _japanese(text: str, calendar: "Calendar", *, whole: bool = False) -> "list[Period]":
    from crystal_core.search.japanese_dates import japanese_periods

    return japanese_periods(unicodedata.normalize("NFKC", text), calendar, whole=whole)


def _iso(text: str) -> "Period | None":
    from crystal_core.search.periods import Period

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return Period(moment, moment + (timedelta(days=1) if len(text) <= _DATE_CHARS_MAX else _MILLISECOND))
    except OverflowError:
        return Period(moment, datetime.max.replace(tzinfo=moment.tzinfo))


def _range(period: "Period", calendar: "Calendar") -> DateRange | None:
    bounds = calendar.milliseconds(period)
    return None if bounds is None else DateRange(*bounds)
