"""Errors of a request that does not fit its schema, in words: which field, and what it takes.

The parser's own messages name its types, and no value of an enumeration. Nothing of what was sent is repeated but the name of
an unknown field.
"""

import re
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, inspect

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import UsageError
from crystal_node.base.wording import one_line

_Request = TypeVar("_Request", bound=Struct)
_PLACE = re.compile(r"^(.*?)(?: - at `\$([^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(\w+)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_NAME_CHARS_MAX = 60


class SchemaMismatch(UsageError):
    """A request that does not fit its schema."""

    hint = "Correct the named field, and ask again."


def decoded(body: bytes, kind: type[_Request]) -> _Request:
    """A request as sent by another program. Raises Unfit."""
    try:
        return from_json(body, kind)
    except UnicodeDecodeError as error:
        raise SchemaMismatch("the body is no UTF-8") from error
    except RecursionError as error:
        raise SchemaMismatch("the body is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise SchemaMismatch(error_text(error, kind)) from error
    except UNDECODABLE as error:
        raise SchemaMismatch("the body is no JSON") from error


def error_text(error: msgspec.ValidationError, kind: type, *, whole: str = "the body") -> str:
    """The error as a sentence: which field of a ``kind``, and what it takes (its title, if it has one). ``whole``: the name of
    the whole request."""
    found = _PLACE.match(str(error))
    assert found is not None, "it matches everything"
    said, path = found[1], found[2] or ""
    shape, where = _walked(inspect.type_info(kind), path)
    if shape is None:
        return "the request is not as it has to be"
    if missing := _MISSING.match(said):
        inside = _field(shape, missing[1])
        takes = f"; it has to be {_takes(inside)}" if inside is not None else ""
        return f"`{_joined(where, missing[1])}` is missing{takes}"
    if unknown := _UNKNOWN.match(said):
        known = ", ".join(sorted(_fields(shape)))
        return (
            f"there is no field `{_joined(where, one_line(unknown[1], _NAME_CHARS_MAX))}`: there are {known}"
        )
    return f"{f'`{where}`' if where else whole} has to be {_takes(shape)}"


def _walked(shape: inspect.Type | None, path: str) -> tuple[inspect.Type | None, str]:
    """The type at a place, and its name. For an item of a list that takes none, the list's."""
    where = ""
    for step in _STEP.finditer(path):
        shape = _plain(shape)
        if step[1]:
            shape, where = _field(shape, step[1]), _joined(where, step[1])
            continue
        listed = _listed(shape)
        if listed is None or listed.max_length == 0:
            return listed, where
        shape, where = listed.item_type, f"{where}[{step[2]}]"
    return shape, where


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _fields(shape: inspect.Type | None) -> dict[str, inspect.Type]:
    for each in _choices(shape):
        if isinstance(each, inspect.StructType):
            return {field.encode_name: field.type for field in each.fields}
    return {}


def _field(shape: inspect.Type | None, name: str) -> inspect.Type | None:
    return _fields(shape).get(name)


def _listed(shape: inspect.Type | None) -> inspect.ListType | None:
    return next((each for each in _choices(shape) if isinstance(each, inspect.ListType)), None)


def _choices(shape: inspect.Type | None) -> list[inspect.Type]:
    shape = _plain(shape)
    if isinstance(shape, inspect.UnionType):
        return [plain for each in shape.types if (plain := _plain(each)) is not None]
    return [] if shape is None else [shape]


def _plain(shape: inspect.Type | None) -> inspect.Type | None:
    while isinstance(shape, inspect.Metadata):
        shape = shape.type
    return shape


def _takes(shape: inspect.Type) -> str:
    if isinstance(shape, inspect.Metadata):
        extra = cast("dict[str, object] | None", shape.extra_json_schema)
        named = extra.get("title") if extra else None
        return str(named) if named else _takes(shape.type)
    if isinstance(shape, inspect.UnionType):
        words = " or ".join(_takes(each) for each in shape.types if not isinstance(each, inspect.NoneType))
        return f"{words}, or null" if shape.includes_none else words
    if isinstance(shape, inspect.EnumType):
        return _one_of([each.value for each in shape.cls])
    if isinstance(shape, inspect.LiteralType):
        return _one_of(list(shape.values))
    if isinstance(shape, inspect.StrType):
        return f"a text{_within(shape.min_length, shape.max_length, 'character', ' of ')}"
    if isinstance(shape, inspect.IntType):
        return f"a whole number{_within(shape.ge, shape.le, '', ' ')}"
    if isinstance(shape, inspect.ListType):
        return "an empty list" if shape.max_length == 0 else f"a list{_listing(shape)}"
    return _SIMPLE.get(type(shape), "something else")


def _listing(shape: inspect.ListType) -> str:
    return _within(shape.min_length, shape.max_length, "item", " of ")


def _one_of(values: list[Any]) -> str:
    words = [str(each) or "nothing" for each in values]
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def _within(least: int | None, most: int | None, unit: str, before: str) -> str:
    """ " from 1 to 1,000", " of 1 to 16,384 characters", and what is left of that without one of the two."""
    units = f" {unit}s" if unit else ""
    if least is not None and most is not None and (least or not unit):
        between = f"{least:,} to {most:,}" if unit else f"from {least:,} to {most:,}"
        return f"{before}{between}{units}"
    if most is not None:
        return f"{before}{most:,}{units} at most"
    if least:
        return f"{before}{f'{least:,}{units} or more' if unit else f'from {least:,} on'}"
    return ""


_SIMPLE: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.FloatType: "a number",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
}
