"""A store that moves so many bytes a second and no more: a token bucket for each direction, in front of any store.

Entries and blobs wait for their bytes, in the order in which they asked. What is small and steers everything (cursors, the
device log, invites, lists, waits, deletions, asking for one byte) never waits: it is charged, and the content behind it waits
for it. A bucket holds what half a second gives, so that a pause is not made up for by a burst.

Few streams at once get a bucket's bytes, the fewer the slower it is: a stream that gets none for long would look to the other
side like one that hangs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from crystal_relay.condemning import condemner_of
from crystal_relay.limits import KIB, LIST_LIMIT_MAX
from crystal_relay.renewing import renew
from crystal_relay.store import Body, Object, Page, Store

RATE_MIN = 16 * KIB
"""Bytes a second. A relay gives a body up that comes with less than 8 KiB a second."""
BURST_SECONDS = 0.5
STREAM_RATE_MIN = 64 * KIB
"""So many bytes a second each stream is to have, before there is a second one."""
STREAMS_MAX = 16
PACED_PIECE_BYTES = 16 * KIB
_PACED_CHANNELS = frozenset({"conversations", "mirror", "commands", "blob"})

Sleep = Callable[[float], Awaitable[None]]


class Pace:
    """A token bucket, which may be overdrawn: who overdraws it sleeps until it is level."""

    def __init__(
        self, rate: int, *, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`rate`: bytes a second, at least `RATE_MIN`; 0: as fast as it goes."""
        assert rate == 0 or rate >= RATE_MIN, "what is slower is given up by relays"
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._level = rate * BURST_SECONDS
        self._filled_at = clock()
        self.streams = asyncio.Semaphore(max(1, min(STREAMS_MAX, rate // STREAM_RATE_MIN)))
        """Places for those that move content."""

    @property
    def limits(self) -> bool:
        """Whether there is a rate."""
        return self._rate > 0

    async def take(self, size: int) -> None:
        """Returns when so many bytes may have moved. Who asked first is let go first."""
        self.charge(size)
        if self._level < 0:
            await self._sleep(-self._level / self._rate)

    def charge(self, size: int) -> None:
        """Counts bytes that did not wait."""
        if not self._rate:
            return
        now = self._clock()
        full = self._rate * BURST_SECONDS
        self._level = min(full, self._level + (now - self._filled_at) * self._rate) - size
        self._filled_at = now


class PacedStore:
    """A `Store` whose content moves at these paces. Below `RetryingStore`: a repeated try costs its bytes again."""

    def __init__(self, store: Store, *, up: Pace, down: Pace) -> None:
        self._store = store
        self._up = up
        self._down = down

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._put(self._store.put_new, key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._put(self._store.put, key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if not self._down.limits or not _is_paced(key) or length == 1:
            found = await self._store.get(key, start=start, length=length)
            self._down.charge(found.length)
            return found
        await self._down.streams.acquire()
        try:
            found = await self._store.get(key, start=start, length=length)
        except BaseException:
            self._down.streams.release()
            raise

        async def close() -> None:
            try:
                await found.aclose()
            finally:
                self._down.streams.release()

        return Object(
            self._arriving(found), size=found.size, start=found.start, length=found.length, close=close
        )

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        return await self._store.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`."""
        await condemner_of(self._store).condemn(keys=keys, prefix=prefix, through=through)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def renew(self) -> None:
        """As `Renewable`."""
        await renew(self._store)

    async def aclose(self) -> None:
        await self._store.aclose()

    async def _put(
        self, put: Callable[[str, bytes | Body], Awaitable[None]], key: str, body: bytes | Body
    ) -> None:
        size = body.size if isinstance(body, Body) else len(body)
        if not self._up.limits or not _is_paced(key):
            self._up.charge(size)
            await put(key, body)
            return
        async with self._up.streams:
            if isinstance(body, bytes) and size <= PACED_PIECE_BYTES:
                await self._up.take(size)
                await put(key, body)
                return
            repeatable = not isinstance(body, Body) or body.repeatable
            await put(key, Body(size, lambda: self._leaving(body), repeatable=repeatable))

    async def _leaving(self, body: bytes | Body) -> AsyncIterator[bytes]:
        async for piece in body.open() if isinstance(body, Body) else _whole(body):
            for at in range(0, len(piece), PACED_PIECE_BYTES):
                part = piece[at : at + PACED_PIECE_BYTES]
                await self._up.take(len(part))
                yield part

    async def _arriving(self, found: Object) -> AsyncIterator[bytes]:
        async for piece in found:
            for at in range(0, len(piece), PACED_PIECE_BYTES):
                part = piece[at : at + PACED_PIECE_BYTES]
                await self._down.take(len(part))
                yield part


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _is_paced(key: str) -> bool:
    """Whether a key is one of content, as opposed to what steers."""
    parts = key.split("/", 3)
    return len(parts) > 2 and parts[0] == "v" and parts[2] in _PACED_CHANNELS
