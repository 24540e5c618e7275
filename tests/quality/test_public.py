"""Public sets, by small ones of their form: what counts as found, and that a set which is not there is left out."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.quality.public.beam import CONTRADICTION, PARTS, UPDATE, read_beam
from bench.quality.public.corpus import VARIABLE, Corpus, Place, Question, public_folder
from bench.quality.public.cosqa import read_cosqa
from bench.quality.public.figures import (
    ALL_20,
    BOTH_10,
    FALSE_SILENCE,
    MRR_10,
    NEWEST_FIRST,
    RECALL_10,
    RECALL_20,
    SILENCE,
    figures,
)
from bench.quality.public.measurement import measured_questions, measured_sets
from bench.quality.public.memory import Answer, memory_of
from bench.quality.vectors import KeptVectors
from crystal_core.search.by import By

DIMENSIONS = 16


class Letters:
    """An embedder by the first letters of words: quick, and the same each time."""

    identity = "letters/1"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.asked.append(text)
        vector = np.full(DIMENSIONS, 0.01, np.float32)
        for word in text.lower().split():
            vector[ord(word[0]) % DIMENSIONS] += 1
        found: NDArray[np.float32] = vector / np.float32(np.linalg.norm(vector))
        return found

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        return [[self.embed_query(text).astype("<f2").tobytes()] for text in texts]


def said(role: str, number: int, content: str, anchor: str = "") -> dict[str, object]:
    return {"role": role, "id": number, "content": content, **({"time_anchor": anchor} if anchor else {})}


CHAT = [
    {
        "batch_number": 1,
        "turns": [
            [
                said("user", 0, "Which colour has the roof? ->-> 1,1", "March-15-2024"),
                said("assistant", 1, "Slate."),
            ],
            [
                said("user", 2, "The budget is 40 euros."),
                said("assistant", 3, "Noted, forty euros for paint."),
            ],
        ],
    },
    {
        "batch_number": 2,
        "turns": [
            [said("user", 4, "The budget is 90 euros now.", "April-10-2024"), said("assistant", 5, "Ninety.")]
        ],
    },
]
QUESTIONS: dict[str, list[dict[str, object]]] = {
    "information_extraction": [{"question": "What is the roof made of?", "source_chat_ids": [[1]]}],
    "knowledge_update": [
        {
            "question": "How much is the budget?",
            "source_chat_ids": {"original_info": [2], "updated_info": [4, 5]},
        },
        {"question": "Both in one?", "source_chat_ids": {"original_info": [2], "updated_info": [2]}},
    ],
    "contradiction_resolution": [
        {"question": "Is it 40?", "source_chat_ids": {"first_statement": [2, 3], "second_statement": [4]}}
    ],
    "preference_following": [{"question": "Without evidence?", "source_chat_ids": []}],
    "abstention": [{"question": "Who is the plumber?"}],
    "summarization": [{"question": "Sum it up", "source_chat_ids": [0, 1, 2]}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beam").mkdir()
    for name in (name for names in PARTS.values() for name in names):
        (tmp_path / "beam" / f"{name}.chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
        (tmp_path / "beam" / f"{name}.questions.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    (tmp_path / "cosqa").mkdir()
    functions = {"def half(x):\n    return x / 2": 0, "def twice(x):\n    return x * 2": 1}
    (tmp_path / "cosqa" / "code_idx_map.txt").write_text(json.dumps(functions), encoding="utf-8")
    for part in ("dev", "test"):
        asked = [{"doc": "python half of x", "retrieval_idx": 0}]
        (tmp_path / "cosqa" / f"cosqa-retrieval-{part}-500.json").write_text(
            json.dumps(asked), encoding="utf-8"
        )
    return tmp_path


def beam(folder: Path) -> Corpus:
    found = read_beam(folder)
    assert found is not None
    return found


def test_messages_carry_the_last_date_on_a_minute_each_and_lose_the_sets_own_mark(folder: Path) -> None:
    chat = [text for text in beam(folder).texts if text.repository == "beam/2"]
    assert chat[0].text == "Which colour has the roof?"
    assert [text.session for text in chat] == ["beam-2-1"] * 4 + ["beam-2-2"] * 2
    steps = [later.created_at - text.created_at for text, later in pairwise(chat)]
    assert steps[:3] == [60_000] * 3
    assert steps[3] > 25 * 86_400_000


def test_evidence_comes_from_lists_in_lists_and_from_both_sides(folder: Path) -> None:
    corpus = beam(folder)
    chat = {text.message: text.place for text in corpus.texts if text.repository == "beam/2"}
    by_text = {one.text: one for one in corpus.parts["dev"] if one.repository == "beam/2"}
    assert set(by_text) == {
        "What is the roof made of?",
        "How much is the budget?",
        "Both in one?",
        "Is it 40?",
        "Who is the plumber?",
    }
    assert by_text["What is the roof made of?"].evidence == {chat["1"]}
    budget = by_text["How much is the budget?"]
    assert budget.sides == (frozenset({chat["2"]}), frozenset({chat["4"], chat["5"]}))
    assert budget.evidence == {chat["2"], chat["4"], chat["5"]}
    assert by_text["Both in one?"].sides is None
    assert by_text["Who is the plumber?"].evidence == frozenset()


A, B, C = ("s", 1), ("s", 2), ("s", 3)


def question(kind: str, *wanted: Place, sides: tuple[Place, Place] | None = None) -> Question:
    both = None if sides is None else (frozenset({sides[0]}), frozenset({sides[1]}))
    return Question(kind, "?", "", 0, frozenset(wanted), both)


def hits(*places: Place | None) -> Answer:
    return Answer([frozenset() if place is None else frozenset({place}) for place in places])


def test_recall_counts_the_evidence_that_hits_show_and_not_the_hits() -> None:
    found = figures(Answer([frozenset(), frozenset({A, B}), frozenset({A})]), question("x", A, B, C))
    assert found == {RECALL_10: 2 / 3, RECALL_20: 2 / 3, ALL_20: 0, MRR_10: 0.5}
    late = figures(hits(*[None] * 10, A), question("x", A))
    assert late == {RECALL_10: 0, RECALL_20: 1, ALL_20: 1, MRR_10: 0}


def test_the_newer_state_is_first_only_above_the_older_one() -> None:
    update = question(UPDATE, A, B, sides=(A, B))
    assert figures(hits(B, A), update)[NEWEST_FIRST] == 1
    assert figures(hits(C, B), update)[NEWEST_FIRST] == 1
    assert figures(hits(A, B), update)[NEWEST_FIRST] == 0
    assert figures(hits(A), update)[NEWEST_FIRST] == 0
    assert figures(Answer([frozenset({A, B})]), update)[NEWEST_FIRST] == 0


def test_both_statements_are_found_among_ten_or_not() -> None:
    contradiction = question(CONTRADICTION, A, B, sides=(A, B))
    assert figures(hits(A, C, B), contradiction)[BOTH_10] == 1
    assert figures(hits(A, *[None] * 9, B), contradiction)[BOTH_10] == 0


def test_silence_is_right_only_where_nothing_answers() -> None:
    assert figures(Answer([frozenset({A})], silent=True), question("x")) == {SILENCE: 1.0}
    assert figures(Answer([frozenset({A})], silent=True), question("x", A))[FALSE_SILENCE] == 1
    assert figures(Answer([frozenset({A})]), question("x")) == {}


def test_a_hit_shows_its_turn_or_its_message(folder: Path) -> None:
    corpus = beam(folder)
    chat = {text.message: text.place for text in corpus.texts if text.repository == "beam/2"}
    asked = next(one for one in corpus.parts["dev"] if one.evidence == frozenset({chat["1"]}))
    shown: dict[By, frozenset[Place]] = {}
    for by in By:
        with memory_of(corpus, Letters(), by) as memory:
            for ranking in memory.rankings().values():
                found = ranking(asked).found
                assert all(place[0].startswith("beam-2-") for places in found for place in places)
            shown[by] = memory.by_keyword(asked).found[0]
            nearest = memory.by_vector(asked).found
            assert len(nearest) == (3 if by is By.TURN else 6)
            assert len(set(nearest)) == len(nearest)
    assert shown[By.TURN] == {chat["0"], chat["1"]}
    assert shown[By.MESSAGE] in ({chat["0"]}, {chat["1"]})


@pytest.mark.parametrize("as_messages", [False, True])
def test_functions_are_found_as_documents_and_as_messages(folder: Path, *, as_messages: bool) -> None:
    corpus = read_cosqa(folder, as_messages=as_messages)
    assert corpus is not None
    with memory_of(corpus, Letters()) as memory:
        found = measured_questions(memory, "x", corpus.parts["test"])
    assert {mode: found.values(mode, "all", MRR_10) for mode in ("keyword", "hybrid")} == {
        "keyword": [1.0],
        "hybrid": [1.0],
    }


def test_what_is_not_there_is_left_out(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert public_folder() is None
    assert list(measured_sets(None, Letters())) == []
    assert list(measured_sets(tmp_path / "nothing", Letters())) == []
    monkeypatch.setenv(VARIABLE, str(folder))
    assert public_folder() == folder
    assert public_folder(str(tmp_path / "nothing")) is None


def test_kept_vectors_are_those_of_the_model_and_ask_it_once(tmp_path: Path) -> None:
    model = Letters()
    for _ in range(2):
        kept = KeptVectors(model, tmp_path / "vectors.db")
        assert kept.embed_windows(["one two", "three", "one two"]) == Letters().embed_windows(
            ["one two", "three", "one two"]
        )
        assert np.array_equal(kept.embed_query("one"), Letters().embed_query("one"))
        kept.close()
    assert sorted(model.asked) == ["one", "one two", "three"]


def test_vectors_of_another_model_are_not_taken(tmp_path: Path) -> None:
    kept = KeptVectors(Letters(), tmp_path / "vectors.db")
    kept.embed_windows(["one"])
    kept.close()
    other = Letters()
    other.identity = "letters/2"
    again = KeptVectors(other, tmp_path / "vectors.db")
    again.embed_windows(["one"])
    again.close()
    assert other.asked == ["one"]
