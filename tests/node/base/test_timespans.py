"""Times as people type them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.base.errors import UsageError
from crystal_node.base.timespans import parse_since
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
    assert parse_since(text, _NOW) == expected


def test_a_date_without_a_zone_is_in_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/Halifax")
    time.tzset()
    try:
        assert parse_since("2026-01-05T05:00", _NOW) == _NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=40))
def test_whatever_is_typed_is_a_moment_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert parse_since(text, _NOW) >= 0


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
