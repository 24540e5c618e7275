"""How many tokens a text costs a model that reads it: an estimate that is the same for every model, and rather too high.

Models divide text differently, and none of their tables is needed here: each byte of UTF-8 is weighed by what it begins.
"""

from bisect import bisect_right
from itertools import accumulate

MARK = " …"
"""Stands where a text was cut."""

_UNITS = 50
"""A token, in the weights' unit."""
_WORD_CHARS_MAX = 40

_LETTER, _DIGIT, _SIGN = 15, 40, 30
_LEADS = (
    (range(0xC0, 0xCC), 40),  # letters with accents, Latin ones
    (range(0xCC, 0xD4), 30),  # Greek, Cyrillic
    (range(0xD4, 0xE0), 55),  # Armenian, Hebrew, Arabic
    (range(0xE0, 0xE1), 90),  # the scripts of India and Thailand
    (range(0xE1, 0xF0), 62),  # Chinese, Japanese, Korean, and signs
    (range(0xF0, 0x100), 160),  # pictures
)
"""What the first bytes of characters weigh. Measured on two public tables and an older one: between 1 and 1.5 times of the
dearest of them for prose in ten languages, code, logs, dates and ids."""


def _weights() -> bytes:
    """By byte; those that continue a character weigh nothing."""
    weights = bytearray(256)
    for byte in range(0x80):
        char = chr(byte)
        weights[byte] = _LETTER if char.isalpha() or char == " " else _DIGIT if char.isdigit() else _SIGN
    for leads, weight in _LEADS:
        for byte in leads:
            weights[byte] = weight
    return bytes(weights)


_WEIGHTS = _weights()


def estimated_tokens(text: str) -> int:
    """Tokens of a text, at least one for any that is not empty. Parts estimate to no less than their whole."""
    return -(-sum(_weighed(text)) // _UNITS)


def cut_to_tokens(text: str, most: int) -> str:
    """The text, or as much of its beginning as ``most`` tokens hold, ended behind a word, with ``MARK``. "" where not even a
    word has room."""
    weighed = _weighed(text)
    if sum(weighed) <= most * _UNITS:
        return text
    room = most * _UNITS - sum(_weighed(MARK))
    if room <= 0:
        return ""
    # Bytes that weigh nothing stay with the one before: this never ends within a character.
    end = bisect_right(list(accumulate(weighed)), room)
    kept = text.encode("utf-8", "surrogatepass")[:end].decode("utf-8", "surrogatepass")
    if kept and not kept[-1].isspace() and not text[len(kept)].isspace():
        last = kept.rsplit(maxsplit=1)[-1]
        # A word that is so long had better be cut than dropped.
        kept = kept[: -len(last)] if len(last) <= _WORD_CHARS_MAX else kept
    return kept.rstrip() + MARK if kept.strip() else ""


def _weighed(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(_WEIGHTS)
