"""Foreign text in Markdown that no viewer takes for a link, an image, an HTML element or a heading.

``plain`` is for text within a line, ``block`` for whole texts: code blocks, in which no markup counts.
"""

from crystal_node.base.wording import one_line, printable

_MEANT = frozenset("\\`*_[]<>!#|&~")


def plain(text: str, width: int) -> str:
    """The text on one line, cut, with Markdown's special characters escaped."""
    return "".join("\\" + char if char in _MEANT else char for char in one_line(text, width))


def block(text: str) -> list[str]:
    """The text's lines as an indented code block."""
    return [f"    {printable(line)}".rstrip() for line in text.splitlines()]
