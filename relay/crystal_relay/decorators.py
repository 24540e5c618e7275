"""Decorators of a store: retries, and a limit on bandwidth inside them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import TypeVar

from crystal_relay.batches import Found, Lacking, Written, read_many, write_many
from crystal_relay.deletion import condemner_of
from crystal_relay.errors import (
    AlreadyExists,
    Busy,
    Closed,
    NotFound,
    StoreUnavailable,
    TooManyRequests,
)
from crystal_relay.limits import KIB, LIST_LIMIT_MAX, MIB
from crystal_relay.store import Body, Object, Page, Store, body_of, checked_pieces, hold, renew

REPEATED_READ_BYTES_MAX = 2 * MIB
"""Parts up to this size are read completely within a try. The reader continues a longer one that breaks off."""
TOLD_SECONDS_MAX = 30.0
"""The longest pause that a relay can ask for with Retry-After."""

RATE_MIN = 16 * KIB
"""Bytes a second. A relay drops bodies that arrive with less than 8 KiB a second."""
BURST_SECONDS = 0.5
STREAM_RATE_MIN = 64 * KIB
"""Bytes a second that each stream has before another one is opened."""
STREAMS_MAX = 16
PACED_PIECE_BYTES = 16 * KIB
_PACED_CHANNELS = frozenset({"conversations", "mirror", "commands", "blob"})

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]
_system_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff: pauses double from the first to the longest, with jitter of up to half."""

    tries: int = 5
    first_seconds: float = 0.25
    longest_seconds: float = 8.0

    def pause(self, tried: int, random: float) -> float:
        """Seconds to sleep after `tried` tries (1, 2, …); `random` is in [0, 1)."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(tried - 1, 32))
        return full * (1 - random / 2)


class RetryingStore:
    """Retries calls that failed with StoreUnavailable (not Closed) or Busy. Other errors, and the last one, pass through.

    After TooManyRequests it pauses at least as long as the relay asked, up to `TOLD_SECONDS_MAX`.

    A `put_new` whose reply was lost may find its own object when retried. After a failed try, AlreadyExists is therefore
    checked by reading back: equal bytes are success. `wait` is not retried, since its caller loops anyway.
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _system_random.random,
    ) -> None:
        self._store = store
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._random = random

    async def put_new(self, key: str, body: bytes | Body) -> None:
        tried = 0

        async def attempt() -> None:
            nonlocal tried
            tried += 1
            try:
                await self._store.put_new(key, body)
            except AlreadyExists:
                if tried == 1 or not await self._holds(key, body):
                    raise

        await self._repeat(attempt, repeatable=_is_repeatable(body))

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._repeat(lambda: self._store.put(key, body), repeatable=_is_repeatable(body))

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        async def attempt() -> Object:
            found = await self._store.get(key, start=start, length=length)
            if found.length > REPEATED_READ_BYTES_MAX:
                return found
            async with found:
                return Object.part(await found.read(), size=found.size, start=found.start)

        return await self._repeat(attempt)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        return await self._repeat(lambda: self._store.list(prefix, after=after, limit=limit))

    async def delete(self, key: str) -> None:
        await self._repeat(lambda: self._store.delete(key))

    async def read_many(self, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
        """As `BatchStore`."""
        return await self._repeat(lambda: read_many(self._store, keys, bytes_max))

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
        """As `BatchStore`. What a try that failed has created counts as created."""
        tried = 0

        async def attempt() -> Sequence[Written]:
            nonlocal tried
            tried += 1
            written = [*await write_many(self._store, objects)]
            if tried > 1:
                for at, (key, body) in enumerate(objects):
                    if written[at] is False:
                        written[at] = await self._holds(key, body)
            return written

        return await self._repeat(attempt)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`. Raises at once if the relay asks for a pause longer than `TOLD_SECONDS_MAX`."""
        condemner = condemner_of(self._store)
        await self._repeat(
            lambda: condemner.condemn(keys=keys, prefix=prefix, through=through), waits_for_long=False
        )

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def hold(self, prefix: str, *, token: str, timeout: float, heard: Callable[[], None]) -> str:
        """As `HoldingStore`."""
        return await hold(self._store, prefix, token=token, timeout=timeout, heard=heard)

    async def renew(self) -> None:
        """As `Renewable`."""
        await renew(self._store)

    async def aclose(self) -> None:
        await self._store.aclose()

    async def _repeat(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        repeatable: bool = True,
        waits_for_long: bool = True,
    ) -> Result:
        tried = 0
        while True:
            try:
                return await attempt()
            except (StoreUnavailable, Busy) as error:
                tried += 1
                if tried >= self._policy.tries or not repeatable or isinstance(error, Closed):
                    raise
                told = error.retry_after if isinstance(error, TooManyRequests) else 0.0
                if told > TOLD_SECONDS_MAX and not waits_for_long:
                    raise
            pause = self._policy.pause(tried, self._random())
            await self._sleep(max(pause, min(told, TOLD_SECONDS_MAX)))

    async def _holds(self, key: str, body: bytes | Body) -> bool:
        """Whether the stored object has these bytes. Bounded in memory."""
        mine = body if isinstance(body, Body) else body_of(body)
        try:
            found = await self._store.get(key)
        except NotFound:
            return False
        async with found:
            if found.size != mine.size:
                return False
            expected = bytearray()
            pieces = checked_pieces(mine)
            async for piece in found:
                while len(expected) < len(piece):
                    expected += await anext(pieces)
                if bytes(expected[: len(piece)]) != piece:
                    return False
                del expected[: len(piece)]
            return True


class Pace:
    """A token bucket that may be overdrawn: the caller then sleeps until it is level."""

    def __init__(
        self, rate: int, *, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`rate`: bytes a second, at least `RATE_MIN`; 0 for no limit."""
        assert rate == 0 or rate >= RATE_MIN, "relays drop slower bodies"
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._level = rate * BURST_SECONDS
        self._filled_at = clock()
        self.streams = asyncio.Semaphore(max(1, min(STREAMS_MAX, rate // STREAM_RATE_MIN)))
        """Slots for transfers of content."""

    @property
    def limits(self) -> bool:
        """Whether there is a rate."""
        return self._rate > 0

    async def take(self, size: int) -> None:
        """Wait until `size` bytes may have moved, in the order of the calls."""
        self.charge(size)
        if self._level < 0:
            await self._sleep(-self._level / self._rate)

    def charge(self, size: int) -> None:
        """Count bytes that have moved already."""
        if not self._rate:
            return
        now = self._clock()
        full = self._rate * BURST_SECONDS
        self._level = min(full, self._level + (now - self._filled_at) * self._rate) - size
        self._filled_at = now


class PacedStore:
    """Limits the bandwidth of content. Belongs inside `RetryingStore`, so that a retry counts its bytes again."""

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

    async def read_many(self, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
        """As `BatchStore`. Within a limit each object travels alone, at its pace."""
        if self._down.limits:
            return [Lacking.ALONE] * len(keys)
        return await read_many(self._store, keys, bytes_max)

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
        """As `BatchStore`. Within a limit each object travels alone, at its pace."""
        if self._up.limits:
            return [Lacking.ALONE] * len(objects)
        return await write_many(self._store, objects)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`."""
        await condemner_of(self._store).condemn(keys=keys, prefix=prefix, through=through)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def hold(self, prefix: str, *, token: str, timeout: float, heard: Callable[[], None]) -> str:
        """As `HoldingStore`."""
        return await hold(self._store, prefix, token=token, timeout=timeout, heard=heard)

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


def _is_repeatable(body: bytes | Body) -> bool:
    return not isinstance(body, Body) or body.repeatable


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _is_paced(key: str) -> bool:
    """Whether a key is in a channel of content, not of control."""
    parts = key.split("/", 3)
    return len(parts) > 2 and parts[0] == "v" and parts[2] in _PACED_CHANNELS
