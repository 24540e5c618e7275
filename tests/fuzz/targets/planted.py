"""Faults that the fuzzer has to find: not in the product, only to see that it works."""

import time

import msgspec

from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_mirror.store_keys import StoreKeys
from tests.fuzz.target import Target

_KEYS = StoreKeys(bytes(16))
_KEPT: list[bytes] = []


def _crash(data: bytes) -> None:
    """Behind three branches of the product's own code."""
    found = _KEYS.parse_stream(_KEYS.conversations_prefix + data.decode("latin-1"))
    if found is not None and any(found[0]):
        raise IndexError("a fault behind a parser")


def _slow(data: bytes) -> None:
    if b"aaaa" in data:
        total = 0
        for number in range(10**8):
            total += number


def _greedy(data: bytes) -> None:
    """Takes memory in parts, since a machine with slow memory would otherwise tell the time that one part takes; then waits
    until the fuzzer, which looks once a second, has seen it."""
    if b"aaaa" in data:
        if len(_KEPT) < 32:
            _KEPT.append(b"x" * 2**26)
        else:
            time.sleep(2)


def _not_canonical(data: bytes) -> None:
    value = msgspec.msgpack.decode(data, type=int)
    assert msgspec.msgpack.encode(value) == data, "another form of the same number"


def _sound(data: bytes) -> None:
    if data[:1] == b"a":
        raise Malformed("documented")


def _seeds() -> list[bytes]:
    return [
        b"aaab",
        _KEYS.conversation(bytes(16), bytes(8), 3)[len(_KEYS.conversations_prefix) :].encode(),
        b"\x05",
    ]


TARGETS = (
    Target("planted.crash", _crash, (Malformed,), _seeds, 128),
    Target("planted.slow", _slow, (Malformed,), _seeds, 128),
    Target("planted.greedy", _greedy, (Malformed,), _seeds, 128),
    Target("planted.not_canonical", _not_canonical, UNDECODABLE, _seeds, 128),
    Target("planted.sound", _sound, (Malformed,), _seeds, 128),
)
