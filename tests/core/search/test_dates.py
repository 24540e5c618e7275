"""Which dates a query speaks of, and which it does not. Now is Wednesday, 18 November 2026, half past two in Berlin."""

from datetime import datetime
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal_core.search.date_words import WORDS
from crystal_core.search.dates import RANGES_MAX, READ_CHARS_MAX, DateRange, date_ranges, moment_range

_BERLIN = ZoneInfo("Europe/Berlin")
_NOW = int(datetime(2026, 11, 18, 14, 30, tzinfo=_BERLIN).timestamp() * 1000)

_ENGLISH = [
    ("yesterday", "2026-11-17..2026-11-18"),
    ("what did we do today", "2026-11-18..2026-11-19"),
    ("this morning's bug", "2026-11-18..2026-11-18T12:00"),
    ("last week", "2026-11-09..2026-11-16"),
    ("two weeks ago", "2026-11-01..2026-11-08"),
    ("3 days ago", "2026-11-15..2026-11-16"),
    ("in March", "2026-03-01..2026-04-01"),
    ("last March", "2026-03-01..2026-04-01"),
    ("decided March 2025", "2025-03-01..2025-04-01"),
    ("on 7 May 2023", "2023-05-07..2023-05-08"),
    ("May 7th", "2026-05-07..2026-05-08"),
    ("2026-01-31", "2026-01-31..2026-02-01"),
    ("31.01.2026", "2026-01-31..2026-02-01"),
    ("01/31/2026", "2026-01-31..2026-02-01"),
    ("03/04/2026", "2026-04-03..2026-04-04 2026-03-04..2026-03-05"),
    ("on Monday", "2026-11-16..2026-11-17"),
    ("last Monday", "2026-11-16..2026-11-17"),
    ("since Tuesday", "2026-11-17..now"),
    ("between 3 and 10 March", "2026-03-03..2026-03-11"),
    ("early June", "2026-06-01..2026-06-11"),
    ("at the end of May", "2026-05-21..2026-06-01"),
    ("in 2024", "2024-01-01..2025-01-01"),
    ("last summer", "2026-06-01..2026-09-01"),
    ("what failed in Q3", "2026-07-01..2026-10-01"),
    ("before Christmas", "..2025-12-24"),
    ("the week before last", "2026-11-02..2026-11-09"),
    ("the day before yesterday", "2026-11-16..2026-11-17"),
    ("last 3 days", "2026-11-15..now"),
    ("past two weeks", "2026-11-04..now"),
    ("over the weekend", "2026-11-14..2026-11-16"),
    ("last night", "2026-11-17T18:00..2026-11-18T06:00"),
    ("monday morning", "2026-11-16..2026-11-16T12:00"),
    ("from Monday to Wednesday", "2026-11-16..2026-11-19"),
    ("between March and May", "2026-03-01..2026-06-01"),
    ("from the 3rd to the 10th of March 2025", "2025-03-03..2025-03-11"),
    ("March 3-10", "2026-03-03..2026-03-11"),
    ("3-10 March 2025", "2025-03-03..2025-03-11"),
    ("mid-June", "2026-06-11..2026-06-21"),
    ("a couple of days ago", "2026-11-16..2026-11-17"),
    ("a few weeks ago", "2026-10-11..2026-11-08"),
    ("the other day", "2026-11-11..2026-11-18"),
    ("on the 7th", "2026-11-07..2026-11-08"),
    ("May 7, 2023", "2023-05-07..2023-05-08"),
    ("Monday, 7 May", "2026-05-07..2026-05-08"),
    ("last week Monday", "2026-11-09..2026-11-10"),
    ("on Monday last week", "2026-11-09..2026-11-10"),
    ("Monday of last week", "2026-11-09..2026-11-10"),
    ("March last year", "2025-03-01..2025-04-01"),
    ("summer 2024", "2024-06-01..2024-09-01"),
    ("fall 2025", "2025-09-01..2025-12-01"),
    ("Q3 2025", "2025-07-01..2025-10-01"),
    ("2025Q3", "2025-07-01..2025-10-01"),
    ("end of last year", "2025-09-01..2026-01-01"),
    ("since March", "2026-03-01..now"),
    ("until yesterday", "..2026-11-18"),
    ("after Easter", "2026-04-07..now"),
    ("before Thanksgiving", "..2025-11-27"),
    ("what did we decide on May 5", "2026-05-05..2026-05-06"),
    ("7 May", "2026-05-07..2026-05-08"),
    ("an hour ago", "2026-11-18T13:00..2026-11-18T14:00"),
    ("in the last 24 hours", "2026-11-17T14:30..now"),
    ("10 minutes ago", "2026-11-18T14:19..2026-11-18T14:20"),
    ("this week", "2026-11-16..2026-11-23"),
    ("this year", "2026-01-01..2027-01-01"),
    ("in 2026-01", "2026-01-01..2026-02-01"),
    ("in 01/2026", "2026-01-01..2026-02-01"),
    ("two months ago", "2026-09-03..2026-10-04"),
    ("a year ago", "2025-08-19..2026-02-18"),
    ("since last Friday", "2026-11-13..now"),
    ("during the June 14 call", "2026-06-14..2026-06-15"),
    ("yesterday evening", "2026-11-17T17:00..2026-11-18"),
    ("what did we decide friday?", "2026-11-13..2026-11-14"),
    ("on Fri", "2026-11-13..2026-11-14"),
    ("7-May-2023", "2023-05-07..2023-05-08"),
    ("in may", "2026-05-01..2026-06-01"),
    ("In May we did it", "2026-05-01..2026-06-01"),
]

