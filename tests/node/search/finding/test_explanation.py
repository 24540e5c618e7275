"""How a score came about is said in words, with places counted from one; the documents' own names stay for programs."""

import pytest

from crystal_node.search.finding.documents import ResultDocument, ResultKind
from crystal_node.search.finding.explanation import how, why

FAST: dict[str, float | int | str | None] = {
    "keyword_rank": 0,
    "keyword_score": 0.83,
    "keyword_strength": 1.0,
    "keyword_weight": 2.0,
    "vector_rank": 10,
    "similarity": 0.596,
    "vector_strength": 0.9,
    "fused": 0.049,
    "recency": 0.8,
}


def result(explain: dict[str, float | int | str | None]) -> ResultDocument:
    return ResultDocument(
        id="0" * 64, text="", snippet="", marks=[], score=0.039344, kind=ResultKind.MEMORY, agent="", session="", role="",
        created_at="", project="", repository="", source="", freshness="stale", explain=explain,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {},
            "1st by words (100% of the best match, weight 2.0), 11th by meaning (likeness 0.60), times 0.80 for its age",
        ),
        ({"keyword_rank": None, "vector_rank": 1}, "not found by its words, 2nd by meaning"),
        (
            {"keyword_rank": 111, "vector_rank": None},
            "112th by words (100% of the best match, weight 2.0), not found by its",
        ),
        ({"deep_rank": 3, "judgement": 10}, "3rd before the model gave it 10 of 10"),
        ({"judge_rank": 6, "judge_score": 0.934}, "7th before the judge gave it 0.93 of 1"),
        ({"deep_rank": 41, "judgement": None}, "41st before the model, which did not judge it"),
    ],
)
def test_a_score_is_explained_in_words(changed: dict[str, float | int | str | None], words: str) -> None:
    said = why(result(FAST | changed))
    assert words in said
    assert "_" not in said


def test_what_a_model_did_is_told_in_words_and_what_is_empty_is_not() -> None:
    assert how(None) == []
    assert how({"fallen_back": "nobody answers", "failure": "", "expansions": []}) == [
        "searched without a language model: nobody answers"
    ]
    assert how({"expansions": ["one", "two"], "tokens_in": 7, "new_field": 1}) == [
        "also searched for: one; two",
        "tokens sent: 7",
        "new field: 1",
    ]
