"""Stores around a store: repeating what failed for a while, limiting concurrency, logging.

Usual nesting: `RetryingStore(LimitedStore(LoggedStore(HttpStore(…))))`, so that a pause between tries holds no place.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom
from typing import TypeVar

from crystal_relay.condemning import condemner_of
from crystal_relay.errors import (
    AlreadyExists,
    Busy,
    Closed,
    NotFound,
    RelayError,
    StoreUnavailable,
    TooManyRequests,
)
from crystal_relay.limits import LIST_LIMIT_MAX, MIB
from crystal_relay.renewing import renew
from crystal_relay.store import Body, Object, Page, Store, body_of, checked_pieces

REPEATED_READ_BYTES_MAX = 2 * MIB
"""Parts up to this size are read to their end within a try. A longer one that breaks off is its reader's to continue."""
TOLD_SECONDS_MAX = 30.0
"""The longest pause that a relay can ask for."""

Result = TypeVar("Result")
_system_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long. Pauses double from the first to the longest; each is cut by up to half at random."""

    tries: int = 5
    first_seconds: float = 0.25
    longest_seconds: float = 8.0

    def pause(self, tried: int, random: float) -> float:
        """Seconds to sleep after `tried` (1, 2, …) tries; `random` is in [0, 1)."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(tried - 1, 32))
        return full * (1 - random / 2)


class RetryingStore:
    """Repeats what failed with StoreUnavailable (not Closed) or Busy. Other errors, and the last of these, pass through.

    After TooManyRequests it pauses at least as long as it was told to, within reason.

    A `put_new` whose reply was lost may find its own object when repeated. After a failed try AlreadyExists is therefore
    answered by reading back: equal bytes are success. `wait` is not repeated: its caller is a loop already.
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

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`. Who is told to come again later than the longest pause is not kept waiting."""
        condemner = condemner_of(self._store)
        await self._repeat(
            lambda: condemner.condemn(keys=keys, prefix=prefix, through=through), waits_for_long=False
        )

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

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
        """Whether the stored object has the same bytes. Bounded memory."""
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


class LimitedStore:
    """At most `concurrency` calls at once; further ones queue. Sleeping `wait`s and objects being read do not count."""

    def __init__(self, store: Store, *, concurrency: int) -> None:
        self._store = store
        self._places = asyncio.Semaphore(concurrency)

    async def put_new(self, key: str, body: bytes | Body) -> None:
        async with self._places:
            await self._store.put_new(key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        async with self._places:
            await self._store.put(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        async with self._places:
            return await self._store.get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        async with self._places:
            return await self._store.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        async with self._places:
            await self._store.delete(key)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`."""
        async with self._places:
            await condemner_of(self._store).condemn(keys=keys, prefix=prefix, through=through)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def aclose(self) -> None:
        await self._store.aclose()


class LoggedStore:
    """One line for each call: what, on which key, how it ended, after how many milliseconds. Never bytes or tokens."""

    def __init__(
        self, store: Store, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._logger = logger
        self._clock = clock

    async def put_new(self, key: str, body: bytes | Body) -> None:
        async with self._logged("put_new", key):
            await self._store.put_new(key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        async with self._logged("put", key):
            await self._store.put(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        async with self._logged("get", key):
            return await self._store.get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        async with self._logged("list", prefix):
            return await self._store.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        async with self._logged("delete", key):
            await self._store.delete(key)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`."""
        async with self._logged("condemn", through or f"{len(keys)} keys"):
            await condemner_of(self._store).condemn(keys=keys, prefix=prefix, through=through)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        async with self._logged("wait", prefix):
            return await self._store.wait(prefix, token=token, timeout=timeout)

    async def aclose(self) -> None:
        await self._store.aclose()

    @asynccontextmanager
    async def _logged(self, call: str, key: str) -> AsyncGenerator[None]:
        began = self._clock()
        ended = "cancelled"
        try:
            yield
            ended = "ok"
        except RelayError as error:
            ended = error.code
            raise
        except Exception as error:
            ended = type(error).__name__
            raise
        finally:
            milliseconds = (self._clock() - began) * 1000
            level = logging.DEBUG if ended in ("ok", NotFound.code, AlreadyExists.code) else logging.INFO
            self._logger.log(level, "%s %s: %s, %.1f ms", call, key, ended, milliseconds)


def _is_repeatable(body: bytes | Body) -> bool:
    return not isinstance(body, Body) or body.repeatable