_GERMAN = [
    ("gestern", "2026-11-17..2026-11-18"),
    ("heute Morgen", "2026-11-18..2026-11-18T12:00"),
    ("was haben wir vorgestern entschieden", "2026-11-16..2026-11-17"),
    ("letzte Woche", "2026-11-09..2026-11-16"),
    ("vor 3 Tagen", "2026-11-15..2026-11-16"),
    ("vor zwei Wochen", "2026-11-01..2026-11-08"),
    ("vor einem Monat", "2026-10-03..2026-11-03"),
    ("am Montag", "2026-11-16..2026-11-17"),
    ("letzten Montag", "2026-11-16..2026-11-17"),
    ("seit Dienstag", "2026-11-17..now"),
    ("im März", "2026-03-01..2026-04-01"),
    ("Anfang Juni", "2026-06-01..2026-06-11"),
    ("Mitte Juni", "2026-06-11..2026-06-21"),
    ("Ende Mai", "2026-05-21..2026-06-01"),
    ("am 7. Mai 2023", "2023-05-07..2023-05-08"),
    ("zwischen dem 3. und 10. März", "2026-03-03..2026-03-11"),
    ("im Jahr 2024", "2024-01-01..2025-01-01"),
    ("vom 3. bis 10. März", "2026-03-03..2026-03-11"),
    ("letzten Sommer", "2026-06-01..2026-09-01"),
    ("vor Weihnachten", "..2025-12-24"),
    ("vor dem 3. März", "..2026-03-03"),
    ("letztes Jahr", "2025-01-01..2026-01-01"),
    ("am 31.1.", "2026-01-31..2026-02-01"),
    ("gestern Abend", "2026-11-17T17:00..2026-11-18"),
    ("am Wochenende", "2026-11-14..2026-11-16"),
    ("vor ein paar Tagen", "2026-11-14..2026-11-17"),
    ("März letzten Jahres", "2025-03-01..2025-04-01"),
    ("seit drei Tagen", "2026-11-15..now"),
    ("Montag, den 7. Mai", "2026-05-07..2026-05-08"),
    ("diese Woche", "2026-11-16..2026-11-23"),
]

