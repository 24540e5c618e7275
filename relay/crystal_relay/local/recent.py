"""A cache of small objects that were just written.

Objects of a dead drop are read soon after they are written, often by several devices. Only committed objects are cached, and
replaced or deleted ones are dropped before the write is reported, so the cache never differs from the database.
"""

from collections import OrderedDict

from crystal_relay.limits import KIB, MIB

RECENT_BYTES_MAX = 32 * MIB
RECENT_OBJECT_BYTES_MAX = 16 * KIB
_OVERHEAD_BYTES = 512
"""Approximate memory of a key and an entry."""


class Recent:
    """The most recently written small objects of one store. One event loop."""

    def __init__(self, *, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._objects: OrderedDict[str, bytes] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        """The object if it is cached."""
        return self._objects.get(key)

    def keep(self, key: str, body: bytes) -> None:
        """Cache a committed object."""
        self.drop(key)
        if len(body) > RECENT_OBJECT_BYTES_MAX:
            return
        self._objects[key] = body
        self._bytes += len(body) + _OVERHEAD_BYTES
        while self._bytes > self._bytes_max:
            _, oldest = self._objects.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD_BYTES

    def drop(self, key: str) -> None:
        """Drop an object that was deleted, or whose bytes are unknown."""
        body = self._objects.pop(key, None)
        if body is not None:
            self._bytes -= len(body) + _OVERHEAD_BYTES
