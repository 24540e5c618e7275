"""Foreign words in Markdown that stay words: no viewer takes them for a link, a picture, a page's element or a heading.

``plain`` is for words within a line of ours. Whole texts stand indented by four, as they are: that is a block in which nothing
means anything.
"""

from crystal_node.base.wording import one_line, printable

_MEANT = frozenset("\\`*_[]<>!#|&~")


def plain(text: str, width: int) -> str:
    """The text on one line, cut, with a backslash before whatever Markdown gives a meaning."""
    return "".join("\\" + char if char in _MEANT else char for char in one_line(text, width))


def block(text: str) -> list[str]:
    """The text's lines, as a block that shows them as they are."""
    return [f"    {printable(line)}".rstrip() for line in text.splitlines()]
