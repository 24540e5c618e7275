"""Plain text, cut into paragraphs."""

from crystal_core.cutting.blocks import Block, Border, lines_of


def plain_blocks(text: str) -> list[Block]:
    found: list[Block] = []
    start, blank = 0, False
    for begin, end in lines_of(text):
        empty = not text[begin:end].strip()
        if blank and not empty:
            found.append(Block(start, begin, Border.PARAGRAPH))
            start = begin
        blank = empty
    if start < len(text):
        found.append(Block(start, len(text), Border.PARAGRAPH))
    return found