_SPANISH = [
    ("ayer", "2026-11-17..2026-11-18"),
    ("la semana pasada", "2026-11-09..2026-11-16"),
    ("el mes pasado", "2026-10-01..2026-11-01"),
    ("hace 3 días", "2026-11-15..2026-11-16"),
    ("hace dos semanas", "2026-11-01..2026-11-08"),
    ("el lunes", "2026-11-16..2026-11-17"),
    ("el lunes pasado", "2026-11-16..2026-11-17"),
    ("desde el martes", "2026-11-17..now"),
    ("en marzo", "2026-03-01..2026-04-01"),
    ("marzo de 2025", "2025-03-01..2025-04-01"),
    ("el 7 de mayo de 2023", "2023-05-07..2023-05-08"),
    ("entre el 3 y el 10 de marzo", "2026-03-03..2026-03-11"),
    ("a principios de junio", "2026-06-01..2026-06-11"),
    ("a finales de mayo", "2026-05-21..2026-06-01"),
    ("el verano pasado", "2026-06-01..2026-09-01"),
    ("los últimos 3 días", "2026-11-15..now"),
    ("esta mañana", "2026-11-18..2026-11-18T12:00"),
    ("anoche", "2026-11-17T18:00..2026-11-18T06:00"),
    ("el año pasado", "2025-01-01..2026-01-01"),
    ("ayer por la tarde", "2026-11-17T12:00..2026-11-17T18:00"),
    ("esta semana", "2026-11-16..2026-11-23"),
    ("marzo del año pasado", "2025-03-01..2025-04-01"),
]

_FRENCH = [
    ("hier soir", "2026-11-17T17:00..2026-11-18"),
    ("qu'est-ce qu'on a fait hier", "2026-11-17..2026-11-18"),
    ("aujourd'hui", "2026-11-18..2026-11-19"),
    ("avant-hier", "2026-11-16..2026-11-17"),
    ("la semaine dernière", "2026-11-09..2026-11-16"),
    ("le mois dernier", "2026-10-01..2026-11-01"),
    ("l'année dernière", "2025-01-01..2026-01-01"),
    ("l'an dernier", "2025-01-01..2026-01-01"),
    ("il y a 3 jours", "2026-11-15..2026-11-16"),
    ("il y a deux semaines", "2026-11-01..2026-11-08"),
    ("lundi dernier", "2026-11-16..2026-11-17"),
    ("depuis mardi", "2026-11-17..now"),
    ("en mars", "2026-03-01..2026-04-01"),
    ("mars 2025", "2025-03-01..2025-04-01"),
    ("le 7 mai 2023", "2023-05-07..2023-05-08"),
    ("le 1er mai", "2026-05-01..2026-05-02"),
    ("entre le 3 et le 10 mars", "2026-03-03..2026-03-11"),
    ("début juin", "2026-06-01..2026-06-11"),
    ("mi-juin", "2026-06-11..2026-06-21"),
    ("fin mai", "2026-05-21..2026-06-01"),
    ("en 2024", "2024-01-01..2025-01-01"),
    ("l'été dernier", "2026-06-01..2026-09-01"),
    ("ce matin", "2026-11-18..2026-11-18T12:00"),
    ("cette semaine", "2026-11-16..2026-11-23"),
    ("du 3 au 10 mars", "2026-03-03..2026-03-11"),
]

_JAPANESE = [
    ("昨日", "2026-11-17..2026-11-18"),
    ("今日の決定", "2026-11-18..2026-11-19"),
    ("先週", "2026-11-09..2026-11-16"),
    ("先週の月曜日", "2026-11-09..2026-11-10"),
    ("3日前", "2026-11-15..2026-11-16"),
    ("２週間前", "2026-11-01..2026-11-08"),
    ("1か月前", "2026-10-03..2026-11-03"),
    ("去年の3月", "2025-03-01..2025-04-01"),
    ("2026年1月31日に決めた", "2026-01-31..2026-02-01"),
    ("3月3日から10日まで", "2026-03-03..2026-03-11"),
    ("3月に", "2026-03-01..2026-04-01"),
    ("月曜日に", "2026-11-16..2026-11-17"),
    ("今朝のエラー", "2026-11-18..2026-11-18T12:00"),
    ("3月末", "2026-03-21..2026-04-01"),
    ("2024年", "2024-01-01..2025-01-01"),
    ("先月", "2026-10-01..2026-11-01"),
    ("三日前の話", "2026-11-15..2026-11-16"),
    ("昨日から", "2026-11-17..now"),
]

