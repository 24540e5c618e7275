"""JSON of formats that are not ours: a value of unexpected type counts as missing, and nothing else is lost."""

import json
from typing import Any, TypeGuard

import msgspec

_BOM = b"\xef\xbb\xbf"
_TRIED_TIMES_MAX = 16
_TRIED_CHARS_MIN, _TRIED_CHARS_MAX = 1024 * 1024, 64 * 1024 * 1024
"""How much of a damaged line is parsed, over all places at which a record might begin: so many times its length, at least and
at most so many characters. A record that broke off is parsed again from each object that it is within, thus about as often as
its objects are nested."""
_WORDED = frozenset({"content", "message", "parts", "prompt", "text", "thinking"})
"""Names under which tools keep what was said."""
_LOOKED_AT_MAX = 10_000
"""How many values of one record are looked at for words."""
_TOO_DEEP_CHARS = 4 * 1024
"""What an attempt costs that ends at the greatest depth, in characters."""
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
    left = min(max(_TRIED_TIMES_MAX * len(text), _TRIED_CHARS_MIN), _TRIED_CHARS_MAX)
    at = text.find('{"')
    while at >= 0 and left > 0:
        end, cost = _tried(text, at)
        left -= cost
        if end == len(text) or (end > 0 and text[end] == "{"):
            found.append((len(_bytes(text[:at])), _bytes(text[at:end])))
            at = end if end < len(text) else -1
        else:
            at = text.find('{"', at + 1)
    return found


def _tried(text: str, at: int) -> tuple[int, int]:
    """The end of the object at that place, -1 if none is whole there; and how many characters were looked at."""
    try:
        _, end = _searcher.raw_decode(text, at)
    except json.JSONDecodeError as error:
        # The error counts the lines before its place. A string without an end is named by its beginning.
        return -1, len(text) if error.msg.startswith("Unterminated string") else error.pos + 1
    except ValueError:  # a number of too many digits
        return -1, len(text)
    except RecursionError:
        return -1, _TOO_DEEP_CHARS
    return end, end - at


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def has_words(value: object) -> bool:
    """Whether a record of an unknown kind holds something that somebody may have said: a text under a name that texts have.

    Numbers, ids and states are no words, whatever the kind is called.
    """
    waiting: list[tuple[object, bool]] = [(value, False)]
    for _ in range(_LOOKED_AT_MAX):
        if not waiting:
            return False
        one, named = waiting.pop()
        if isinstance(one, str) and named and one.strip():
            return True
        if is_object(one):
            waiting += [(inner, name in _WORDED) for name, inner in one.items()]
        elif is_array(one):
            waiting += [(inner, named) for inner in one]
    return True


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
