"""Expressions of dates among the words of a text: which words together are one, and what period it means."""

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from crystal_core.search.date_sentence import LEADING, Sentence, is_day, is_year
from crystal_core.search.date_tokens import MONTHS, SEASONS, WEEKDAYS, Token
from crystal_core.search.date_words import FRENCH, GERMAN, NUMBERED, YEAR_NEXT, Kind
from crystal_core.search.periods import (
    Calendar,
    Holiday,
    PartOfDay,
    Period,
    Third,
    Unit,
    before,
    third_of,
    until,
)

FOUND_MAX = 5
"""Most readings of one text; the first ones."""
YEAR_MIN, YEAR_MAX = 1990, 2100
_BARE_YEAR_MIN = 2000
"""The first year that is one without a month beside it."""

_Found = tuple[list[Period], int]
"""Readings of one expression, and where the next one may begin."""


class Reader(Sentence):
    """Reads the expressions among one text's words. `alone`: the text is nothing but one, so that weak words count as well."""

    def __init__(self, tokens: list[Token], calendar: Calendar, *, alone: bool = False) -> None:
        super().__init__(tokens, alone=alone)
        self._calendar = calendar

    def periods(self) -> list[Period]:
        """All expressions of the text, in its order, about `FOUND_MAX` at most."""
        found: list[Period] = []
        at = 0
        while at < len(self._tokens) and len(found) < FOUND_MAX:
            expression = self._expression(at)
            if expression is None:
                at += 1
            else:
                readings, at = expression
                found += readings
        return found

    def whole(self) -> Period | None:
        """The one expression that the whole text is."""
        for at in range(len(self._tokens)):
            expression = self._expression(at)
            if expression is not None:
                readings, end = expression
                return readings[0] if len(readings) == 1 and end == len(self._tokens) else None
            if self._at(at).kind not in LEADING and self._at(at).word not in ("il", "y", "a"):
                return None
        return None

    def _expression(self, at: int) -> _Found | None:
        """A period with what it stands in relation to: since, before, between …"""
        found = self._period(at)
        if found is None:
            return None
        readings, end = found
        relation = self._relation(at)
        closed = self._closed(relation, readings, end)
        if closed is not None:
            return closed
        calendar = self._calendar
        if relation is Kind.SINCE:
            return [calendar.since(one) for one in readings], end
        if relation is Kind.AFTER:
            return [calendar.after(one) for one in readings], end
        if relation is Kind.BEFORE or (
            relation is Kind.AGO_BEFORE and self._at(end - 1).kind is not Kind.UNIT
        ):
            return [before(one) for one in readings], end
        if relation is Kind.UNTIL:
            return [until(one) for one in readings], end
        return readings, end

    def _closed(self, relation: Kind, readings: list[Period], end: int) -> _Found | None:
        """Of `between X and Y`, `from X to Y`: from the beginning of the one to the end of the other."""
        link = self._at(end).kind
        linked = link in (Kind.TO, Kind.UNTIL) or (link is Kind.AND and relation is Kind.BETWEEN)
        if not linked or relation not in (Kind.BETWEEN, Kind.FROM, Kind.SINCE):
            return None
        other = end + 1
        while self._at(other).kind in (Kind.ARTICLE, Kind.ON, Kind.TO, Kind.OF):
            other += 1
        found = self._period(other, introduced=True)
        if found is None:
            return None
        last, after = found
        joined = [Period(one.start, two.end) for one in readings for two in last if _before(one, two)]
        return (joined, after) if joined else None

    def _period(self, at: int, *, introduced: bool = False) -> _Found | None:
        method = self._METHODS.get(self._at(at).kind)
        if method is None:
            return None
        earlier = self._at(at - 1).kind
        if earlier is Kind.NEXT or (earlier is Kind.EVERY and self._at(at).kind is not Kind.LAST):
            return None
        alone, self._alone = self._alone, self._alone or introduced
        found = method(self, at)
        self._alone = alone
        return found

    def _day(self, at: int) -> _Found | None:
        token = self._at(at)
        if token.word == "hier" and not self._alone and not self._is_french(at):
            return None
        if token.word == "hoy" and self._at(at + 1).word == "en" and self._at(at + 2).word == "dia":
            return None
        return self._with_part(self._calendar.day(token.value), at + 1)

    def _is_french(self, at: int) -> bool:
        """The German word means here."""
        if self._at(at + 1).kind is Kind.PART or len(self._tokens) == 1:
            return True
        words = {token.word for token in self._tokens}
        return len(words & FRENCH) > len(words & GERMAN)

    def _with_part(self, day: Period, end: int) -> _Found:
        """A day, or the part of it that is named behind."""
        if self._at(end - 1).stop:
            return [day], end
        skipped = end
        while self._at(skipped).kind in (Kind.ARTICLE, Kind.AT, Kind.IN, Kind.OF) and skipped < end + 2:
            skipped += 1  # ayer por la tarde
        part = self._at(skipped)
        if part.kind is not Kind.PART:
            return [day], end
        return [self._calendar.part(day, PartOfDay(part.value))], skipped + 1

    def _tonight(self, at: int) -> _Found | None:
        day = self._calendar.day(self._at(at).value)
        return [self._calendar.part(day, PartOfDay.NIGHT)], at + 1

    def _last(self, at: int) -> _Found | None:
        """Last week, last March, the last three days."""
        calendar, token, then = self._calendar, self._at(at + 1), at + 2
        if self._at(at).stop:
            return None
        if token.kind is Kind.UNIT and token.value >= Unit.WEEK:
            return self._with_weekday(calendar.unit(Unit(token.value), -1), Unit(token.value), then)
        if token.kind is Kind.UNIT and token.value == Unit.HOUR:
            return [calendar.rolling(Unit.HOUR, 1)], then
        if token.kind in (Kind.NUMBER, Kind.SOME):
            return self._rolling(at + 1)
        if token.kind is Kind.PART and token.value >= PartOfDay.EVENING:
            return [calendar.part(calendar.day(-1), PartOfDay(token.value))], then
        if token.kind in WEEKDAYS and self._at(then).kind is not Kind.OF:
            return self._with_part(calendar.weekday(token.value, over=True), then)
        if token.kind in MONTHS:
            if token.kind is not Kind.MONTH and (self._at(at - 1).word == "the" or self._is_modal(at + 1)):
                return None
            return [calendar.latest_month(token.value, over=True)], then
        if token.kind in SEASONS:
            return [calendar.season(token.value, None, over=True)], then
        if token.kind is Kind.WEEKEND:
            return [calendar.weekend(over=True)], then
        if token.kind is Kind.HOLIDAY:
            return [calendar.holiday(Holiday(token.value), None, over=True)], then
        if token.kind is Kind.QUARTER and not token.pair:
            return [calendar.quarter(token.value, None)], then
        return None

    def _with_weekday(self, period: Period, unit: Unit, end: int) -> _Found:
        """Last week, or the day of it that is named behind: last week Monday."""
        token = self._at(end)
        if unit is Unit.WEEK and token.kind in WEEKDAYS and not self._at(end - 1).stop:
            day = period.start + timedelta(days=token.value)
            return self._with_part(Period(day, day + timedelta(days=1)), end + 1)
        return [period], end

    def _rolling(self, at: int) -> _Found | None:
        """So many units up to now."""
        unit = self._at(at + 1)
        count = self._at(at).value
        if unit.kind is not Kind.UNIT or not 1 <= count <= 999 or self._at(at).stop:
            return None
        return [self._calendar.rolling(Unit(unit.value), count)], at + 2

    def _past(self, at: int) -> _Found | None:
        token = self._at(at + 1)
        if token.kind is Kind.UNIT and token.value >= Unit.HOUR:
            return [self._calendar.rolling(Unit(token.value), 1)], at + 2
        if token.kind in (Kind.NUMBER, Kind.SOME):
            return self._rolling(at + 1)
        return self._last(at) if token.kind in (*WEEKDAYS, Kind.WEEKEND) else None

    def _this(self, at: int) -> _Found | None:
        calendar, token, then = self._calendar, self._at(at + 1), at + 2
        if token.kind is Kind.UNIT and token.value >= Unit.WEEK:
            if token.word in ("mes", "ano") and self._at(then).kind is Kind.LAST_BEHIND:
                return [calendar.unit(Unit(token.value), -1)], then + 1
            return self._with_weekday(calendar.unit(Unit(token.value), 0), Unit(token.value), then)
        if token.kind is Kind.PART:
            return [calendar.part(calendar.day(0), PartOfDay(token.value))], then
        if token.kind in WEEKDAYS and token.kind is not Kind.SHORT_WEEKDAY:
            return self._with_part(calendar.weekday(token.value, over=False), then)
        if token.kind is Kind.MONTH or (token.kind is Kind.WEAK_MONTH and (token.capital or self._alone)):
            return [calendar.latest_month(token.value, over=False)], then
        if token.kind is Kind.SEASON or (token.kind is Kind.WEAK_SEASON and token.value == 1):
            return [calendar.season(token.value, None, over=False)], then
        if token.kind is Kind.WEEKEND:
            return [calendar.weekend(over=False)], then
        return None

    def _numbered(self, at: int) -> _Found | None:
        """3 days ago, 7 May 2023, the 3rd to the 10th of March, in 2024."""
        token = self._at(at)
        if not token.pair:
            return self._ago(at)
        return (
            self._ago(at)
            or self._day_of_month(at)
            or self._days_of_month(at)
            or self._year(at)
            or (self._number_of_day(at) if token.capital else None)
        )

    def _ago(self, at: int) -> _Found | None:
        """Two weeks ago, vor zwei Wochen, hace dos semanas, il y a deux semaines; since three days."""
        token, then = self._at(at), at + 1
        if token.stop:
            return None
        least = most = token.value
        following = self._at(then)
        if (
            token.kind is Kind.NUMBER
            and token.word in ("a", "ein", "un", "une")
            and following.kind is Kind.SOME
        ):
            token, most, then = following, following.value, then + 1
            following = self._at(then)
        if token.kind is Kind.SOME:
            least = min(token.value, 2)
            if following.kind is Kind.OF:
                then += 1
                following = self._at(then)
        if following.kind is not Kind.UNIT or not 1 <= most <= 999:
            return None
        unit, end = Unit(following.value), then + 1
        if self._at(end).kind is Kind.AGO:
            end += 1
        elif not self._is_before_ago(at):
            if self._relation(at) is Kind.SINCE and token.word not in ("a", "an"):
                return [self._calendar.rolling(unit, most)], end
            return None
        if least != most:
            return [self._calendar.between_ago(unit, least, most)], end
        return [self._calendar.ago(unit, most)], end

    def _is_before_ago(self, at: int) -> bool:
        earlier = self._at(at - 1)
        if earlier.kind is Kind.AGO_BEFORE:
            return True
        return earlier.word == "a" and self._at(at - 2).word == "y" and self._at(at - 3).word == "il"

    def _day_of_month(self, at: int) -> _Found | None:
        """7 May 2023, the 7th of May, el 7 de mayo de 2023, 7. Mai."""
        token = self._at(at)
        if token.stop not in ("", ".") or not 1 <= token.value <= 31:
            return None
        month_at = at + 2 if self._at(at + 1).kind is Kind.OF else at + 1
        month = self._at(month_at)
        if month.kind not in MONTHS:
            return None
        year, end = self._year_behind(month_at + 1)
        if year is None and month.kind is not Kind.MONTH:
            sure = self._introduced(at) or month_at > at + 1 or token.capital or bool(token.stop)
            sure = sure or month.capital or self._ends(end)
            if not sure or (self._is_modal(month_at) and not token.capital):
                return None
        if self._at(at - 1).word in NUMBERED and year is None:
            return None
        return self._dated(year, month.value, token.value, end)

    def _days_of_month(self, at: int) -> _Found | None:
        """3 to 10 March, between the 3rd and the 10th of March."""
        token = self._at(at)
        link = self._at(at + 1).kind
        if link not in (Kind.TO, Kind.AND, Kind.UNTIL) or not 1 <= token.value <= 31:
            return None
        if link is Kind.AND and self._relation(at) is not Kind.BETWEEN:
            return None
        other = at + 2
        while self._at(other).kind in (Kind.ARTICLE, Kind.ON) and other < at + 4:
            other += 1
        if self._at(other).kind is not Kind.NUMBER:
            return None
        month_at = other + 2 if self._at(other + 1).kind is Kind.OF else other + 1
        month = self._at(month_at)
        if month.kind not in MONTHS or not (
            month.kind is Kind.MONTH or self._introduced(at) or month.capital
        ):
            return None
        year, end = self._year_behind(month_at + 1)
        return self._dated_span(year, month.value, token.value, self._at(other).value, end)

    def _span(self, at: int) -> _Found | None:
        """3-10 March 2025."""
        month_at = at + 2 if self._at(at + 1).kind is Kind.OF else at + 1
        month = self._at(month_at)
        if month.kind not in MONTHS or self._at(at).stop:
            return None
        year, end = self._year_behind(month_at + 1)
        if year is None and month.kind is not Kind.MONTH and not (self._introduced(at) or month.capital):
            return None
        return self._dated_span(year, month.value, self._at(at).value, self._at(at).pair[0], end)

    def _year_behind(self, at: int) -> tuple[int | None, int]:
        """The year that follows a month or a day, and where it ends: 2025, of last year, de 2025."""
        then = at
        while self._at(then).kind in (Kind.OF, Kind.ARTICLE, Kind.IN) and then < at + 3:
            then += 1
        token, following = self._at(then), self._at(then + 1)
        if token.kind is Kind.NUMBER and token.pair == (4,) and YEAR_MIN <= token.value <= YEAR_MAX:
            return token.value, then + 1
        this_year = self._calendar.today.year
        if token.kind in (Kind.LAST, Kind.THIS) and is_year(following):
            return this_year - token.value, then + 2
        if is_year(token) and following.kind in (Kind.LAST, Kind.LAST_BEHIND):
            return this_year - 1, then + 2
        return None, at

    def _dated(self, year: int | None, month: int, day: int, end: int) -> _Found:
        """That day; no reading if there is none."""
        calendar = self._calendar
        found = calendar.latest_date(month, day) if year is None else calendar.date(year, month, day)
        return ([] if found is None else [found]), end

    def _dated_span(self, year: int | None, month: int, first: int, last: int, end: int) -> _Found | None:
        begin = self._dated(year, month, first, end)
        if not begin[0]:
            return begin
        start = begin[0][0].start
        final = self._calendar.date(start.year, month, last)
        if final is None or final.start < start:
            return None
        return [Period(start, final.end)], end

    def _year(self, at: int) -> _Found | None:
        """In 2024: after a preposition, and before nothing that could be counted."""
        token = self._at(at)
        if token.pair != (4,) or token.capital:
            return None
        if not _BARE_YEAR_MIN <= token.value <= self._calendar.today.year or not self._introduced(at):
            return None
        if self._relation(at) is Kind.ON and self._at(at - 1).kind is not Kind.UNIT and not self._alone:
            return None
        following = self._at(at + 1)
        if not (self._ends(at + 1) or following.word in YEAR_NEXT or following.kind in (Kind.AND, Kind.TO)):
            return None
        return self._whole_year(token.value, at + 1)

    def _whole_year(self, year: int, end: int) -> _Found:
        return [Period(self._calendar.month(year, 1).start, self._calendar.month(year, 12).end)], end

    def _number_of_day(self, at: int) -> _Found | None:
        """On the 7th."""
        if self._relation(at) is not Kind.ON or not self._ends(at + 1):
            return None
        found = self._calendar.latest_day_of_month(self._at(at).value)
        return None if found is None else ([found], at + 1)

    def _month(self, at: int) -> _Found | None:
        """March, March 2025, May 7th, May 7, 2023, March 3-10, March last year, marzo pasado."""
        token, following = self._at(at), self._at(at + 1)
        year, end = self._year_behind(at + 1)
        if year is not None:
            if token.kind is Kind.SHORT_MONTH and self._at(at + 1).kind is not Kind.NUMBER:
                return None
            return [self._calendar.month(year, token.value)], end
        if token.stop in ("", ".") and (following.kind is Kind.SPAN or is_day(following)):
            found = self._month_and_day(at)
            if found is not None:
                return found
        if following.kind in (Kind.LAST_BEHIND, Kind.LAST) and self._at(at + 2).kind is not Kind.UNIT:
            return [self._calendar.latest_month(token.value, over=True)], at + 2
        if following.kind is Kind.NEXT:
            return None
        if token.kind is not Kind.MONTH:
            if not self._introduced(at) or self._is_modal(at):
                return None
            if token.kind is Kind.SHORT_MONTH and not self._alone and not self._ends(at + 1):
                return None
            if self._relation(at) is Kind.ON and not self._alone:
                return None
        return [self._calendar.latest_month(token.value, over=False)], at + 1

    def _month_and_day(self, at: int) -> _Found | None:
        token, day = self._at(at), self._at(at + 1)
        year, end = (None, at + 2) if day.stop not in ("", ",") else self._year_behind(at + 2)
        if day.kind is Kind.SPAN:
            if token.kind is Kind.MONTH or token.capital or self._introduced(at) or year is not None:
                return self._dated_span(year, token.value, day.value, day.pair[0], end)
            return None
        sure = year is not None or day.capital
        if not sure and self._relation(at) is Kind.IN and self._at(at - 1).kind is not Kind.ARTICLE:
            return None  # in March 3 of them …
        if not sure and token.kind is not Kind.MONTH:
            sure = self._introduced(at) or self._ends(at + 2)
            sure = sure or (token.capital and at > 0)
            if not sure:
                return None
        return self._dated(year, token.value, day.value, end)

    def _weekday(self, at: int) -> _Found | None:
        token, then = self._at(at), at + 1
        following = self._at(then)
        if following.kind is Kind.NEXT:
            return None
        dated = self._behind_weekday(at)
        if dated is not None:
            return dated
        if not token.stop:
            if following.kind in (Kind.LAST_BEHIND, Kind.LAST) and not self._is_week(then + 1):
                return self._with_part(self._calendar.weekday(token.value, over=True), then + 1)
            skipped = then + 1 if following.kind is Kind.OF else then
            if self._at(skipped).kind in (Kind.LAST, Kind.THIS) and self._is_week(skipped + 1):
                week = self._calendar.unit(Unit.WEEK, -self._at(skipped).value)
                return self._with_weekday_before(week, token.value, skipped + 2)
        if token.kind is not Kind.WEEKDAY and not self._alone:
            relation = self._relation(at)
            if token.kind is Kind.SHORT_WEEKDAY:
                if relation not in (Kind.ON, Kind.SINCE) or token.word in ("sun", "sat"):
                    return None
            elif relation is Kind.NOTHING and not self._ends(then) and following.kind is not Kind.PART:
                return None
        return self._with_part(self._calendar.weekday(token.value, over=False), then)

    def _with_weekday_before(self, week: Period, weekday: int, end: int) -> _Found:
        day = week.start + timedelta(days=weekday)
        return self._with_part(Period(day, day + timedelta(days=1)), end)

    def _behind_weekday(self, at: int) -> _Found | None:
        """The date itself, of `Monday, 7 May` and `Montag, den 7. Mai`."""
        then = at + 1
        while self._at(then).kind in (Kind.ARTICLE, Kind.ON) and then < at + 3:
            then += 1
        kind = self._at(then).kind
        if kind is Kind.DATE:
            return self._date(then)
        if kind is Kind.NUMBER:
            return self._day_of_month(then)
        return self._month_and_day(then) if kind in MONTHS and is_day(self._at(then + 1)) else None

    def _season(self, at: int) -> _Found | None:
        """Summer 2024, in the summer, el verano pasado."""
        token, following = self._at(at), self._at(at + 1)
        year, end = self._year_behind(at + 1)
        if year is not None and (token.kind is Kind.SEASON or end == at + 2 or following.kind is Kind.OF):
            return [self._calendar.season(token.value, year, over=False)], end
        if following.kind in (Kind.LAST_BEHIND, Kind.LAST) and not token.stop:
            return [self._calendar.season(token.value, None, over=True)], at + 2
        if token.kind is Kind.WEAK_SEASON and token.word in ("spring", "fall", "ete") and not self._alone:
            return None
        if not self._introduced(at) or following.kind is Kind.NEXT:
            return None
        return [self._calendar.season(token.value, None, over=False)], at + 1

    def _quarter(self, at: int) -> _Found | None:
        token = self._at(at)
        if token.pair:
            return [self._calendar.quarter(token.value, token.pair[0])], at + 1
        year, end = self._year_behind(at + 1)
        if year is not None:
            return [self._calendar.quarter(token.value, year)], end
        earlier = self._at(at - 1)
        if earlier.word in NUMBERED:
            return None
        if not self._introduced(at) and not (token.capital and ":" not in token.stop):
            return None
        return [self._calendar.quarter(token.value, None)], at + 1

    def _holiday(self, at: int) -> _Found | None:
        year, end = self._year_behind(at + 1)
        if year is None and not self._weakly_introduced(at):
            return None
        return [self._calendar.holiday(Holiday(self._at(at).value), year, over=False)], end

    def _weekend(self, at: int) -> _Found | None:
        if self._at(at + 1).kind in (Kind.LAST_BEHIND, Kind.LAST):
            return [self._calendar.weekend(over=True)], at + 2
        if not self._weakly_introduced(at) or self._at(at + 1).kind is Kind.NEXT:
            return None
        return [self._calendar.weekend(over=False)], at + 1

    def _unit(self, at: int) -> _Found | None:
        """The week before last, the day before yesterday, la semana pasada, l'an dernier."""
        token, following, third = self._at(at), self._at(at + 1), self._at(at + 2)
        unit = Unit(token.value)
        if token.stop:
            return None
        if following.kind is Kind.BEFORE and third.kind is Kind.LAST and unit >= Unit.WEEK:
            return [self._calendar.unit(unit, -2)], at + 3
        if following.kind is Kind.BEFORE and third.word == "yesterday" and unit is Unit.DAY:
            return [self._calendar.day(-2)], at + 3
        if following.kind in (Kind.LAST_BEHIND, Kind.LAST) and unit >= Unit.WEEK:
            return self._with_weekday(self._calendar.unit(unit, -1), unit, at + 2)
        return None

    def _other_day(self, at: int) -> _Found | None:
        token, following = self._at(at), self._at(at + 1)
        if token.word == "other":
            if self._at(at - 1).word != "the" or following.word != "day":
                return None
            at += 1
        week = Period(self._calendar.day(-7).start, self._calendar.day(0).start)
        return [week], at + 1

    def _third(self, at: int) -> _Found | None:
        """Early June, at the end of May, the beginning of last year."""
        token, then = self._at(at), at + 1
        if token.stop:
            return None
        while self._at(then).kind in (Kind.OF, Kind.ARTICLE) and then < at + 3:
            then += 1
        if token.kind is Kind.THIRD_OF and self._at(at + 1).kind is not Kind.OF:
            return None
        whole = self._at(then)
        if whole.kind is Kind.UNIT and whole.value >= Unit.WEEK and self._at(then - 1).kind is Kind.ARTICLE:
            if not (self._ends(then + 1) or self._at(then + 1).word in YEAR_NEXT):
                return None
            found: _Found | None = ([self._calendar.unit(Unit(whole.value), 0)], then + 1)
        elif whole.kind in (*MONTHS, *SEASONS, Kind.LAST, Kind.THIS, Kind.QUARTER, Kind.UNIT, Kind.NUMBER):
            if self._is_modal(then) or (whole.kind is Kind.NUMBER and whole.pair != (4,)):
                return None
            found = self._period(then, introduced=True)
        else:
            return None
        if found is None:
            return None
        return [third_of(one, Third(token.value)) for one in found[0]], found[1]

    def _date(self, at: int) -> _Found | None:
        """Written in digits. Both readings of what may be one of two days."""
        token = self._at(at)
        year, month, day = token.pair
        if self._at(at - 1).word in NUMBERED:
            return None
        if year == 0:
            return self._dated(None, month, day, at + 1) if self._introduced(at) else None
        if not YEAR_MIN <= year <= YEAR_MAX or not (token.capital or self._introduced(at)):
            return None
        readings = [self._calendar.date(year, month, day)]
        if token.value == 2 and month != day:
            readings.append(self._calendar.date(year, day, month))
        days = [one for one in readings if one is not None]
        return (days, at + 1) if days else None

    def _year_month(self, at: int) -> _Found | None:
        """In 2026-01, in 01/2026."""
        year, month = self._at(at).pair
        if not YEAR_MIN <= year <= YEAR_MAX or not 1 <= month <= 12 or not self._introduced(at):
            return None
        return [self._calendar.month(year, month)], at + 1

    _METHODS: ClassVar[dict[Kind, Callable[["Reader", int], _Found | None]]] = {
        Kind.DAY: _day,
        Kind.TONIGHT: _tonight,
        Kind.LAST: _last,
        Kind.PAST: _past,
        Kind.THIS: _this,
        Kind.NUMBER: _numbered,
        Kind.SOME: _numbered,
        Kind.SPAN: _span,
        **dict.fromkeys(MONTHS, _month),
        **dict.fromkeys(WEEKDAYS, _weekday),
        **dict.fromkeys(SEASONS, _season),
        Kind.QUARTER: _quarter,
        Kind.HOLIDAY: _holiday,
        Kind.WEEKEND: _weekend,
        Kind.UNIT: _unit,
        Kind.OTHER: _other_day,
        Kind.THIRD: _third,
        Kind.THIRD_OF: _third,
        Kind.DATE: _date,
        Kind.YEAR_MONTH: _year_month,
    }


def _before(one: Period, two: Period) -> bool:
    return one.start.replace(tzinfo=None) < two.end.replace(tzinfo=None)
