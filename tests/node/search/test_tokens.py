"""An estimate of tokens is on the safe side, adds up, and a cut keeps to it."""

from hypothesis import given
from hypothesis import strategies as st

from crystal_node.search.tokens import MARK, cut_to_tokens, estimated_tokens

_ANY = st.text(st.characters(), max_size=400)


def test_nothing_costs_nothing_and_anything_something() -> None:
    assert estimated_tokens("") == 0
    assert estimated_tokens("a") == 1


def test_other_scripts_numbers_and_pictures_cost_more_than_plain_words() -> None:
    length = 90
    plain = estimated_tokens("plain " * (length // 6))
    for dear in ("0123456789", "{[;]}\n", "прив", "记忆", "🦀"):
        assert estimated_tokens((dear * length)[:length]) > 1.5 * plain, dear


@given(_ANY, _ANY)
def test_a_whole_costs_no_more_than_its_parts(one: str, other: str) -> None:
    assert estimated_tokens(one + other) <= estimated_tokens(one) + estimated_tokens(other)


@given(_ANY, st.integers(-5, 200))
def test_a_cut_text_keeps_to_its_tokens_and_is_the_beginning(text: str, most: int) -> None:
    cut = cut_to_tokens(text, most)
    assert estimated_tokens(cut) <= max(most, 0)
    assert cut == text or not cut or (cut.endswith(MARK) and text.startswith(cut.removesuffix(MARK)))


def test_a_cut_ends_behind_a_word_and_uses_its_room() -> None:
    text = "The retry budget of the importer is eleven attempts in an hour. " * 50
    cut = cut_to_tokens(text, 100)
    assert cut.removesuffix(MARK).rsplit(" ", 1)[-1].strip(".") in text.replace(".", "").split()
    assert estimated_tokens(cut) > 90
    assert cut_to_tokens("x" * 10_000, 100).startswith("x" * 200)
    assert cut_to_tokens("long enough", 1) == ""
