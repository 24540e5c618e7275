"""Small objects that were just written, kept in memory for those who pick them up.

A dead drop's objects are read soon after they are written, often by several devices. Only what is committed gets in, and
what is replaced or deleted leaves before that is reported, so nobody sees anything here that the database does not hold.
"""

from collections import OrderedDict

from crystal_relay.limits import KIB, MIB

RECENT_BYTES_MAX = 32 * MIB
RECENT_OBJECT_BYTES_MAX = 16 * KIB
_OVERHEAD_BYTES = 512
"""Of a key and an entry, about."""


class Recent:
    """The most recent small objects of one store. One event loop."""

    def __init__(self, *, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._objects: OrderedDict[str, bytes] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        """The object, if it is here."""
        return self._objects.get(key)

    def keep(self, key: str, body: bytes) -> None:
        """An object that was committed, in place of what was here under its key."""
        self.drop(key)
        if len(body) > RECENT_OBJECT_BYTES_MAX:
            return
        self._objects[key] = body
        self._bytes += len(body) + _OVERHEAD_BYTES
        while self._bytes > self._bytes_max:
            _, oldest = self._objects.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD_BYTES

    def drop(self, key: str) -> None:
        """The object was deleted, or what it is now is not known here."""
        body = self._objects.pop(key, None)
        if body is not None:
            self._bytes -= len(body) + _OVERHEAD_BYTES
