"""Hybrid that loses to its better half is found out, and luck in a few questions is none."""

import random
from datetime import UTC, datetime

import pytest

from bench.quality.__main__ import verdict
from bench.quality.halves import MARGIN_MIN, difference, differences, shortfalls
from bench.quality.measuring import ALL, OWN, Measured
from bench.quality.report import Results, report


def collection(
    keyword: list[float], vector: list[float], hybrid: list[float], kinds: list[str] | None = None
) -> Measured:
    by_mode = {
        mode: [{"recall@10": value, "MRR@10": value} for value in values]
        for mode, values in {"keyword": keyword, "vector": vector, "hybrid": hybrid}.items()
    }
    return Measured("a set", kinds or ["one"] * len(hybrid), by_mode)


def test_the_better_half_is_what_hybrid_is_measured_by() -> None:
    found = difference(collection([0, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]), ALL, "recall@10")
    assert found is not None
    assert (found.half, found.value, found.questions) == ("vector", 0.25, 4)
    assert found.low <= found.value <= found.high
    assert not found.falls_short


def test_differences_are_of_the_same_questions() -> None:
    """Halves that differ much from question to question, and hybrid that loses a little on each: sure, though means are not."""
    chance = random.Random(3)
    half = [chance.random() for _ in range(100)]
    found = difference(collection([0.0] * 100, half, [value - 0.009 for value in half]), ALL, "MRR@10")
    assert found is not None
    assert -MARGIN_MIN < found.value < 0
    assert found.high < 0
    assert found.falls_short


def test_a_mean_that_is_below_by_more_than_the_margin_falls_short_even_where_chance_could_have_it() -> None:
    half, hybrid = [1.0] * 20 + [0.0] * 20, [0.0] * 6 + [1.0] * 14 + [1.0] * 4 + [0.0] * 16
    found = difference(collection([0.0] * 40, half, hybrid), ALL, "recall@10")
    assert found is not None
    assert found.low < 0 < found.high
    assert found.falls_short


def test_one_question_that_is_lost_is_no_shortfall_and_two_are() -> None:
    half = [1.0] * 8
    assert shortfalls(collection([0.0] * 8, half, [0.0] + [1.0] * 7)) == []
    assert shortfalls(collection([0.0] * 8, half, [0.0] * 2 + [1.0] * 6)) != []


def test_a_class_that_loses_is_named_although_all_together_win() -> None:
    kinds = ["typos"] * 10 + ["names"] * 90
    found = shortfalls(collection([1.0] * 10 + [0.0] * 90, [0.0] * 100, [0.0] * 10 + [1.0] * 90, kinds))
    assert {one.kind for one in found} == {"typos"}
    assert str(found[0]).startswith("a set, typos: recall@10 of hybrid is -1.000 from keyword")


def test_equal_figures_are_no_shortfall() -> None:
    values = [1.0, 0.0, 0.5] * 10
    assert shortfalls(collection(values, values, values)) == []


def test_questions_without_an_answer_are_not_compared() -> None:
    by_mode = {mode: [{"recall@10": 1.0}, {}] for mode in ("keyword", "vector", "hybrid")}
    found = differences(Measured("a set", ["asked", "never said"], by_mode))
    assert [(one.kind, one.questions) for one in found] == [(ALL, 1), ("asked", 1)]


def test_a_run_fails_where_hybrid_falls_short_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = collection([0.0] * 9, [0.5] * 9, [1.0] * 9), collection([0.0] * 9, [0.5] * 9, [0.0] * 9)
    assert verdict([], [good]) == 0
    assert capsys.readouterr().err == ""
    assert verdict([], [good, bad]) == 1
    assert (
        "falls short of its better half: a set, all: recall@10 of hybrid is -0.500" in capsys.readouterr().err
    )
    assert verdict(["hybrid, typos"], [good]) == 1
    assert capsys.readouterr().err == "worse than the baseline: hybrid, typos\n"


def test_the_report_shows_each_difference_with_its_interval_and_what_falls_short() -> None:
    own = Measured(
        OWN, ["typos"] * 8 + ["names"] * 8, collection([0.5] * 16, [0.0] * 16, [0.0] * 8 + [1.0] * 8).by_mode
    )
    page = report(Results("a model", 16, own), when=datetime(2026, 1, 2, tzinfo=UTC))
    assert f"| {OWN} | 16 | keyword | +0.000 (" in page
    assert f"- {OWN}, typos: recall@10 of hybrid is -0.500 from keyword" in page
    assert "**-0.500 (-0.50 to -0.50)**" in page
    assert "| +0.500 (+0.50 to +0.50) |" in page
    assert f"| {OWN}: recall@10 | ≥ 0.92 | 0.500" in page


@pytest.mark.parametrize("metric", ["recall@10", "MRR@10"])
def test_the_interval_is_the_same_each_time(metric: str) -> None:
    chance = random.Random(1)
    keyword, vector, hybrid = ([float(chance.random() < 0.5) for _ in range(60)] for _ in range(3))
    some = collection(keyword, vector, hybrid)
    assert difference(some, ALL, metric) == difference(some, ALL, metric)
