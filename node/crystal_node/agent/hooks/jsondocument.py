"""Edits of a JSON document as text: all else keeps every byte, its order, indentation and line ends.

Parsing and printing would reformat a file that a person keeps by hand. So a member or element is inserted or removed in place,
in the style around it. Comments, and commas behind the last member, which many programs allow, stay. A document that cannot
be read without doubt (damaged, or with a name twice in one object) is refused with the position, never repaired.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from crystal_node.base.errors import ExitCode, LocalStorage

Path = tuple[str | int, ...]
"""Path of a value: names of members and indexes of elements, from the outside in."""

_INDENT = "  "
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\r\n]*|/\*(?:.*?\*/|.*\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"({_STRING})|,(?=[ \t\r\n]*[\]}}])", re.DOTALL)


class DamagedDocument(LocalStorage):
    """A settings file that is not JSON, or not of the shape that its program documents."""

    exit_code = ExitCode.STORAGE
    hint = "Nothing was changed. Mend the file at that place, then run the command again."


def parse(text: str) -> object:
    """The document's value. Raises DamagedDocument with line and column."""
    try:
        return json.loads(_bare(text), object_pairs_hook=_unique, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise DamagedDocument(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise DamagedDocument(str(error)) from None
    except RecursionError:
        raise DamagedDocument("it is nested too deeply") from None


def value_at(document: object, path: Path) -> object:
    """The value at the path; None if there is none."""
    for step in path:
        if isinstance(step, str):
            document = members(document).get(step)
        else:
            found = elements(document)
            document = found[step] if step < len(found) else None
    return document


def members(value: object) -> dict[str, object]:
    """The members of an object; of anything else none."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def elements(value: object) -> list[object]:
    """The elements of an array; of anything else none."""
    return cast("list[object]", value) if isinstance(value, list) else []


def same(one: str, other: str) -> bool:
    """Whether two documents say the same in the same order, comments too. Raises DamagedDocument."""
    if [*_comments(one)] != [*_comments(other)]:
        return False
    return json.dumps(parse(one)) == json.dumps(parse(other))


def place(text: str, path: Path) -> str:
    """The position of a value, for a message: "line 3, column 5"."""
    at = _locate(_bare(text), path)
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def with_member(text: str, path: Path, name: str, value: object) -> str:
    """The document with one more member at the end of the object at ``path``, which has none of that name."""
    return _inserted(text, path, f"{json.dumps(name, ensure_ascii=False)}: ", value)


def with_element(text: str, path: Path, value: object) -> str:
    """The document with one more element at the end of the array at ``path``."""
    return _inserted(text, path, "", value)


def with_value(text: str, path: tuple[str, ...], value: object) -> str:
    """The document with this value at the path, which holds objects alone; in the place of another, if there is one."""
    if value_at(parse(text), path) is not None:
        text = without(text, path)
    for depth in range(len(path)):
        if value_at(parse(text), path[: depth + 1]) is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return with_member(text, path[:depth], path[depth], value)
    raise AssertionError("the last step was taken out")


def without(text: str, path: Path) -> str:
    """The document without the member or element at ``path``. Comments around it stay."""
    bare = _bare(text)
    container, step = path[:-1], path[-1]
    at = _locate(bare, container)
    items = list(_items(bare, at))
    index = step if isinstance(step, int) else [item.name for item in items].index(step)
    item = items[index]
    if len(items) == 1:
        end = _end(bare, at) - 1
        before, behind = text[at + 1 : item.start], text[item.end : end]
        if (before + behind).replace(",", " ").isspace() or not before + behind:
            return text[: at + 1] + text[end:]
        behind = _without_comma(behind)
        before = before.rstrip() if "\n" in behind else before.rstrip(" \t")
        return text[: at + 1] + before + behind + text[end:]
    first, last = (
        (items[index - 1].end, item.start) if index == len(items) - 1 else (item.end, items[index + 1].start)
    )
    gap = text[first:last]
    kept = "" if gap == bare[first:last] else _without_comma(gap)
    if index == len(items) - 1:
        return text[:first] + kept + text[item.end :]
    return text[: item.start] + kept.lstrip() + text[last:]


def _bare(text: str) -> str:
    """The document without comments and last commas, each character at its place."""
    return _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    """Spaces in the place of a comment or comma. A comment without an end stays, and is refused."""
    text = found[0]
    open_end = text.startswith("/*") and not (len(text) > len("/**") and text.endswith("*/"))
    return text if found[1] is not None or open_end else re.sub(r"[^\r\n]", " ", text)


def _comments(text: str) -> Iterator[str]:
    return (found[0] for found in _COMMENT.finditer(text) if found[1] is None)


def _without_comma(gap: str) -> str:
    """What stands between two members, without the comma."""
    at = _COMMENT.sub(_blank, gap).find(",")
    return gap if at < 0 else gap[:at] + gap[at + 1 :]


@dataclass(frozen=True, slots=True)
class _Item:
    """A member or element in the text: start (of a member's name), start of its value, and end."""

    name: str
    start: int
    value: int
    end: int


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice[:80]!r} twice in one object, and which one counts cannot be known")
    return found


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _items(text: str, at: int) -> Iterator[_Item]:
    """What the object or array that begins at ``at`` holds. The document has been parsed: it is sound."""
    is_object = text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        start, name = at, ""
        if is_object:
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        end = _end(text, at)
        yield _Item(name, start, at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _end(text: str, at: int) -> int:
    return int(_DECODER.raw_decode(text, at)[1])


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "the pattern matches nothing, too"
    return found.end()


def _locate(text: str, path: Path) -> int:
    at = _skip(text, 0)
    for step in path:
        items = list(_items(text, at))
        at = next(
            item.value
            for index, item in enumerate(items)
            if step == (item.name if text[at] == "{" else index)
        )
    return at


def _inserted(text: str, path: Path, name: str, value: object) -> str:
    bare = _bare(text)
    at = _locate(bare, path)
    items = list(_items(bare, at))
    end = _end(bare, at) - 1
    newline = "\r\n" if "\r\n" in text else "\n"
    noted = not items and not (text[at + 1 : end].isspace() or at + 1 == end)
    if "\n" not in text[at : items[0].start] if items else "\n" not in text.strip() and len(path) > 0:
        plain = name + json.dumps(value, ensure_ascii=False)
        if items:
            return f"{text[: items[-1].end]}, {plain}{text[items[-1].end :]}"
        return text[: end if noted else at + 1] + plain + text[end:]
    unit = _unit(text)
    outer = _indentation(text, at)
    inner = _indentation(text, items[-1].start) if items else outer + unit
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    block = newline + inner + name + (newline + inner).join(lines)
    if items:
        return f"{text[: items[-1].end]},{block}{text[items[-1].end :]}"
    kept = text[:end].rstrip() if noted else text[: at + 1]
    return f"{kept}{block}{newline}{outer}{text[end:]}"


def _unit(text: str) -> str:
    """The document's indentation: that of its first member."""
    found = re.match(r"\s*[{\[][ \t]*\r?\n([ \t]+)\S", text)
    return found[1] if found else _INDENT


def _indentation(text: str, at: int) -> str:
    """The indentation of the line that holds ``at``."""
    line = text.rfind("\n", 0, at) + 1
    found = re.compile(r"[ \t]*").match(text, line)
    return found[0] if found else ""
