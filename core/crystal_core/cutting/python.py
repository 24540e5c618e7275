"""Python, cut by its syntax tree; text that cannot be parsed is cut like other code.

A function or class is a block together with its decorators and the comments above it. A class that is too long is cut into
methods, a method into statements.
"""

import ast
import warnings

from crystal_core.cutting.blocks import SOLID_CHARS, Block, Border, lines_of

DEPTH_MAX = 20
_SOURCE_CHARS_MAX = 2_000_000

_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_blocks(text: str) -> list[Block] | None:
    """Return the blocks; None if the text does not parse as this version's Python."""
    if len(text) > _SOURCE_CHARS_MAX:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    cutter = _Cutter(text)
    cutter.body(tree.body, "", 0)
    return cutter.finished()


class _Cutter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = lines_of(text)
        self._blocks: list[Block] = []
        self._begun: tuple[int, Border, str] = (0, Border.HARD, "")

    def body(self, body: list[ast.stmt], title: str, depth: int) -> None:
        for statement in body:
            first = self._first_line(statement)
            named = isinstance(statement, _Named)
            start = self._lines[first][0]
            inner = f"{title}.{statement.name}".lstrip(".") if isinstance(statement, _Named) else title
            border = Border.PARAGRAPH
            if named:
                border = Border.HARD if depth == 0 else Border.PART
            elif not self._blank_above(first):
                border = Border.LINE
            if depth == 0 and not named and self._begun[2]:
                border = Border.HARD  # the module goes on after a function or class
            if named or depth > 0 or border >= Border.PARAGRAPH:
                self._begin(start, border, inner)
            end = self._lines[min(_end_line(statement), len(self._lines)) - 1][1]
            if isinstance(statement, _Named) and end - start > SOLID_CHARS and depth < DEPTH_MAX:
                self.body(statement.body, inner, depth + 1)

    def finished(self) -> list[Block]:
        self._begin(len(self._text), Border.LINE, "")
        return self._blocks

    def _begin(self, at: int, border: Border, title: str) -> None:
        start, before, named = self._begun
        if at > start:
            self._blocks.append(Block(start, at, before, named, solid=True))
        if at >= start:
            self._begun = at, max(border, before) if at == start else border, title

    def _first_line(self, statement: ast.stmt) -> int:
        """Return the index of its first line, including decorators and the comments above it."""
        line = statement.lineno
        if isinstance(statement, _Named):
            line = min([line, *(decorator.lineno for decorator in statement.decorator_list)])
        index = min(line, len(self._lines)) - 1
        while index > 0 and self._line(index - 1).startswith("#"):
            index -= 1
        return index

    def _blank_above(self, index: int) -> bool:
        return index > 0 and not self._line(index - 1)

    def _line(self, index: int) -> str:
        start, end = self._lines[index]
        return self._text[start:end].strip()


def _end_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
