"""Typed values out of JSON, MessagePack and fields that are read already, safe in a process of many threads.

msgspec learns a structure's fields when it is first decoded. A thread that decodes it while another still learns finds half of
them, and the process dies of a segmentation fault (msgspec 0.22). So each type is learnt under one lock before it is used
(decision 0091). A decoder that a module makes when it is imported needs none of this.
"""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_learning = threading.Lock()
_known: set[object] = set()


def from_json(data: bytes | bytearray | str, kind: type[T]) -> T:
    """Raises one of ``UNDECODABLE`` if it is no JSON, or another type's."""
    _learn(kind)
    return msgspec.json.decode(data, type=kind)


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """Raises one of ``UNDECODABLE`` if it is no MessagePack, or another type's."""
    _learn(kind)
    return msgspec.msgpack.decode(data, type=kind)


def from_fields(fields: object, kind: type[T], *, strict: bool = True) -> T:
    """Raises msgspec.ValidationError if a field is missing or of another type. ``strict``: texts are no numbers."""
    _learn(kind)
    return msgspec.convert(fields, kind, strict=strict)


def _learn(kind: type[Any]) -> None:
    if kind in _known:
        return
    with _learning:
        msgspec.msgpack.Decoder(kind)
        _known.add(kind)
