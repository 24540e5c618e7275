"""Blocks of a text, packed into passages.

A block is a stretch that should not be cut. Its ``Border`` rates its beginning as a place for a cut. Blocks are packed from
the front: a passage ends before a ``HARD`` border once it has ``SMALL_CHARS``, and at the latest where the next block would
not fit. Then it is cut at the best border in its second half; among equals at the one whose next block has the smallest
checksum. This makes cuts content-defined: after an edit they soon fall where they fell before.
"""

from collections.abc import Sequence
from enum import IntEnum
from zlib import crc32

from msgspec import Struct

from crystal_core.cutting.messages import PIECE_CHARS, cut_at

SOLID_CHARS = 2 * PIECE_CHARS
"""A solid block stays whole up to this size, and no passage is longer."""
SMALL_CHARS = 400
"""A shorter passage is joined with what follows it."""
TITLE_CHARS_MAX = 300


class Border(IntEnum):
    """Rating of a block's beginning as a place for a cut."""

    LINE = 0
    PARAGRAPH = 1
    PART = 2
    """A part of something larger: a method, a list."""
    HARD = 3
    """A new section or function."""


class Block(Struct, frozen=True):
    """``text[start:end]``. ``solid``: kept whole if it fits. ``title``: path of headings or names that it is under."""

    start: int
    end: int
    border: Border
    title: str = ""
    solid: bool = False


class Passage(Struct, frozen=True):
    """A passage. ``title``: headings, or names of classes and functions, that it is under; "" if none."""

    title: str
    text: str


def packed(text: str, blocks: Sequence[Block]) -> list[Passage]:
    """Pack blocks, which must cover the text in order without a gap, into passages."""
    pieces = [piece for block in blocks for piece in _small_enough(text, block)]
    passages: list[Passage] = []
    first = 0
    while first < len(pieces):
        end = _end(text, pieces, first)
        kept = text[pieces[first].start : pieces[end - 1].end].strip("\n").rstrip()
        if kept.strip():
            passages.append(Passage(_title(pieces[first:end]), kept))
        first = end
    return passages


def lines_of(text: str) -> list[tuple[int, int]]:
    """Return start and end of each line, its line break included."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        found.append((start, end))
        start = end
    return found


def _end(text: str, blocks: Sequence[Block], first: int) -> int:
    """Return the index after the last block of the passage that begins with ``first``."""
    start = blocks[first].start
    for number in range(first + 1, len(blocks)):
        block = blocks[number]
        if block.border is Border.HARD and block.start - start >= SMALL_CHARS:
            return number
        if block.end - start > PIECE_CHARS:
            return _best(text, blocks, first, number)
    return len(blocks)


def _best(text: str, blocks: Sequence[Block], first: int, limit: int) -> int:
    start = blocks[first].start
    if blocks[limit].start - start < SMALL_CHARS and blocks[limit].end - start <= SOLID_CHARS:
        return limit + 1  # a heading or sentence stays with what it introduces
    half = [
        number for number in range(first + 1, limit + 1) if blocks[number].start - start >= PIECE_CHARS // 2
    ]
    if not half:
        return limit
    return max(half, key=lambda number: (blocks[number].border, -_checksum(text, blocks[number]), number))


def _checksum(text: str, block: Block) -> int:
    return crc32(text[block.start : block.end].encode("utf-8", "surrogatepass"))


def _small_enough(text: str, block: Block) -> list[Block]:
    """Return the block, or its pieces if it is too long: cut at line ends, or at sentences or words in long lines."""
    limit = SOLID_CHARS if block.solid else PIECE_CHARS
    if block.end - block.start <= limit:
        return [block]
    found: list[Block] = []
    border = block.border
    for line_start, line_end in lines_of(text[block.start : block.end]):
        at, end = block.start + line_start, block.start + line_end
        while end - at > PIECE_CHARS:
            cut = cut_at(text, at + PIECE_CHARS, at + PIECE_CHARS // 2)
            found.append(Block(at, cut, border, block.title))
            at, border = cut, Border.LINE
        blank_before = text.endswith("\n\n", block.start, at)
        found.append(Block(at, end, Border.PARAGRAPH if blank_before else border, block.title))
        border = Border.LINE
    return found


def _title(blocks: Sequence[Block]) -> str:
    """Return the title that covers most of the text."""
    sizes: dict[str, int] = {}
    for block in blocks:
        sizes[block.title] = sizes.get(block.title, 0) + block.end - block.start
    return max(sizes, key=lambda title: sizes[title])[:TITLE_CHARS_MAX]
