"""How a judge's scores count: the port's rules that do not depend on a model."""

import random
from collections.abc import Sequence
from itertools import count

import pytest

from crystal_core.search.judge import JUDGED_MAX, PASSAGE_CHARS_MAX, TOGETHER, JudgeError, judged, judgement
from tests.support.overlap_judge import OverlapJudge


class _Failing(OverlapJudge):
    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        raise JudgeError("it broke")


class _Odd(OverlapJudge):
    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        return [float("nan") for _ in passages]


def test_scores_that_are_all_alike_change_nothing() -> None:
    for score in (0.0, 0.4, 1.0):
        assert judged(list("abcdef"), [score] * 6) == list("abcdef")


def test_a_hit_that_surely_answers_passes_those_that_surely_do_not() -> None:
    assert judged(list("abcdef"), [0, 0, 0, 0, 0, 1.0])[0] == "f"


def test_a_small_difference_does_not_overturn_the_ranking() -> None:
    assert judged(list("abcdef"), [0.50, 0.52, 0.5, 0.5, 0.5, 0.55])[0] == "a"


def test_what_was_not_judged_follows_as_it_was() -> None:
    assert judged(list("abcdef"), [0.0, 1.0]) == list("bacdef")
    assert judged(list("abc"), []) == list("abc")
    with pytest.raises(ValueError, match="4 scores for 3 hits"):
        judged(list("abc"), [1.0] * 4)


def test_no_hit_is_lost_or_doubled_and_a_better_score_never_lowers_a_place() -> None:
    numbers = random.Random(5)
    for _ in range(300):
        order = list(range(numbers.randint(1, 40)))
        scores = [numbers.random() for _ in range(numbers.randint(0, min(len(order), JUDGED_MAX)))]
        found = judged(order, scores)
        assert sorted(found) == order
        if scores:
            one = numbers.randrange(len(scores))
            raised = [*scores]
            raised[one] = numbers.uniform(scores[one], 1.0)
            assert judged(order, raised).index(one) <= found.index(one)


def test_only_the_beginnings_of_the_first_hits_are_read() -> None:
    judge = OverlapJudge()
    found = judgement(judge, "walrus", ["x" * 9000] * 50)
    assert len(found.scores) == JUDGED_MAX
    assert max(len(batch) for batch in judge.asked) == TOGETHER
    assert {len(passage) for batch in judge.asked for passage in batch} == {PASSAGE_CHARS_MAX}


def test_one_that_takes_too_long_counts_for_nothing() -> None:
    judge = OverlapJudge()
    seconds = count()
    found = judgement(judge, "walrus", ["a walrus"] * 20, seconds=3, clock=lambda: float(next(seconds)))
    assert found.scores == ()
    assert found.note == "the judge took too long"
    assert len(judge.asked) < JUDGED_MAX / TOGETHER


def test_one_that_is_not_loaded_fails_or_answers_nonsense_counts_for_nothing() -> None:
    sleeping = OverlapJudge(ready=False)
    for judge, why in ((sleeping, "not loaded"), (_Failing(), "it broke"), (_Odd(), "scores that are none")):
        found = judgement(judge, "walrus", ["a walrus", "a seal"])
        assert found.scores == ()
        assert why in found.note
    assert sleeping.asked == []


def test_a_single_hit_needs_no_judge() -> None:
    judge = OverlapJudge()
    assert judgement(judge, "walrus", ["a walrus"]).scores == ()
    assert judge.asked == []
