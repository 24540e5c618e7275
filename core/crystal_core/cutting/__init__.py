"""Cutting a document into passages by its structure: the pieces of a source that become chunks.

| module | what it knows |
|---|---|
| `blocks` | blocks and the borders between them; packing blocks into passages of a good size |
| `markdown` | headings, fences, tables, lists, front matter |
| `code` | any programming language: by indentation, blank lines and closing brackets |
| `python` | Python: by its syntax tree |
| `plain` | paragraphs |

Rules:

- Nothing is lost and nothing is said twice: the passages in order hold every character of the text but white space at
  borders.
- A passage has at most ``SOLID_CHARS`` characters. Up to that a fence, a table or a function stays whole; all else aims at
  ``PIECE_CHARS`` (``crystal_core.cutting.messages``).
- Where a cut falls depends on what stands near it alone, so that an edit changes the passages around it and no others.
- Passages do not overlap: the neighbours of a hit are a look-up away.
"""

from enum import StrEnum

from crystal_core.cutting.blocks import SOLID_CHARS, Passage, packed

__all__ = ["SOLID_CHARS", "Passage", "PassageKind", "cut"]


class PassageKind(StrEnum):
    """What a document is, as it travels with it."""

    MARKDOWN = "markdown"
    CODE = "code"
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"


def cut(text: str, kind: PassageKind, *, python: bool = False) -> list[Passage]:
    """The passages of a document in order; none for one that is only white space. HTML is given as Markdown, PDF as text."""
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
