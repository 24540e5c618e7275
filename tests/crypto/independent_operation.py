"""A second reader of captures and of operations that change several files, written from docs/protocol.md alone (§10.1, §10.2,
§11.5)."""

import hashlib
import re
import unicodedata
from typing import Any

import msgspec

from tests.crypto.independent_reader import Refused, is_list

_MARK = " (conflict 00000000-9007199254740992)"
"""Of sixteen digits, the longest; the device is the same for all."""
_KEPT = re.compile(
    r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)(\..*)?", re.IGNORECASE
)


def read(data: bytes) -> dict[str, str]:
    """What an operation holds. Raises Refused."""
    if len(data) > 512 * 1024:
        raise Refused("too large")
    try:
        decoded = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refused("malformed") from None
    return _capture(decoded) if is_list(decoded) and decoded[:1] == ["c"] else _changes(decoded)


def _capture(read: list[Any]) -> dict[str, str]:
    """How many pieces there are, and by which models."""
    _need(len(read) in (11, 12) and all(isinstance(name, str) for name in read[1:6]))
    count = len(read[6])
    _need(all(is_list(column) and len(column) == count for column in read[6:11]))
    named: list[Any] = read[11] if len(read) == 12 else []
    _need(is_list(named) and len(named) in (0, count) and (not named or any(named)))
    models = named or [""] * count
    _need(all(isinstance(model, str) and len(model) <= 128 for model in models))
    _need(not any(unicodedata.category(each) == "Cc" for model in models for each in model))
    return {"pieces": str(count), "models": hashlib.sha256("\n".join(models).encode()).hexdigest()}


def _changes(read: Any) -> dict[str, str]:
    """How many changes there are, and of which paths."""
    _need(is_list(read) and len(read) == 2 and read[0] == "cf" and is_list(read[1]))
    changes = read[1]
    _need(1 <= len(changes) <= 1024)
    for change in changes:
        _change(change)
    paths = [change[1] for change in changes]
    _need(len({_first(path) for path in paths}) == len(paths) == len(set(paths)))
    joined = "\n".join(paths).encode()
    return {"changes": str(len(paths)), "paths": hashlib.sha256(joined).hexdigest()}


def _need(holds: bool) -> None:
    if not holds:
        raise Refused("malformed")


def _change(change: Any) -> None:
    _need(is_list(change) and len(change) > 1 and isinstance(change[1], str))
    if change[0] == "d":
        _need(len(change) == 3)
        _version(change[2])
    else:
        _need(change[0] == "p" and len(change) == 6)
        if change[2] is not None:
            _version(change[2])
        _need(isinstance(change[3], bool) and type(change[4]) is int and 0 <= change[4] <= 2**53)
        _need(is_list(change[5]) and len(change[5]) <= 6144)
        for part in change[5]:
            _part(part)
    _path(change[1])


def _version(version: Any) -> None:
    _need(is_list(version) and len(version) == 3)
    device, incarnation, sequence = version
    _need(isinstance(device, bytes) and len(device) == 16)
    _need(
        isinstance(incarnation, bytes) and len(incarnation) == 8 and type(sequence) is int and sequence >= 0
    )


def _part(part: Any) -> None:
    _need(is_list(part) and len(part) in (2, 3))
    _need(isinstance(part[0], bytes) and len(part[0]) == 32)
    _need(type(part[1]) is int and 1 <= part[1] <= 4 * 1024 * 1024)
    if len(part) == 3:
        named = part[2]
        _need(len(named) == 32 if isinstance(named, bytes) else type(named) is int and 0 <= named <= 255)


def _path(path: str) -> None:
    components = path.split("/")
    _need(0 < len(path.encode()) <= 1024 and len(components) <= 32)
    _need(unicodedata.normalize("NFC", path) == path)
    for one in components:
        _need(one not in ("", ".", "..") and len(one.encode()) <= 200 and one[-1] not in ". ")
        _need(not re.search(r'[\x00-\x1f\x7f<>:"\\|?*]', one) and not _KEPT.fullmatch(one))


def _first(path: str) -> str:
    """The folded form of the first conflict path, with the longest mark."""
    *folders, name = path.split("/")
    dot = name.rfind(".")
    stem, ending = (name[:dot], name[dot:]) if dot > 0 else (name, "")
    if len((_MARK + ending).encode()) >= 200:
        stem, ending = name, ""
    left = 200 - len((_MARK + ending).encode())
    stem = stem.encode()[:left].decode(errors="ignore").rstrip(". ") or "file"
    while len("/".join([*folders, stem + _MARK + ending]).encode()) > 1024:
        folders.pop()
    marked = "/".join([*folders, stem + _MARK + ending])
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", marked).casefold())
