"""A judge orders the first hits of a search, and only these."""

from collections.abc import Sequence

from crystal_core.search.judge import JudgeError
from crystal_core.search.search import Searcher
from tests.core.builders import NOW, apply, capture, new_replica
from tests.core.meanings import MeaningEmbedder, set_model

EMBEDDER = MeaningEmbedder()
TEXTS = [f"the crane number {number} was greased" for number in range(30)]


class WordJudge:
    """Says yes to passages with one word."""

    def __init__(self, word: str, *, ready: bool = True, fails: bool = False) -> None:
        self._word, self._fails = word, fails
        self.ready = ready
        self.identity = "word-judge"
        self.asked = 0

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        self.asked += len(passages)
        if self._fails:
            raise JudgeError("out of memory")
        return [float(self._word in passage) for passage in passages]


def searcher(judge: WordJudge) -> Searcher:
    replica = new_replica()
    apply(replica, *(capture(text, message=text) for text in TEXTS), vectors=EMBEDDER.vectors)
    set_model(replica, EMBEDDER.identity)
    return Searcher(replica.database, EMBEDDER, judge=judge)


def test_what_the_judge_says_yes_to_stands_first_and_says_where_it_stood() -> None:
    plain = searcher(WordJudge("")).search("crane greased", now_ms=NOW, limit=30)
    third = plain.hits[3].text
    judge = WordJudge(third.removeprefix("the crane "))
    found = searcher(judge).search("crane greased", now_ms=NOW, limit=30, judge_seconds=10)
    assert judge.asked == 20
    assert found.hits[0].text == third
    assert (found.hits[0].explanation.judge_rank, found.hits[0].explanation.judge_score) == (3, 1.0)
    assert [hit.text for hit in found.hits[20:]] == [hit.text for hit in plain.hits[20:]]


def test_a_judge_that_is_not_asked_not_ready_or_failing_changes_nothing() -> None:
    plain = [hit.text for hit in searcher(WordJudge("")).search("crane greased", now_ms=NOW).hits]
    unasked = WordJudge("number 7")
    assert [hit.text for hit in searcher(unasked).search("crane greased", now_ms=NOW).hits] == plain
    assert unasked.asked == 0
    for judge, note in (
        (WordJudge("number 7", ready=False), "the judge is not loaded yet"),
        (WordJudge("number 7", fails=True), "the judge failed: out of memory"),
    ):
        found = searcher(judge).search("crane greased", now_ms=NOW, judge_seconds=10)
        assert ([hit.text for hit in found.hits], found.judge_note) == (plain, note)
