"""Times as people type them."""

from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.base.clock import LocalZone
from crystal_node.base.errors import UsageError
from crystal_node.base.timespans import parse_since, parse_until
from crystal_node.base.wording import ago, counted, iso, one_line, printable, size

_NOW = 1_767_603_600_000  # 2026-01-05T09:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24h", _NOW - 86_400_000),
        ("7d", _NOW - 7 * 86_400_000),
        ("2W", _NOW - 14 * 86_400_000),
        ("90m", _NOW - 5_400_000),
        ("999999w", 0),
        ("2026-01-05T08:00:00Z", _NOW - 3_600_000),
        ("2026-01-05T10:00:00+01:00", _NOW),
        ("1960-01-01T00:00:00Z", 0),
    ],
)
def test_ages_and_dates_are_moments(text: str, expected: int) -> None:
    assert parse_since(text, _NOW, UTC) == expected
    assert parse_until(text, _NOW, UTC) == expected


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-01-04", "2026-01-04", "2026-01-05"),
        ("yesterday", "2026-01-04", "2026-01-05"),
        ("Last week", "2025-12-29", "2026-01-05"),
        ("sunday", "2026-01-04", "2026-01-05"),
        ("in march", "2025-03-01", "2025-04-01"),
        ("2025", "2025-01-01", "2026-01-01"),
        ("letzte Woche", "2025-12-29", "2026-01-05"),
        ("la semana pasada", "2025-12-29", "2026-01-05"),
        ("hier", "2026-01-04", "2026-01-05"),
        ("先週", "2025-12-29", "2026-01-05"),
    ],
)
def test_since_is_the_beginning_and_until_the_end_of_what_is_named(text: str, first: str, last: str) -> None:
    beginning, end = (
        int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000) for day in (first, last)
    )
    assert parse_since(text, _NOW, UTC) == beginning
    assert parse_until(text, _NOW, UTC) == end - 1


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-02-30", "2026-13-45", "01/02/2026", "next week maybe", "7x", "\x1b[31m"]
)
def test_what_is_no_time_is_told_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(UsageError, match="no time that is understood") as refused:
        parse_since(text, _NOW, UTC)
    assert all(form in str(refused.value.hint) for form in ("24h", "yesterday", "last week", "2026-01-31"))


def test_a_date_without_a_zone_is_in_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/Halifax")
    time.tzset()
    try:
        assert parse_since("2026-01-05T05:00", _NOW, LocalZone()) == _NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.integers(800_000_000, 2_100_000_000))
def test_the_machines_zone_changes_its_clocks_as_the_system_does(seconds: int) -> None:
    import time

    moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    before = time.tzname
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        try:
            named, nameless = (
                moment.replace(tzinfo=UTC).astimezone(zone)
                for zone in (ZoneInfo("Europe/Berlin"), LocalZone())
            )
            assert (nameless.replace(tzinfo=None), nameless.fold) == (named.replace(tzinfo=None), named.fold)
            assert nameless.utcoffset() == named.utcoffset()
            assert (
                moment.replace(tzinfo=LocalZone()).timestamp()
                == moment.replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
            )
        finally:
            patched.undo()
            time.tzset()
    assert time.tzname == before


@given(st.text(max_size=40))
def test_whatever_is_typed_is_a_moment_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert parse_since(text, _NOW, UTC) >= 0


@given(st.text(max_size=200), st.integers(1, 50))
def test_foreign_text_on_one_line_is_printable_and_fits(text: str, width: int) -> None:
    shown = one_line(text, width)
    assert len(shown) <= width
    assert shown.isprintable()
    assert printable(text).isprintable() or not text


def test_numbers_are_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536, 3 * 2**20, 5 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert [counted(n, "memory", "memories") for n in (0, 1, 1200)] == [
        "0 memories",
        "1 memory",
        "1,200 memories",
    ]
    assert [ago(n) for n in (-5, 12, 300, 7200, 200_000)] == ["0 s", "12 s", "5 min", "2 h", "2 days"]
    assert [iso(n) for n in (0, -1, _NOW, 10**18)] == [None, None, "2026-01-05T09:00:00.000Z", None]
