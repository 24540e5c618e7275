"""Source code of any language, cut by indentation, blank lines and closing brackets.

Indented lines belong to the line above that is not indented; a line that begins with a closing bracket belongs to what it
closes. A comment or annotation stays with what follows it, because a cut requires a blank line or the end of a block before
it. A line that declares a name (``class``, ``fn``, ``func``…) gives the title of the lines indented below it.
"""

import re

from crystal_core.cutting.blocks import Block, Border, lines_of

TAB_COLUMNS = 4
_LINE_CHARS_MAX = 200
_NAMES = re.compile(
    r"\b(?:class|struct|interface|trait|impl|enum|union|module|namespace|package|object|protocol|extension|func|function|fn|def"
    r"|sub|proc|macro|type|record|contract|defmodule|defp?|CREATE\s+(?:TABLE|VIEW|FUNCTION|INDEX))\s+"
    r"(?:\([^()]{0,80}\)\s*)?([A-Za-z_$][\w$.:]{0,80})"
)
_CALLED = re.compile(r"([A-Za-z_~][\w:~]{1,80})\s*\([^;{}]{0,160}\{?\s*$")
_NO_NAMES = frozenset(
    {"if", "for", "while", "switch", "catch", "return", "else", "foreach", "with", "elif", "when"}
)
_CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac", "</")
_COMMENTS = ("//", "#", "/*", "*", "--", ";", "'''", '"""', "<!--", "%")


def code_blocks(text: str) -> list[Block]:
    found: list[Block] = []
    names: list[tuple[int, str]] = []
    start, border, title = 0, Border.HARD, ""
    before, blank, closed = 0, True, False
    for begin, end in lines_of(text):
        line = text[begin:end]
        if not line.strip():
            blank = True
            continue
        indent = _indent(line)
        bare = line.lstrip()
        closes = bare.startswith(_CLOSERS)
        # After a blank line, or after the closing line of a block with the same indentation.
        if begin > start and not closes and (blank or (closed and indent <= before)):
            found.append(Block(start, begin, border, title, solid=True))
            start, border = begin, _border(indent)
            title = ""
        if not closes:
            while names and names[-1][0] >= indent:
                names.pop()
            named = _name(bare)
            if named:
                names.append((indent, named))
            title = title or ".".join(name for _, name in names)
        before, blank, closed = indent, False, closes
    if start < len(text):
        found.append(Block(start, len(text), border, title, solid=True))
    return found


def _border(indent: int) -> Border:
    if indent == 0:
        return Border.HARD
    return Border.PART if indent <= TAB_COLUMNS else Border.PARAGRAPH


def _indent(line: str) -> int:
    columns = 0
    for character in line:
        if character == "\t":
            columns += TAB_COLUMNS
        elif character == " ":
            columns += 1
        else:
            break
    return columns


def _name(line: str) -> str:
    """Return the name that a line declares; "" if none."""
    if line.startswith(_COMMENTS) or len(line) > _LINE_CHARS_MAX:
        return ""
    if found := _NAMES.search(line):
        return found[1].rstrip(":.")
    if (found := _CALLED.search(line)) and found[1] not in _NO_NAMES and line.rstrip().endswith(("{", ")")):
        return found[1]
    return ""
