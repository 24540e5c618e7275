"""What is searched for when something was pasted."""

import random
from time import process_time

import numpy as np
import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.pastes import CHARS_MIN, WORDS_MAX, telling_words
from crystal_core.search.search import Searcher
from tests.core.builders import NOW, apply, capture, new_replica
from tests.core.meanings import set_model
from tests.support.bad_queries import ODD, PASTED


@pytest.mark.parametrize(
    "query", ["what did we decide", "CraneError: " + "x" * 700, "An honest sentence about cranes. " * 60]
)
def test_what_a_person_wrote_stays_as_it_is(query: str) -> None:
    assert telling_words(query) == query


@pytest.mark.parametrize("name", PASTED)
def test_what_was_pasted_is_searched_by_its_telling_words(name: str) -> None:
    words = telling_words(PASTED[name]).lower().split()
    assert {"harbour", "crane"} <= set(words)
    assert len(words) == len(set(words)) <= WORDS_MAX
    assert not any(character.isdigit() for word in words for character in word)


def test_an_errors_words_come_first_and_before_them_those_of_the_question() -> None:
    asked = "Why does this happen on the quay?\n" + PASTED["a traceback"] + "\nCan we retry it tomorrow?"
    words = telling_words(asked).split()
    assert words[:5] == ["happen", "quay", "retry", "tomorrow", "CraneOverloadError"]
    assert "lifting" in words


@pytest.mark.parametrize("name", [name for name, query in ODD.items() if len(query) >= CHARS_MIN])
def test_no_query_becomes_an_empty_one(name: str) -> None:
    assert telling_words(ODD[name]).strip()


@pytest.mark.parametrize(
    "piece", ["a", "aB", "Ab ", "(", "\n", "(\n", "error(\n", "x\u0301", "_", "a_", "0", "Timed out ("]
)
def test_time_grows_with_the_length_alone(piece: str) -> None:
    query = (piece * 16_384)[:16_384]
    start = process_time()
    telling_words(query)
    assert process_time() - start < 0.05


@pytest.mark.slow
def test_something_pasted_is_answered_in_a_tenth_of_a_second_among_ten_thousand_messages() -> None:
    seeded, directions = random.Random(1), np.random.default_rng(1)
    words = [f"word{number}" for number in range(3000)]
    common = ["server", "error", "file", "line", "python", "request", "return", "path", "worker", "status"]

    def said(number: int) -> str:
        if number % 500 == 7:
            return f"The harbour crane exceeded its lifting limit, reading {number}: its gauge was set anew."
        return (
            " ".join(seeded.choice(common if seeded.random() < 0.3 else words) for _ in range(40))
            + f" {number}"
        )

    def vectors(_: str) -> list[bytes]:
        direction = directions.standard_normal(384)
        return [(direction / np.linalg.norm(direction)).astype("<f2").tobytes()]

    replica = new_replica()
    for first in range(0, 10_000, 500):
        pieces = (
            capture(said(number), message=str(number), session=str(number // 20))
            for number in range(first, first + 500)
        )
        apply(replica, *pieces, vectors=vectors)
    with BuiltinEmbedder() as embedder:
        set_model(replica, embedder.identity)
        searcher = Searcher(replica.database, embedder)
        searcher.search("the index is read once", now_ms=NOW)
        for name, query in PASTED.items():
            found, seconds = _searched(searcher, query), 1.0
            for _ in range(3):
                start = process_time()
                found = _searched(searcher, query)
                seconds = min(seconds, process_time() - start)
            assert seconds < 0.1, name
            assert sum("harbour crane" in text for text in found) >= 5, name


def _searched(searcher: Searcher, query: str) -> list[str]:
    return [hit.text for hit in searcher.search(telling_words(query), now_ms=NOW).hits]
