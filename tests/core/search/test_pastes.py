"""What is searched for when something was pasted."""

from time import process_time

import pytest

from crystal_core.search.pastes import CHARS_MIN, WORDS_MAX, telling_words
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
