"""Which mutations a module has, and how one is made in its syntax tree.

    comparison   the boundary moves (< to <=), or the sense turns (== to !=, in to not in, is to is not)
    condition    of `if`, of `x if c else y`, of a comprehension: always true, always false; of `and`, `or`: without one operand
    negation     `not` is dropped
    number       n becomes n + 1, + becomes -, * becomes //
    choice       min and max, any and all change places
    truth        True and False change places
    statement    left out: a call whose value is not used, an assignment to an attribute or an item, `raise`, `continue`,
                 `break`; `return x` returns None

Only in functions: what runs at import, defaults and decorators stay. Assertions, docstrings, annotations, formatted texts and
what errors say stay as well.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CHOICES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TEXT_MAX = 70

Put = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change. `lines` are those of what is changed, first and last; `name` stays the same while its function does."""

    function: str
    name: str
    lines: tuple[int, int]
    put: Put
    old: Any
    new: Any

    def make(self) -> None:
        self.put(self.new)

    def undo(self) -> None:
        self.put(self.old)


def mutations(tree: ast.Module) -> list[Mutation]:
    """All mutations of a module, in the order of its lines. Each changes `tree` itself; undo one before the next."""
    known: Counter[tuple[str, str]] = Counter()
    found: list[Mutation] = []
    for function, node, old, new, put in _functions(tree, ""):
        text = f"{_text(old)} -> {_text(new)}"
        known[function, text] += 1
        name = text if known[function, text] == 1 else f"{text} #{known[function, text]}"
        found.append(Mutation(function, name, (node.lineno, node.end_lineno or node.lineno), put, old, new))
    return found


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


_Found = tuple[str, Any, Any, Any, Put]


def _functions(node: ast.AST, inside: str) -> Iterator[_Found]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            if child.name != "__repr__":
                yield from _body(child.body, f"{inside}{child.name}")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{inside}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, inside)


def _body(body: list[ast.stmt], function: str) -> Iterator[_Found]:
    for index, statement in enumerate(body):
        yield from _statement(statement, _item(body, index), function)


def _item(items: list[Any], index: int) -> Put:
    def put(value: Any) -> None:
        items[index] = value

    return put


def _field(node: ast.AST, name: str) -> Put:
    def put(value: Any) -> None:
        setattr(node, name, value)

    return put


def _statement(node: ast.stmt, put: Put, function: str) -> Iterator[_Found]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        if not isinstance(node, ast.ClassDef):
            yield from _body(node.body, f"{function}.{node.name}")
        return
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if _can_go(node):
        yield function, node, node, ast.copy_location(ast.Pass(), node), put
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        nothing = ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), node)), node)
        yield function, node, node, nothing, put
    if isinstance(node, ast.Raise):
        return  # what an error says
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for part, put_part in _parts(node, name, value):
            if isinstance(part, ast.stmt):
                yield from _statement(part, put_part, function)
            elif isinstance(part, ast.ExceptHandler):
                yield from _body(part.body, function)
            elif isinstance(part, ast.match_case):
                if part.guard is not None:
                    yield from _condition(part.guard, _field(part, "guard"), function)
                yield from _body(part.body, function)
            elif isinstance(part, ast.withitem):
                yield from _expression(part.context_expr, _field(part, "context_expr"), function)
            elif isinstance(part, ast.expr):
                if name == "test" and isinstance(node, ast.If):
                    yield from _condition(part, put_part, function)
                yield from _expression(part, put_part, function)


def _can_go(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom | ast.Await)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)


def _parts(node: ast.AST, name: str, value: Any) -> Iterator[tuple[Any, Put]]:
    if isinstance(value, list):
        items = cast("list[object]", value)
        for index, each in enumerate(items):
            yield each, _item(items, index)
    elif isinstance(value, ast.AST):
        yield value, _field(node, name)


def _condition(node: ast.expr, put: Put, function: str) -> Iterator[_Found]:
    for always in (True, False):
        yield function, node, node, ast.copy_location(ast.Constant(always), node), put


def _expression(node: ast.expr, put: Put, function: str) -> Iterator[_Found]:
    if isinstance(node, ast.JoinedStr) or _says(node):
        return
    if isinstance(node, ast.Constant):
        yield from _constant(node, put, function)
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]()
            yield function, node, node, _with_operator(node, index, other), put
    elif isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            left = [value for number, value in enumerate(node.values) if number != index]
            fewer = left[0] if len(left) == 1 else ast.copy_location(ast.BoolOp(node.op, left), node)
            yield function, node, node, fewer, put
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield function, node, node, node.operand, put
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        other_way = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        yield function, node, node, ast.copy_location(other_way, node), put
    elif isinstance(node, ast.IfExp):
        yield from _condition(node.test, _field(node, "test"), function)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CHOICES:
        name = ast.copy_location(ast.Name(_CHOICES[node.func.id], ast.Load()), node.func)
        yield function, node.func, node.func, name, _field(node, "func")
    for field, value in ast.iter_fields(node):
        for part, put_part in _parts(node, field, value):
            if isinstance(part, ast.keyword):
                yield from _expression(part.value, _field(part, "value"), function)
            elif isinstance(part, ast.comprehension):
                yield from _expression(part.iter, _field(part, "iter"), function)
                for index, test in enumerate(part.ifs):
                    yield from _condition(test, _item(part.ifs, index), function)
                    yield from _expression(test, _item(part.ifs, index), function)
            elif isinstance(part, ast.expr):
                yield from _expression(part, put_part, function)


def _constant(node: ast.Constant, put: Put, function: str) -> Iterator[_Found]:
    if isinstance(node.value, bool):
        yield function, node, node, ast.copy_location(ast.Constant(not node.value), node), put
    elif isinstance(node.value, int | float):
        yield function, node, node, ast.copy_location(ast.Constant(node.value + 1), node), put


def _with_operator(node: ast.Compare, index: int, operator: ast.cmpop) -> ast.expr:
    operators = [*node.ops[:index], operator, *node.ops[index + 1 :]]
    return ast.copy_location(ast.Compare(node.left, operators, node.comparators), node)


def _is_text(node: ast.BinOp) -> bool:
    """Whether a literal says that it is no sum of numbers."""
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _says(node: ast.expr) -> bool:
    """Whether this makes an error: what it says is for people."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id.endswith(("Error", "Exception"))
