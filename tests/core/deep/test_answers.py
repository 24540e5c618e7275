"""What is taken of a model's words: short lines to search for, and nothing that steers a terminal."""

import json

import pytest

from crystal_core.deep.answers import (
    HYPOTHETICAL_CHARS_MAX,
    LEXICAL_CHARS_MAX,
    read_expansions,
    read_judgements,
)
from crystal_core.deep.prompts import EXCERPT_CHARS_MAX, excerpt
from crystal_core.llm.answers import Unreadable


def test_words_around_an_answer_do_no_harm() -> None:
    answer = 'Sure!\n```json\n{"lexical": ["keel", "hull"], "rephrased": "Where does it rest?"}\n```'
    found = read_expansions(answer)
    assert (found.lexical, found.rephrased, found.hypothetical) == ("keel hull", "Where does it rest?", "")


def test_an_expansion_is_one_short_line_without_control_characters() -> None:
    found = read_expansions(
        json.dumps(
            {"lexical": "a\x1b[31m\n\u202eb" + " c" * 9999, "rephrased": 7, "hypothetical": "x" * 9999}
        )
    )
    assert found.lexical.startswith("a [31m b c")
    assert len(found.lexical) <= LEXICAL_CHARS_MAX
    assert len(found.hypothetical) == HYPOTHETICAL_CHARS_MAX
    assert found.rephrased == ""


@pytest.mark.parametrize(
    "answer", ["", "no", "{}", '{"lexical": " "}', '{"lexical": {"a": 1}}', "[1]", "{" * 10_000]
)
def test_an_answer_without_other_words_is_none(answer: str) -> None:
    with pytest.raises(Unreadable):
        read_expansions(answer)


def test_judgements_come_in_the_order_of_the_texts() -> None:
    assert read_judgements('{"scores": {"2": 0, "1": 10, "3": 5}}', 3) == [10, 0, 5]


def test_an_excerpt_is_the_part_with_the_querys_words() -> None:
    text = "sand " * 2000 + "the harbour crane rusts " + "sand " * 2000
    part = excerpt(text, "who repairs the harbour crane")
    assert "harbour crane" in part
    assert len(part) <= EXCERPT_CHARS_MAX + 2
    assert excerpt("short", "query") == "short"
    assert excerpt(text, "nothing of this").startswith("sand")
