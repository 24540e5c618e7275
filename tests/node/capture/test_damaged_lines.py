"""A line that broke off: what is whole on it is found, in a time that grows as the line does, whatever it holds."""

import time

import pytest

from crystal_node.capture.json_values import records_within

GOOD = b'{"type":"user","uuid":"1"}'
DEPTH = 900
"""Nested as deeply as a parser still goes."""
SECONDS_PER_MB_MAX = 20.0
"""Also on a machine that does much else. A line of 36 KB took five seconds."""


def _seconds(line: bytes) -> float:
    began = time.process_time()
    records_within(line)
    return time.process_time() - began


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":' * DEPTH + b"[" + b"0," * 60_000,
        b'{"a":' * DEPTH + b'"' + b"x" * 120_000,
        b'{"a":' * 25_000,
        b'{"a":[' * 20_000,
        b'{"' * 60_000,
        (b'{"a":' * 450 + b"1" + b"}" * 450 + b",") * 40,
        (b'{"a":' * DEPTH + b"!") * 26,
        b'{"a":"' * 20_000,
        b'{"a":' + b"1" * 120_000,
    ],
    ids=["chain", "text", "objects", "arrays", "braces", "closed", "broken", "quotes", "digits"],
)
def test_no_nesting_makes_a_damaged_line_expensive(line: bytes) -> None:
    assert min(_seconds(line) for _ in range(2)) < SECONDS_PER_MB_MAX * len(line) / 1e6 * 0.5 + 0.5


def test_four_times_the_line_takes_about_four_times_as_long() -> None:
    def line(size: int) -> bytes:
        return b'{"a":' * DEPTH + b"[" + b"0," * (size // 2)

    short, long = (min(_seconds(line(size)) for _ in range(3)) for size in (100_000, 400_000))
    assert long < 8 * short


@pytest.mark.parametrize("count", [1, 100, 4_000, 40_000])
def test_a_record_behind_one_that_broke_off_is_found_however_much_that_one_holds(count: int) -> None:
    torn = b'{"t":{"u":[' + b'{"k":{"v":[1,2,{"z":"y"}]}},' * count
    assert records_within(torn + GOOD) == [(len(torn), GOOD)]


def test_two_whole_records_behind_one_nested_a_hundred_deep_are_found() -> None:
    torn = b'{"a":' * 100
    assert records_within(torn + GOOD + GOOD) == [
        (len(torn), GOOD),
        (len(torn) + len(GOOD), GOOD),
    ]
