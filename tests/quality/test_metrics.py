"""The figures are what their names say, on lists that can be reckoned by hand."""

import math

import pytest

from bench.quality.measuring import MARGIN_ALL, MARGIN_SET, Figures, regressions
from bench.quality.metrics import NAMES, mean, scores
from bench.quality.sets import AGE_DAYS_MAX, read_sets


def test_a_right_passage_in_second_place() -> None:
    found = scores(["a", "b", "c"], {"b": 1.0})
    assert found == {
        "recall@1": 0,
        "recall@5": 1,
        "recall@10": 1,
        "MRR@10": 0.5,
        "nDCG@10": pytest.approx(1 / math.log2(3)),
    }
    assert tuple(found) == NAMES


def test_two_right_passages_of_which_one_is_found() -> None:
    found = scores(["a", "x"], {"a": 1.0, "b": 1.0})
    assert (found["recall@1"], found["recall@5"], found["MRR@10"]) == (1, 0.5, 1)
    assert found["nDCG@10"] == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_what_stands_behind_the_tenth_place_counts_for_nothing() -> None:
    assert set(scores([*"abcdefghij", "k"], {"k": 1.0}).values()) == {0.0}


def test_a_better_grade_in_the_first_place_is_worth_more() -> None:
    grades = {"best": 2.0, "good": 1.0}
    right, wrong = scores(["best", "good"], grades), scores(["good", "best"], grades)
    assert right["nDCG@10"] == 1 > wrong["nDCG@10"]


@pytest.mark.parametrize("wanted", [{}, {"a": 0.0}])
def test_a_query_without_an_answer_is_refused(wanted: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="wants"):
        scores(["a"], wanted)


def test_the_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [0.0, 1.0] * 50
    found = mean(values)
    assert found.low < found.value == 0.5 < found.high
    assert 0.35 < found.low < found.high < 0.65
    assert mean(values) == found


def figures(value: float) -> Figures:
    return {"hybrid": {"all": dict.fromkeys(NAMES, value), "typos": dict.fromkeys(NAMES, value)}}


def test_only_a_fall_beyond_the_margin_is_a_regression() -> None:
    before = figures(0.7)
    assert regressions(figures(0.9), before) == []
    assert regressions(figures(0.7 - MARGIN_ALL / 2), before) == []
    found = regressions(figures(0.7 - (MARGIN_ALL + MARGIN_SET) / 2), before)
    assert {line.partition(":")[0] for line in found} == {"hybrid, all"}
    assert len(regressions(figures(0.5), before)) == 6
    assert regressions({}, before)


def test_the_sets_are_as_large_and_as_many_sided_as_they_claim() -> None:
    sets = read_sets()
    assert len(sets.passages) >= 3000
    assert len(sets.queries) >= 300
    assert len(sets.names) >= 10
    assert all(0 <= passage.age <= AGE_DAYS_MAX for passage in sets.passages)
    assert read_sets().passages == sets.passages
