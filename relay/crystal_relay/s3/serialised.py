"""Writes of one key one after the other, for a store that does not honour conditional writes.

This process is then the only one (`claim`), so looking first and writing after is enough, if no two writes of one key
overlap. A write whose outcome is unknown may still be on its way when the next one comes: for a time its key is in
doubt, and only the same bytes are let through.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from crystal_relay.errors import Busy
from crystal_relay.s3.bucket import Content

DOUBTS_MAX = 10_000
"""With more keys than that in doubt the store is not taking writes anyway: all further ones are refused."""
_READ_BYTES = 1024 * 1024


@dataclass(slots=True)
class _Line:
    """Who waits for one key."""

    lock: asyncio.Lock
    users: int = 0


class KeyLines:
    """One line for each key that is being written. One event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncGenerator[None]:
        """Hold the key."""
        line = self._lines.setdefault(key, _Line(asyncio.Lock()))
        line.users += 1
        try:
            async with line.lock:
                yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[key]


class Doubts:
    """Keys of which a write of unknown outcome may still be on its way. One event loop."""

    def __init__(self, seconds: float, *, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._keys: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def note(self, key: str, digest: bytes | None) -> None:
        """The outcome of a write of `key` is unknown. `digest`: of its bytes; None for a deletion."""
        self._keys[key] = (self._clock() + self._seconds, digest)
        self._keys.move_to_end(key)

    def about(self, key: str) -> bool:
        """Whether `key` is in doubt."""
        self._forget_old()
        return key in self._keys

    def check(self, key: str, digest: bytes) -> None:
        """Raises Busy if bytes of another digest may still arrive at the key."""
        self._forget_old()
        if len(self._keys) >= DOUBTS_MAX:
            raise Busy("the object store has failed too often just now")
        if key in self._keys and self._keys[key][1] != digest:
            raise Busy("an earlier write of this key may still be on its way")

    def _forget_old(self) -> None:
        now = self._clock()
        while self._keys and next(iter(self._keys.values()))[0] <= now:
            self._keys.popitem(last=False)


def digest_of(content: Content) -> bytes:
    """SHA-256 of what is to be stored. Blocks."""
    if isinstance(content.source, bytes):
        return hashlib.sha256(content.source).digest()
    digest = hashlib.sha256()
    content.source.seek(0)
    while piece := content.source.read(_READ_BYTES):
        digest.update(piece)
    return digest.digest()
