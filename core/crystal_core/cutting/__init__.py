"""Structural chunking: cuts a document into the passages that become chunks.

| module | handles |
|---|---|
| `blocks` | blocks and the borders between them; packing blocks into passages |
| `markdown` | headings, fences, tables, lists, front matter |
| `code` | any programming language: by indentation, blank lines and closing brackets |
| `python` | Python, by its syntax tree |
| `messages` | messages, by size with overlap |
| `plain` | paragraphs |

Rules:

- The passages of a document, in order, hold every character of it exactly once, except white space at borders.
- A passage has at most ``SOLID_CHARS`` characters. Up to that size a fence, a table or a function stays whole; other text
  aims at ``PIECE_CHARS`` (``crystal_core.cutting.messages``).
- The position of a cut depends only on the text near it, so an edit changes the passages around it and no others.
- Passages do not overlap: the neighbours of a hit are one lookup away.
"""

from enum import StrEnum

from crystal_core.cutting.blocks import SOLID_CHARS, Passage, packed

__all__ = ["SOLID_CHARS", "Passage", "PassageKind", "cut"]


class PassageKind(StrEnum):
    """Kind of a document, as stored and synchronised."""

    MARKDOWN = "markdown"
    CODE = "code"
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"


def cut(text: str, kind: PassageKind, *, python: bool = False) -> list[Passage]:
    """Return the passages of a document in order; none for white space. HTML comes as Markdown, PDF as text."""
    from crystal_core.cutting.code import code_blocks
    from crystal_core.cutting.markdown import markdown_blocks
    from crystal_core.cutting.plain import plain_blocks
    from crystal_core.cutting.python import python_blocks

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if kind in (PassageKind.MARKDOWN, PassageKind.HTML):
        blocks = markdown_blocks(text)
    elif kind is PassageKind.CODE:
        blocks = (python_blocks(text) if python else None) or code_blocks(text)
    else:
        blocks = plain_blocks(text)
    return packed(text, blocks)
