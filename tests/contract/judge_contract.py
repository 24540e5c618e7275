"""What every judge must do. A subclass gives one that is ready."""

import math

import pytest

from crystal_core.search.judge import Judge, judgement

QUERY = "what did we decide about the retry budget"
RIGHT = "We decided that the retry budget is three tries, then the outbox waits."
WRONG = "Bread dough rises for an hour."
ODD = ("", "   \n", "\ud800 half a pair", "ünïcödé 日本語 🦭", "x" * 5000, "a\x00b")


class JudgeContract:
    """``make`` is the judge."""

    def make(self) -> Judge:
        raise NotImplementedError

    def test_each_passage_has_a_score_between_nothing_and_one(self) -> None:
        scores = self.make().scores(QUERY, [RIGHT, WRONG, RIGHT])
        assert len(scores) == 3
        assert all(math.isfinite(score) and 0 <= score <= 1 for score in scores)

    def test_a_passage_has_its_score_in_any_company(self) -> None:
        judge = self.make()
        alone, among = (
            judge.scores(QUERY, [RIGHT])[0],
            judge.scores(QUERY, [WRONG, "one more " * 300, RIGHT])[2],
        )
        assert alone == pytest.approx(among, abs=1e-4)
        assert judge.scores(QUERY, [RIGHT])[0] == pytest.approx(alone, abs=1e-6)

    def test_what_is_asked_counts(self) -> None:
        judge = self.make()
        assert judge.scores(QUERY, [RIGHT]) != judge.scores("how long does dough rise", [RIGHT])

    def test_no_text_is_too_odd(self) -> None:
        judge = self.make()
        for query in ODD:
            assert all(0 <= score <= 1 for score in judge.scores(query, ODD))
        assert judge.scores(QUERY, []) == []

    def test_its_identity_is_one_plain_word(self) -> None:
        identity = self.make().identity
        assert identity.isascii()
        assert identity.isprintable()
        assert " " not in identity

    def test_one_that_is_ready_judges_a_search(self) -> None:
        judge = self.make()
        assert judge.ready
        found = judgement(judge, QUERY, [WRONG, RIGHT], seconds=60)
        assert found.note == ""
        assert len(found.scores) == 2
