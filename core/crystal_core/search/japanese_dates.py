"""Dates in Japanese: 昨日, 先週の月曜日, 3日前, 去年の3月, 2026年1月31日, 3月3日から10日まで."""

import re
from datetime import timedelta

from crystal_core.search.periods import Calendar, PartOfDay, Period, Third, Unit, before, third_of, until

FOUND_MAX = 5
"""Most expressions of one text; the first ones."""

_YEARS_MIN, _YEARS_MAX = 1990, 2100
_WEEKDAYS = "月火水木金土日"
_DIGITS = {digit: value for value, digit in enumerate("一二三四五六七八九十", 1)}
_NUMBER = r"\d{1,3}|[一二三四五六七八九十]"
_UNITS = {
    "分": Unit.MINUTE,
    "時間": Unit.HOUR,
    "日": Unit.DAY,
    "週間": Unit.WEEK,
    "か月": Unit.MONTH,
    "ヶ月": Unit.MONTH,
    "カ月": Unit.MONTH,
    "ヵ月": Unit.MONTH,
    "ケ月": Unit.MONTH,
    "年": Unit.YEAR,
}
_RELATIVE = {
    "一昨日": (Unit.DAY, -2),
    "おととい": (Unit.DAY, -2),
    "昨日": (Unit.DAY, -1),
    "きのう": (Unit.DAY, -1),
    "今日": (Unit.DAY, 0),
    "きょう": (Unit.DAY, 0),
    "先々週": (Unit.WEEK, -2),
    "先週": (Unit.WEEK, -1),
    "今週": (Unit.WEEK, 0),
    "先々月": (Unit.MONTH, -2),
    "先月": (Unit.MONTH, -1),
    "今月": (Unit.MONTH, 0),
    "一昨年": (Unit.YEAR, -2),
    "おととし": (Unit.YEAR, -2),
    "去年": (Unit.YEAR, -1),
    "昨年": (Unit.YEAR, -1),
    "今年": (Unit.YEAR, 0),
}
_PARTS = {
    "今朝": (0, PartOfDay.MORNING),
    "今晩": (0, PartOfDay.NIGHT),
    "今夜": (0, PartOfDay.NIGHT),
    "昨夜": (-1, PartOfDay.NIGHT),
    "昨晩": (-1, PartOfDay.NIGHT),
    "ゆうべ": (-1, PartOfDay.NIGHT),
}
_THIRDS = {"初め": 0, "初旬": 0, "上旬": 0, "中旬": 1, "半ば": 1, "下旬": 2, "末": 2}
_EXPRESSION = re.compile(
    rf"""
    (?P<ago>{_NUMBER})(?P<unit>{"|".join(_UNITS)})前
    | (?:(?P<year>\d{{4}})年の?|(?P<lastyear>去年|昨年|今年)の?)?
      (?:(?P<month>\d{{1,2}})月(?:(?P<day>\d{{1,2}})日|(?P<third>{"|".join(_THIRDS)}))?)
    | (?P<wholeyear>\d{{4}})年(?![間前\d])
    | (?P<week>先週の?|今週の?|前の|この前の)?(?P<weekday>[{_WEEKDAYS}])曜日?
    | (?P<part>{"|".join(_PARTS)})
    | (?P<relative>{"|".join(_RELATIVE)})
    | (?P<lastday>\d{{1,2}})日(?=まで)
    """,
    re.VERBOSE,
)
_EVERY = ("毎週", "毎", "来週の", "来週", "再来週の")


def japanese_periods(text: str, calendar: Calendar, *, whole: bool = False) -> list[Period]:
    """The periods that a text in NFKC speaks of, in its order. `whole`: only if the text is nothing but one."""
    found: list[Period] = []
    opened: tuple[Period, int] | None = None
    for match in _EXPRESSION.finditer(text):
        if whole and (match.start() or text[match.end() :] not in ("", "から", "以降", "まで")):
            return []
        if text[max(match.start() - 4, 0) : match.start()].endswith(_EVERY):
            continue
        period = _period(match, calendar, None if opened is None else opened[0])
        if period is None:
            continue
        following = text[match.end() : match.end() + 3]
        if opened is not None and opened[1] == match.start() and opened[0].start < period.end:
            found[-1] = Period(opened[0].start, period.end)
            opened = None
            continue
        opened = None
        if following.startswith("から"):
            opened = period, match.end() + 2
            found.append(calendar.since(period))
        elif following.startswith(("以降", "以来")):
            found.append(calendar.since(period))
        elif following.startswith("まで"):
            found.append(until(period))
        elif following.startswith(("以前", "より前", "の前")):
            found.append(before(period))
        else:
            found.append(period)
        if len(found) == FOUND_MAX:
            break
    return found


def _period(match: re.Match[str], calendar: Calendar, opened: Period | None) -> Period | None:
    group = match.groupdict()
    if group["ago"]:
        count = _DIGITS.get(group["ago"]) or int(group["ago"])
        return calendar.ago(_UNITS[group["unit"]], count) if count else None
    if group["month"]:
        return _month(match, calendar)
    if group["wholeyear"]:
        return _year(int(group["wholeyear"]), calendar)
    if group["weekday"]:
        weekday = _WEEKDAYS.index(group["weekday"])
        week = (group["week"] or "").rstrip("の")
        if week in ("先週", "今週"):
            day = calendar.unit(Unit.WEEK, -(week == "先週")).start + timedelta(days=weekday)
            return Period(day, day + timedelta(days=1))
        return calendar.weekday(weekday, over=bool(week))
    if group["part"]:
        offset, part = _PARTS[group["part"]]
        return calendar.part(calendar.day(offset), part)
    if group["lastday"]:
        return (
            None
            if opened is None
            else calendar.date(opened.start.year, opened.start.month, int(group["lastday"]))
        )
    return calendar.unit(*_RELATIVE[group["relative"]])


def _month(match: re.Match[str], calendar: Calendar) -> Period | None:
    month = int(match["month"])
    if not 1 <= month <= 12:
        return None
    year = int(match["year"]) if match["year"] else None
    if match["lastyear"]:
        year = calendar.today.year - (match["lastyear"] != "今年")
    if year is not None and not _YEARS_MIN <= year <= _YEARS_MAX:
        return None
    if match["day"]:
        day = int(match["day"])
        return calendar.latest_date(month, day) if year is None else calendar.date(year, month, day)
    period = calendar.latest_month(month, over=False) if year is None else calendar.month(year, month)
    return third_of(period, Third(_THIRDS[match["third"]])) if match["third"] else period


def _year(year: int, calendar: Calendar) -> Period | None:
    if not _YEARS_MIN <= year <= _YEARS_MAX:
        return None
    return Period(calendar.month(year, 1).start, calendar.month(year, 12).end)
