"""JSON of formats that are not ours: a value of unexpected type counts as missing, and nothing else is lost."""

import json
from typing import Any, TypeGuard

import msgspec

_BOM = b"\xef\xbb\xbf"
_TRIED_BYTES_MAX = 64 * 1024 * 1024
"""How much of a damaged line is parsed, over all places at which a record might begin."""
_decoder = msgspec.json.Decoder()
_searcher = json.JSONDecoder()


def parse_json(data: bytes) -> object:
    """The value, invalid UTF-8 replaced. Raises ValueError if it is no JSON."""
    data = data.removeprefix(_BOM)
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def records_within(line: bytes) -> list[tuple[int, bytes]]:
    """The whole objects on a line that is not one itself, each with its byte offset.

    A program that dies within a line may write its next record right behind it. Objects are found at the line's end or before
    another object; torn ones are not.
    """
    text = line.decode("utf-8", "surrogateescape").rstrip()
    found: list[tuple[int, bytes]] = []
    at, tried = text.find('{"'), 0
    while at >= 0 and tried <= _TRIED_BYTES_MAX:
        tried += len(text) - at
        try:
            _, end = _searcher.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = -1
        if end == len(text) or (end > 0 and text[end] == "{"):
            found.append((len(_bytes(text[:at])), _bytes(text[at:end])))
            at = end if end < len(text) else -1
        else:
            at = text.find('{"', at + 1)
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def as_text(value: object) -> str | None:
    """A text with lone surrogates replaced, because they have no UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def as_truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def as_object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if is_object(value) else {}


def as_array(value: object) -> list[object]:
    """The array, or an empty one."""
    return value if is_array(value) else []


def is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