_NONE = [
    "the server may fail",
    "how may 2 threads share a lock",
    "march to the next step",
    "second sun",
    "version 1.2.2024",
    "port 2024",
    "in 5 minutes",
    "error 404",
    "python 3.11",
    "yesterday() returns None",
    "src/may/2024.py",
    "git log --since=yesterday",
    "run `last week`",
    'the word "yesterday"',
    "in 2048 bytes",
    "allocate in 2024 bytes",
    "30 February 2026",
    "February 30, 2026",
    "2026-13-45",
    "31.02.2026",
    "02/30/2026",
    "next week",
    "next monday",
    "every Friday",
    "the last may be wrong",
    "this may fail",
    "was machen wir hier",
    "monday board sync",
    "sun microsystems",
    "on port 2024",
    "spring boot",
    "fall back to 2",
    "Q1: what",
    "issue 2024",
    "last item",
    "last commit",
    "the past tense",
    "in december_config",
    "mar 3 files",
    "ip 10.12.24.5",
    "10.12.24",
    "a day",
    "one week",
    "in a week",
    "tomorrow",
    "hoy en día",
    "1/2 of the nodes",
    "12:30",
    "3.5 times",
    "at 18:00",
    "wait 3 days",
    "may",
    "march",
    "april said",
    "毎週月曜日",
    "来週の月曜日",
    "hace falta",
    "il y a 3 bugs",
    "2024-01-02T03:04:05.678901Z_x",
    "node 20.11.1",
    "the fall of 2 nodes",
    "it may 3 times",
    "jeden Montag",
    "todos los lunes",
    "the end of file",
    "early return",
    "late binding",
    "start march",
    "v2024.1",
    "summer of code",
    "winter is coming",
    "on may",
    "thread 3 may fail",
    "page 3 march",
    "lundi prochain",
    "el próximo lunes",
    "nächsten Montag",
    "since we moved",
    "between a and b",
    "before the merge",
    "/may/7",
    "C:\\may\\7",
    "may_2024",
    "2026-02-30",
    "99999年",
    "13月",
    "2月30日",
    "in the year 12",
    "the last Saturday of the month",
    "00/00/2026",
    "the 3 of them",
    "last",
    "vor",
    "hace",
    "12/31/2026",
    "on 25 December 2026",
    "2027",
    "the end of the month",
]
"""Nothing, or nothing that has been."""

_MOMENTS = [
    ("yesterday", "2026-11-17..2026-11-18"),
    ("Last Week", "2026-11-09..2026-11-16"),
    ("monday", "2026-11-16..2026-11-17"),
    ("last monday", "2026-11-16..2026-11-17"),
    ("fri", "2026-11-13..2026-11-14"),
    ("sat", "2026-11-14..2026-11-15"),
    ("may", "2026-05-01..2026-06-01"),
    ("march", "2026-03-01..2026-04-01"),
    ("may 7", "2026-05-07..2026-05-08"),
    ("7 may 2023", "2023-05-07..2023-05-08"),
    ("2024", "2024-01-01..2025-01-01"),
    ("q3", "2026-07-01..2026-10-01"),
    ("2026-01", "2026-01-01..2026-02-01"),
    ("2026-01-31", "2026-01-31..2026-02-01"),
    ("2027-01-31", "2027-01-31..2027-02-01"),
    ("20260131", "2026-01-31..2026-02-01"),
    ("31.01.2026", "2026-01-31..2026-02-01"),
    ("3 days ago", "2026-11-15..2026-11-16"),
    ("vor 3 Tagen", "2026-11-15..2026-11-16"),
    ("il y a 3 jours", "2026-11-15..2026-11-16"),
    ("hace dos semanas", "2026-11-01..2026-11-08"),
    ("先週", "2026-11-09..2026-11-16"),
    ("last 3 days", "2026-11-15..now"),
    ("since monday", "2026-11-16..now"),
    ("end of may", "2026-05-21..2026-06-01"),
]


