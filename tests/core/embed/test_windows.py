"""Windows cover all of a text, overlap enough, and are no longer than the model reads."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.embed.builtin import (
    PART_TOKENS_MAX,
    WINDOW_OVERLAP_TOKENS,
    WINDOW_TOKENS_MAX,
    WINDOWS_PER_TEXT_MAX,
    window_spans,
)

PIECE_TOKENS_MAX = 64 * 1024  # a piece has at most 64 KiB, and a token at least one byte


@given(st.integers(0, PIECE_TOKENS_MAX))
def test_every_token_of_a_piece_stands_in_a_window_that_the_model_can_read(tokens: int) -> None:
    spans = window_spans(tokens)
    assert spans[0][0] == 0
    assert spans[-1][1] == tokens
    assert all(first <= last <= first + WINDOW_TOKENS_MAX for first, last in spans)
    assert len(spans) <= WINDOWS_PER_TEXT_MAX


@given(st.integers(WINDOW_TOKENS_MAX + 1, PIECE_TOKENS_MAX))
def test_neighbours_overlap_and_no_window_is_a_scrap(tokens: int) -> None:
    spans = window_spans(tokens)
    assert len(spans) > 1
    assert {last - first for first, last in spans} == {spans[0][1]}
    assert PART_TOKENS_MAX * 3 // 4 < spans[0][1] <= PART_TOKENS_MAX
    for (_, end), (start, _) in pairwise(spans):
        assert end - start >= WINDOW_OVERLAP_TOKENS


@given(st.integers(WINDOW_TOKENS_MAX + 1, PIECE_TOKENS_MAX))
def test_there_are_no_more_windows_than_the_overlap_demands(tokens: int) -> None:
    fewer = len(window_spans(tokens)) - 1
    assert fewer * (PART_TOKENS_MAX - WINDOW_OVERLAP_TOKENS) + WINDOW_OVERLAP_TOKENS < tokens


@given(st.integers(PIECE_TOKENS_MAX, 10**9))
def test_a_text_beyond_all_limits_gets_the_most_windows_and_no_more(tokens: int) -> None:
    assert len(window_spans(tokens)) == WINDOWS_PER_TEXT_MAX


@pytest.mark.parametrize("tokens", [0, 1, WINDOW_TOKENS_MAX])
def test_a_text_that_fits_is_one_window(tokens: int) -> None:
    assert window_spans(tokens) == [(0, tokens)]


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        window_spans(-1)
