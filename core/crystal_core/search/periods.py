"""Periods of local time, counted from now: days, weeks, months, quarters, seasons, parts of days, holidays.

A bound without a zone is wall time in the calendar's zone, and becomes a moment only at the end: a day with a change of the
clocks has 23 or 25 hours. A week begins on Monday. Seasons are those of the northern half: summer is June to August.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import IntEnum

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MILLISECOND = timedelta(milliseconds=1)


class Unit(IntEnum):
    MINUTE = 0
    HOUR = 1
    DAY = 2
    WEEK = 3
    MONTH = 4
    QUARTER = 5
    YEAR = 6


class PartOfDay(IntEnum):
    MORNING = 0
    AFTERNOON = 1
    EVENING = 2
    NIGHT = 3
    NOON = 4


class Third(IntEnum):
    """Of a period: its beginning, its middle, its end."""

    EARLY = 0
    MID = 1
    LATE = 2


class Holiday(IntEnum):
    CHRISTMAS = 0
    NEW_YEARS_EVE = 1
    NEW_YEAR = 2
    HALLOWEEN = 3
    EASTER = 4
    THANKSGIVING = 5


_MONTHS_OF = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}
_LENGTH_OF = {
    Unit.MINUTE: timedelta(minutes=1),
    Unit.HOUR: timedelta(hours=1),
    Unit.DAY: _DAY,
    Unit.WEEK: timedelta(weeks=1),
}
_NEAR_OF = {
    Unit.DAY: (0, 1),
    Unit.WEEK: (3, 4),
    Unit.MONTH: (15, 16),
    Unit.QUARTER: (45, 46),
    Unit.YEAR: (182, 183),
}
"""Days before and after the day that lies so many units back: who says "two weeks ago" means about then."""
_NEAR_A_YEAR = (91, 92)
_HOURS_OF = {
    PartOfDay.MORNING: (0, 12),
    PartOfDay.AFTERNOON: (12, 18),
    PartOfDay.EVENING: (17, 24),
    PartOfDay.NIGHT: (18, 30),
    PartOfDay.NOON: (11, 15),
}
_SATURDAY = 5


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` up to `end`, without it. Both may lack a zone."""

    start: datetime
    end: datetime