def _shown(found: DateRange) -> str:
    return f"{_wall(found.start_ms, '')}..{_wall(found.end_ms, 'now')}"


def _wall(moment: int, special: str) -> str:
    """As in the tables: a moment of midnight by its date, the beginning of time by nothing, this moment by `now`."""
    if moment in (0, _NOW + 1):
        return special
    return datetime.fromtimestamp(moment / 1000, _BERLIN).strftime("%Y-%m-%dT%H:%M").removesuffix("T00:00")


@pytest.mark.parametrize(("query", "expected"), [*_ENGLISH, *_GERMAN, *_SPANISH, *_FRENCH, *_JAPANESE])
def test_dates_are_understood(query: str, expected: str) -> None:
    assert " ".join(_shown(one) for one in date_ranges(query, _NOW, _BERLIN)) == expected


@pytest.mark.parametrize("query", _NONE)
def test_what_is_no_date_is_none(query: str) -> None:
    assert date_ranges(query, _NOW, _BERLIN) == ()


def test_a_query_may_speak_of_several_dates_and_of_the_same_twice() -> None:
    query = "did what we said on 3 March, yesterday, change last week, or yesterday, or on 5 March, or on 6 March?"
    assert [_shown(one) for one in date_ranges(query, _NOW, _BERLIN)] == [
        "2026-03-03..2026-03-04",
        "2026-11-17..2026-11-18",
        "2026-11-09..2026-11-16",
        "2026-03-05..2026-03-06",
    ]


@pytest.mark.parametrize(("text", "expected"), _MOMENTS)
def test_one_expression_is_a_moment(text: str, expected: str) -> None:
    found = moment_range(text, _NOW, _BERLIN)
    assert found is not None
    assert _shown(found) == expected


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("24h", _NOW - 86_400_000),
        ("2W", _NOW - 14 * 86_400_000),
        ("999999w", 0),
        ("now", _NOW),
        ("0001-01-01T00:00", 0),
        ("2026-11-18T13:30:00Z", _NOW),
        ("2026-11-18T14:30", _NOW),
    ],
)
def test_an_age_or_a_time_of_day_is_one_millisecond(text: str, start: int) -> None:
    assert moment_range(text, _NOW, _BERLIN) == DateRange(start, start + 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "foo",
        "yesterday foo",
        "foo yesterday",
        "yesterday, monday",
        "2026-02-30",
        "01/02/2026",
        "5 bugs",
        "x" * 9000,
    ],
)
def test_what_is_no_moment_or_one_of_two_is_none(text: str) -> None:
    assert moment_range(text, _NOW, _BERLIN) is None


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", 25),
        ("Europe/Berlin", "2026-03-29", 23),
        ("America/Sao_Paulo", "2018-11-04", 23),  # has no midnight
        ("Asia/Kathmandu", "2026-01-31", 24),
    ],
)
def test_a_day_is_as_long_as_its_zone_has_it(zone: str, day: str, hours: int) -> None:
    (found,) = date_ranges(f"what happened on {day}", _NOW, ZoneInfo(zone))
    assert found.end_ms - found.start_ms == hours * 3_600_000
    wall = datetime.fromtimestamp(found.start_ms / 1000, ZoneInfo(zone))
    assert wall.date().isoformat() == day


def test_a_day_that_its_zone_left_out_is_none() -> None:
    assert date_ranges("what happened on 2011-12-30", _NOW, ZoneInfo("Pacific/Apia")) == ()


