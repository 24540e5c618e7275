"""Pieces of a message: bounded, overlapping, and nothing of the message missing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.cutting.messages import (
    OVERLAP_CHARS,
    PIECE_CHARS,
    WHOLE_CHARS_MAX,
    joined_pieces,
    spans,
    split_message,
)
from crystal_mirror.operations import PIECE_BYTES_MAX

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def repeated(parts: list[str], times: int) -> str:
    return " ".join(parts * times)


messages = st.builds(repeated, st.lists(words, max_size=40), st.integers(1, 200))


def test_a_message_up_to_two_thousand_tokens_is_one_piece() -> None:
    text = "word " * (WHOLE_CHARS_MAX // 5)
    assert split_message(text) == [text.strip()]
    assert len(split_message(text + "and more of it than before")) > 1


def test_white_space_is_no_piece() -> None:
    assert split_message(" \n\t ") == []


@given(messages)
def test_pieces_cover_the_message_and_keep_their_limit(text: str) -> None:
    text = text.strip()
    pieces = split_message(text)
    assert bool(pieces) == bool(text)
    for piece in pieces:
        assert piece == piece.strip()
        assert len(piece) <= max(PIECE_CHARS, WHOLE_CHARS_MAX)
        assert len(piece.encode()) <= PIECE_BYTES_MAX
    if len(text) > WHOLE_CHARS_MAX:
        cuts = spans(text)
        assert cuts[0][0] == 0
        assert cuts[-1][1] == len(text)
        for (first, end), (start, _) in pairwise(cuts):
            assert first < start <= end, "pieces go on and leave no gap"
            assert end - start <= OVERLAP_CHARS


def test_cuts_fall_between_paragraphs_where_there_are_any() -> None:
    paragraph = "A sentence that says something. " * 20
    text = "\n\n".join([paragraph.strip()] * 20)
    pieces = split_message(text)
    assert all(piece.endswith(".") for piece in pieces)


def test_text_without_any_break_is_cut_all_the_same() -> None:
    pieces = split_message("x" * (WHOLE_CHARS_MAX * 3))
    assert all(len(piece) <= PIECE_CHARS for piece in pieces)


def test_what_stands_on_a_border_stands_whole_in_one_piece() -> None:
    filler = "lorem ipsum dolor sit amet " * 400
    for at in range(1200, 2400, 37):
        text = filler[:at] + " the needle is under the haystack " + filler[at:]
        assert any("the needle is under the haystack" in piece for piece in split_message(text))


def test_long_paragraphs_are_cut_after_sentences_of_any_script() -> None:
    for sentence in (
        'He said "so be it!" and went on. ',
        "これは長い文章の一つの文です。",
        "Is it so? Yes! ",
    ):
        pieces = split_message(sentence * (WHOLE_CHARS_MAX // len(sentence) + 50))
        assert all(piece[-1] in '.!?。"' for piece in pieces), sentence


def test_what_is_seen_as_one_character_stays_whole() -> None:
    for one in ("e\u0301\u0323", "👩\u200d👩\u200d👧", "👍\U0001f3fd", "❤\ufe0f"):
        text = one * (WHOLE_CHARS_MAX + 1)
        for piece in split_message(text):
            assert len(piece) % len(one) == 0, one
            assert piece.startswith(one)


def test_a_very_long_message_is_cut_in_linear_time() -> None:
    assert len(split_message("no break " * 400_000)) > 2000


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join(f"Paragraph {n} has a gauge that reads {n * n}." for n in range(600)),
        "".join(f"value_{n} = {n}\n" for n in range(2000)),
        " ".join(f"word{n}" for n in range(4000)),
        "".join(chr(0x4E00 + n * 7 % 20000) for n in range(12_000)),
        "short",
        "",
    ],
)
def test_the_pieces_of_a_message_give_the_message_again(text: str) -> None:
    assert joined_pieces(split_message(text)) == text.strip()


def test_where_a_piece_is_missing_an_empty_line_stands() -> None:
    pieces = split_message(" ".join(f"word{n}" for n in range(4000)))
    assert "\n\n" in joined_pieces([pieces[0], pieces[2]])