class Calendar:
    """The periods around one moment in one zone."""

    def __init__(self, now_ms: int, zone: tzinfo) -> None:
        """`now_ms`: milliseconds since 1970, at most some thousand years of them."""
        self.now = (EPOCH + now_ms * _MILLISECOND).astimezone(zone)
        self._zone = zone
        self.today = datetime(self.now.year, self.now.month, self.now.day)  # noqa: DTZ001 - wall time is meant

    def milliseconds(self, period: Period) -> tuple[int, int] | None:
        """Start and end in milliseconds since 1970, none before it; None if nothing lies between them."""
        start, end = max(self._moment(period.start), 0), self._moment(period.end)
        return (start, end) if start < end else None

    def _moment(self, bound: datetime) -> int:
        try:
            aware = bound if bound.tzinfo is not None else bound.replace(tzinfo=self._zone)
            return (aware - EPOCH) // _MILLISECOND
        except OverflowError:  # a zone's offset leads out of the years 1 to 9999
            return (bound.replace(tzinfo=UTC) - EPOCH) // _MILLISECOND

    def day(self, offset: int) -> Period:
        return _days(self.today + offset * _DAY)

    def date(self, year: int, month: int, day: int) -> Period | None:
        """That day; None if there is none."""
        try:
            return _days(datetime(year, month, day))  # noqa: DTZ001 - wall time is meant
        except (ValueError, OverflowError):
            return None

    def unit(self, unit: Unit, offset: int) -> Period:
        """The calendar's day, week, month, quarter or year that is `offset` after the present one; hours and minutes to now."""
        if unit <= Unit.HOUR:
            return self.rolling(unit, 1)
        if unit is Unit.DAY:
            return self.day(offset)
        if unit is Unit.WEEK:
            return _days(self.today + (7 * offset - self.today.weekday()) * _DAY, 7)
        months = _MONTHS_OF[unit]
        present = self._months_since_zero() // months
        return _months((present + offset) * months, months)

    def rolling(self, unit: Unit, count: int) -> Period:
        """The last so many units up to now; from days on, whole days, today among them."""
        end = self.now.astimezone(UTC) + _MILLISECOND
        if unit <= Unit.HOUR:
            return Period(end - count * _LENGTH_OF[unit], end)
        return Period(self._back(unit, count), end)

    def ago(self, unit: Unit, count: int) -> Period:
        """About so many units before now: half a unit on either side, a quarter for one year."""
        if unit <= Unit.HOUR:
            length = _LENGTH_OF[unit]
            moment = self.now.astimezone(UTC) - count * length
            return Period(moment - length / 2, moment + length / 2)
        before, after = _NEAR_A_YEAR if unit is Unit.YEAR and count == 1 else _NEAR_OF[unit]
        middle = self._back(unit, count)
        return Period(middle - before * _DAY, middle + after * _DAY)

    def between_ago(self, unit: Unit, least: int, most: int) -> Period:
        """From `most` to `least` units ago."""
        return Period(self.ago(unit, most).start, self.ago(unit, least).end)

    def month(self, year: int, month: int) -> Period:
        return _months(year * 12 + month - 1, 1)

    def latest_month(self, month: int, *, over: bool) -> Period:
        """The latest such month that has begun, or that is over."""
        return self._latest([self.month(self.today.year - back, month) for back in (0, 1)], over=over)

    def latest_date(self, month: int, day: int) -> Period | None:
        """The latest such day that has begun; None if there is none within eight years."""
        candidates = [self.date(self.today.year - back, month, day) for back in range(9)]
        return next((one for one in candidates if one is not None and one.start <= self.today), None)

    def latest_day_of_month(self, day: int) -> Period | None:
        """The latest day with that number."""
        present = self._months_since_zero()
        candidates = [self.date((present - back) // 12, (present - back) % 12 + 1, day) for back in range(3)]
        return next((one for one in candidates if one is not None and one.start <= self.today), None)

    def weekday(self, weekday: int, *, over: bool) -> Period:
        """The latest such day that has begun, or that is over. Monday is 0."""
        back = (self.today.weekday() - weekday) % 7
        return self.day(-(back or 7) if over else -back)

    def weekend(self, *, over: bool) -> Period:
        """The latest Saturday and Sunday."""
        saturday = _days(self.weekday(_SATURDAY, over=False).start, 2)
        return _days(saturday.start - 7 * _DAY, 2) if over and saturday.end > self.today else saturday

    def quarter(self, number: int, year: int | None) -> Period:
        """The first is 1. Without a year the latest that has begun."""
        if year is not None:
            return _months(year * 12 + 3 * (number - 1), 3)
        return self._latest(
            [_months((self.today.year - back) * 12 + 3 * (number - 1), 3) for back in (0, 1)], over=False
        )

    def season(self, number: int, year: int | None, *, over: bool) -> Period:
        """Spring is 0; winter begins in December of its year. Without a year the latest that has begun, or that is over."""
        first = 2 + 3 * number
        if year is not None:
            return _months(year * 12 + first, 3)
        return self._latest(
            [_months((self.today.year - back) * 12 + first, 3) for back in (0, 1, 2)], over=over
        )

    def holiday(self, holiday: Holiday, year: int | None, *, over: bool) -> Period:
        if year is not None:
            return _holiday(holiday, year)
        return self._latest([_holiday(holiday, self.today.year - back) for back in (0, 1, 2)], over=over)

    def part(self, day: Period, part: PartOfDay) -> Period:
        """Of one day; a night ends on the next."""
        first, last = _HOURS_OF[part]
        return Period(day.start + timedelta(hours=first), day.start + timedelta(hours=last))

    def since(self, period: Period) -> Period:
        """From its start until now."""
        return Period(period.start, self.now.astimezone(UTC) + _MILLISECOND)

    def after(self, period: Period) -> Period:
        """From its end until now."""
        return Period(period.end, self.now.astimezone(UTC) + _MILLISECOND)

    def _latest(self, candidates: list[Period], *, over: bool) -> Period:
        """The first of these, newest first, that has begun or is over; the oldest if none is."""
        for one in candidates:
            if (one.end if over else one.start) <= self.today:
                return one
        return candidates[-1]

    def _back(self, unit: Unit, count: int) -> datetime:
        """The midnight of the day that lies so many days, weeks, months, quarters or years before today."""
        if unit <= Unit.WEEK:
            return self.today - count * _LENGTH_OF[unit]
        first = _months(self._months_since_zero() - count * _MONTHS_OF[unit], 1)
        return min(first.start + (self.today.day - 1) * _DAY, first.end - _DAY)

    def _months_since_zero(self) -> int:
        return self.today.year * 12 + self.today.month - 1


def third_of(period: Period, third: Third) -> Period:
    """In whole days, at least one."""
    days = max((period.end - period.start) // _DAY, 1)
    first, last = days * third // 3, max(days * (third + 1) // 3, days * third // 3 + 1)
    return Period(period.start + first * _DAY, period.start + last * _DAY)


def before(period: Period) -> Period:
    return Period(EPOCH, period.start)


def until(period: Period) -> Period:
    """Up to its end."""
    return Period(EPOCH, period.end)


def _days(first: datetime, count: int = 1) -> Period:
    return Period(first, first + count * _DAY)


def _months(first: int, count: int) -> Period:
    """Months are counted from January of the year 0."""
    end = first + count
    return Period(
        datetime(first // 12, first % 12 + 1, 1),  # noqa: DTZ001 - wall time is meant
        datetime(end // 12, end % 12 + 1, 1),  # noqa: DTZ001
    )


def _holiday(holiday: Holiday, year: int) -> Period:
    if holiday is Holiday.EASTER:
        return _days(_easter(year) - 2 * _DAY, 4)
    if holiday is Holiday.THANKSGIVING:
        november = datetime(year, 11, 1)  # noqa: DTZ001 - wall time is meant
        return _days(november + ((3 - november.weekday()) % 7 + 21) * _DAY)
    month, day, count = {
        Holiday.CHRISTMAS: (12, 24, 3),
        Holiday.NEW_YEARS_EVE: (12, 31, 1),
        Holiday.NEW_YEAR: (1, 1, 1),
        Holiday.HALLOWEEN: (10, 31, 1),
    }[holiday]
    return _days(datetime(year, month, day), count)  # noqa: DTZ001 - wall time is meant


def _easter(year: int) -> datetime:
    """Easter Sunday: the first one after the full moon on or after 21 March, by the church's tables."""
    golden = year % 19
    century = year // 100
    moon = (century - century // 4 - (8 * century + 13) // 25 + 19 * golden + 15) % 30
    moon -= (moon // 28) * (1 - (29 // (moon + 1)) * ((21 - golden) // 11))
    weekday = (year + year // 4 + moon + 2 - century + century // 4) % 7
    offset = moon - weekday
    month = 3 + (offset + 40) // 44
    return datetime(year, month, offset + 28 - 31 * (month // 4))  # noqa: DTZ001 - wall time is meant