def test_yesterday_ends_where_the_zone_has_midnight() -> None:
    ends = {
        zone: date_ranges("yesterday", _NOW, ZoneInfo(zone))[0].end_ms
        for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo", "Pacific/Honolulu")
    }
    hours = {zone: (end - ends["UTC"]) // 3_600_000 for zone, end in ends.items()}
    assert hours == {"UTC": 0, "Europe/Berlin": -1, "Asia/Tokyo": -9, "Pacific/Honolulu": 10}


def test_a_month_or_a_day_without_a_year_is_the_latest_that_has_begun() -> None:
    (november,) = date_ranges("in November", _NOW, _BERLIN)
    (december,) = date_ranges("in December", _NOW, _BERLIN)
    (leap_day,) = date_ranges("on February 29", _NOW, _BERLIN)
    assert _shown(november) == "2026-11-01..2026-12-01"
    assert _shown(december) == "2025-12-01..2026-01-01"
    assert _shown(leap_day) == "2024-02-29..2024-03-01"


def test_the_hours_since_a_change_of_the_clocks_are_counted_as_they_passed() -> None:
    now = int(datetime(2026, 3, 29, 4, 0, tzinfo=_BERLIN).timestamp() * 1000)
    (found,) = date_ranges("in the last 3 hours", now, _BERLIN)
    assert found.end_ms - found.start_ms == 3 * 3_600_000


_PIECES = st.one_of(
    st.sampled_from(sorted(WORDS)),
    st.integers(-1, 10_000).map(str),
    st.from_regex(r"[0-9]{1,4}[-./][0-9]{1,4}[-./][0-9]{1,4}", fullmatch=True),
    st.sampled_from(
        [
            "先週の月曜日",
            "3月",
            "99年前",
            "から",
            "まで",
            "2月30日",
            "l'",
            "mid-june",
            "q9",
            "'s",
            ",",
            ".",
            "7th",
        ]
    ),
    st.text(max_size=8),
)
_QUERIES = st.lists(_PIECES, max_size=14).map(" ".join)
_ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns", "Asia/Tehran"]).map(
    ZoneInfo
)
_TIMES = st.integers(0, 4_102_444_800_000)


@given(_QUERIES, _TIMES, _ZONES)
@example("999 years ago, since 999 weeks, vor 999 monaten", 0, ZoneInfo("UTC"))
def test_any_text_has_a_few_ranges_that_have_begun_and_are_not_empty(
    query: str, now: int, zone: ZoneInfo
) -> None:
    found = date_ranges(query, now, zone)
    assert len(found) <= RANGES_MAX
    assert all(0 <= one.start_ms < one.end_ms and one.start_ms <= now for one in found)
    moment = moment_range(query, now, zone)
    assert moment is None or 0 <= moment.start_ms < moment.end_ms


@pytest.mark.parametrize(
    "piece",
    [
        "3 ",
        "vor ",
        "last ",
        "the ",
        "3 a ",
        "between 3 and ",
        "may ",
        "l'l'",
        "1-",
        "`",
        '"',
        "年",
        "1月",
        "end of the ",
    ],
)
def test_time_grows_with_the_length_alone(piece: str) -> None:
    """Sixteen times as much takes far less than sixteen times sixteen; what is longer is not read."""
    short, long = piece * (120 // len(piece)), piece * (16 * 120 // len(piece))
    assert _seconds(long) < 60 * _seconds(short) + 0.002
    start = process_time()
    assert date_ranges((piece * 16_384)[:16_384], _NOW, _BERLIN) == ()
    assert process_time() - start < 0.01
    assert READ_CHARS_MAX < 16_384


def _seconds(query: str) -> float:
    """The least of several runs."""
    times: list[float] = []
    for _ in range(5):
        start = process_time()
        date_ranges(query, _NOW, _BERLIN)
        times.append(process_time() - start)
    return min(times)
