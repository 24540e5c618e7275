"""Cuts a text that is longer than a model can read into overlapping windows of tokens.

A text that fits is one window. A longer one is cut into much shorter windows than would fit: a window has
one vector for all that it says, and two sentences among 250 tokens of something else are hardly found.
docs/decisions/0009-built-in-embedder.md has the measurements. On texts that fit, shorter windows find less.

All windows of a text are equally long: a last window of a few left-over tokens would say little, and
neighbours share `WINDOW_OVERLAP_TOKENS` tokens or a few more, so that what stands on the border is said in
full in one of them.
"""

WINDOW_TOKENS_MAX = 254
"""Tokens of text that are read at once: the 256 of all-MiniLM-L6-v2, less the two that mark start and end."""

PART_TOKENS_MAX = 64
"""Tokens in each window of a text that does not fit into one."""

WINDOW_OVERLAP_TOKENS = 16
"""Tokens that neighbouring windows share at least."""

WINDOWS_PER_TEXT_MAX = 1365
"""Windows of one text. Enough for 64 KiB of the densest text there is, one token for each byte; what stands
beyond them in a longer text is found by its words only."""

_STEP_TOKENS = PART_TOKENS_MAX - WINDOW_OVERLAP_TOKENS


def window_spans(tokens: int) -> list[tuple[int, int]]:
    """Return the (first, behind the last) token of each window of a text with `tokens` tokens, in order.

    One empty window for no tokens at all. Raises ValueError for a negative number.
    """
    if tokens < 0:
        raise ValueError(f"a text cannot have {tokens} tokens")
    if tokens <= WINDOW_TOKENS_MAX:
        return [(0, tokens)]
    tokens = min(tokens, WINDOWS_PER_TEXT_MAX * _STEP_TOKENS + WINDOW_OVERLAP_TOKENS)
    count = _divide_up(tokens - WINDOW_OVERLAP_TOKENS, _STEP_TOKENS)
    length = _divide_up(tokens + (count - 1) * WINDOW_OVERLAP_TOKENS, count)
    starts = (index * (tokens - length) // (count - 1) for index in range(count))
    return [(start, start + length) for start in starts]


def _divide_up(value: int, by: int) -> int:
    return -(-value // by)
