"""Chunking of messages: up to about 2,000 tokens whole, longer ones in pieces of about 400 tokens that overlap by 80.

The sizes are the published ones. Tokens are estimated at four characters each, because capture must not need a tokenizer.
Cuts prefer the end of a paragraph, then of a line, a sentence, a word; text without any of these is cut at the limit, but
never between a letter and its accents or inside a joined emoji.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

CHARS_PER_TOKEN = 4
WHOLE_CHARS_MAX = 2000 * CHARS_PER_TOKEN
"""Longest message that stays one piece."""
PIECE_CHARS = 400 * CHARS_PER_TOKEN
OVERLAP_CHARS = 80 * CHARS_PER_TOKEN
_SENTENCE_END = re.compile(r"""[.!?…]["'”’)\]]*\s+|[。！？]["'”’」』）]*""")
_LOOK_BACK = PIECE_CHARS // 2
_NEAR = 100
_GAP_MAX = 32
_CLUSTER_CHARS = 32
_SHARED_MIN = OVERLAP_CHARS // 4
"""A shorter overlap of two pieces is an accident: white space at both ends of one takes less."""
_JOINER = "\u200d"
_SKIN_TONES = frozenset("\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")


def split_message(text: str) -> list[str]:
    """Return the pieces of a message in order; none for white space. Together they hold all of its words."""
    text = text.strip()
    if not text:
        return []
    if len(text) <= WHOLE_CHARS_MAX:
        return [text]
    pieces = [text[start:end].strip() for start, end in spans(text)]
    return [piece for piece in pieces if piece]


def join_pieces(pieces: Sequence[str]) -> str | None:
    """Return the message that ``split_message`` cut into these pieces; None if it cannot be told."""
    text = pieces[0]
    for piece in pieces[1:]:
        # White space at a cut is only in the following piece, so where the previous one ended is found by trying.
        for gap in range(_GAP_MAX):
            end = len(text) + gap
            start = _word_start(text + " " * gap, end - OVERLAP_CHARS, end)
            overlap = text[start:].lstrip() if start > 0 else ""
            if overlap and piece.startswith(overlap):
                text += piece[len(overlap) :]
                break
        else:
            return None
    return text if split_message(text) == list(pieces) else None


def joined_pieces(pieces: Sequence[str]) -> str:
    """Return the message that ``split_message`` cut into these pieces, as far as possible: around a piece that is missing or
    changed, an empty line stands in the gap."""
    whole = join_pieces(pieces) if pieces else ""
    if whole is not None:
        return whole
    whole = pieces[0]
    for piece in pieces[1:]:
        shared = _shared(whole, piece)
        whole += piece[shared:] if shared else f"\n\n{piece}"
    return whole


def _shared(one: str, other: str) -> int:
    """Length of the overlap: how many characters at the beginning of ``other`` end ``one``; 0 if there is none."""
    longest = min(len(one), len(other))
    usual, longer = (
        range(OVERLAP_CHARS, _SHARED_MIN - 1, -1),
        range(OVERLAP_CHARS + 1, OVERLAP_CHARS + _CLUSTER_CHARS + 1),
    )
    lengths = (length for length in (*usual, *longer) if length <= longest)
    return next((length for length in lengths if other.startswith(one[-length:])), 0)


def spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each piece of a long message: overlapping, without a gap."""
    found: list[tuple[int, int]] = []
    start = 0
    while True:
        end = min(start + PIECE_CHARS, len(text))
        if end < len(text):
            end = cut_at(text, end, start + _LOOK_BACK)
        found.append((start, end))
        if end == len(text):
            assert all(after[0] <= before[1] for before, after in pairwise(found)), "no gap between pieces"
            return found
        start = _word_start(text, end - OVERLAP_CHARS, end)


def cut_at(text: str, limit: int, earliest: int) -> int:
    """Return the best cut after ``earliest`` and up to ``limit``: after a paragraph, line, sentence or word.

    Without one, the cut is at the limit, moved to the boundary of a user-perceived character.
    """
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, earliest, limit)
        if at >= 0:
            return at + len(mark)
    ends = [found.end() for found in _SENTENCE_END.finditer(text, earliest, limit)]
    if ends:
        return ends[-1]
    at = text.rfind(" ", earliest, limit)
    return at + 1 if at >= 0 else _whole_before(text, limit, earliest)


def _word_start(text: str, wanted: int, end: int) -> int:
    """Return the start of a word at or after ``wanted`` if one is near."""
    at = text.find(" ", wanted, min(wanted + _NEAR, end))
    return at + 1 if at >= 0 else _whole_before(text, wanted, wanted - _CLUSTER_CHARS)


def _whole_before(text: str, limit: int, earliest: int) -> int:
    """Return the last boundary of a user-perceived character up to ``limit``; ``limit`` if none is near."""
    at = limit
    while at > max(earliest, limit - _CLUSTER_CHARS):
        if not (_continues(text[at]) or text[at - 1] == _JOINER):
            return at
        at -= 1
    return limit


def _continues(character: str) -> bool:
    """Whether it extends the character before it: an accent, a joiner, a variation selector or skin tone."""
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character == _JOINER
        or character in _SKIN_TONES
    )
