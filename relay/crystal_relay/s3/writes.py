"""Bodies that were received, on their way into the bucket: create, replace, delete.

Where the bucket honours conditions, it decides who is first. Where it does not, this process does: it is the only one
(`claim`), and does one thing at a time with each key.
"""

import asyncio
import hashlib
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from crystal_relay.errors import AlreadyExists, Busy, NotFound, StoreFull, StoreUnavailable
from crystal_relay.s3.bucket import Bucket, Content, Written, new_write
from crystal_relay.s3.calls import Calls
from crystal_relay.s3.settings import R2_OVERWRITE_SECONDS, Conditions, S3Settings
from crystal_relay.threads import Lane

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


WAIT_SECONDS_MAX = 10.0
"""Whoever would have to wait for longer is told to come again."""


class KeyPacing:
    """At most one start for each key in `interval` seconds, in the order of the calls. One event loop."""

    def __init__(
        self,
        interval: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._sleep = sleep
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When the next may start, of the keys written in the last interval; the oldest first."""

    async def turn(self, key: str) -> None:
        """Return when it is this call's turn. Raises Busy."""
        if self._interval <= 0:
            return
        now = self._clock()
        while self._free_at and next(iter(self._free_at.values())) <= now:
            self._free_at.popitem(last=False)
        at = max(now, self._free_at.get(key, now))
        if at - now > WAIT_SECONDS_MAX:
            raise Busy("this object is overwritten too often")
        self._free_at[key] = at + self._interval
        self._free_at.move_to_end(key)
        if at > now:
            await self._sleep(at - now)


TRIES = 7
FIRST_PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 1.0


def conflict_pauses() -> Iterator[float]:
    """Seconds to wait after each try that met a conflict: growing, and different for each who asks."""
    for number in range(TRIES):
        longest = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 3**number)
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311  (to be apart, not to be secret)


@dataclass(frozen=True, slots=True)
class Sending:
    """A body that was received: how to have it, who sends it, and what it holds until that is done."""

    key: str
    content: Callable[[], Content]
    """Called in a thread."""
    lane: Lane
    held: AsyncExitStack


class Writes:
    """Of one store. `written` is called after each write that took effect, before it is reported."""

    def __init__(
        self,
        bucket: Bucket,
        calls: Calls,
        conditions: Conditions,
        settings: S3Settings,
        *,
        written: Callable[[str], None],
        may_write: Callable[[], None] | None,
    ) -> None:
        self._bucket = bucket
        self._calls = calls
        self._conditions = conditions
        self._written = written
        self._may_write = may_write
        interval = settings.overwrite_seconds
        if interval is None:
            interval = R2_OVERWRITE_SECONDS if bucket.address.is_r2 else 0.0
        self._pace = KeyPacing(interval, clock=time.monotonic)
        self._lines = KeyLines()
        self._doubts = Doubts(settings.doubt_seconds, clock=time.monotonic)

    async def create(self, sending: Sending) -> None:
        """Raises AlreadyExists, Busy, StoreFull, StoreUnavailable."""
        async with sending.held:
            if self._conditions is Conditions.HONOURED:
                written = await self._create_conditionally(sending)
            else:
                written = await self._create_alone(sending)
            if written is Written.TAKEN:
                raise AlreadyExists("the key is taken")
            self._written(sending.key)

    async def replace(self, sending: Sending) -> None:
        """Raises Busy, StoreFull, StoreUnavailable."""
        async with sending.held:
            await self._pace.turn(sending.key)
            if self._conditions is Conditions.HONOURED:
                await self._put(sending)
            else:
                async with self._lines.turn(sending.key):
                    self._check_may_write()
                    await self._put_alone(sending)
            self._written(sending.key)

    async def delete(self, key: str) -> None:
        """Raises Busy, StoreUnavailable."""
        call = partial(self._bucket.delete, key)
        if self._conditions is Conditions.HONOURED:
            await self._calls.run(self._calls.small, call)
            return
        async with self._lines.turn(key):
            self._check_may_write()
            try:
                await self._calls.run(self._calls.small, call)
            except StoreUnavailable:
                self._doubts.note(key, None)
                raise

    async def _create_conditionally(self, sending: Sending) -> Written:
        write = new_write()
        unsettled = False
        for pause in conflict_pauses():
            try:
                written = await self._calls.run(
                    sending.lane, lambda: self._bucket.create(sending.key, sending.content(), write)
                )
            except (Busy, StoreFull):
                if unsettled:
                    break
                raise
            if written in (Written.STORED, Written.TAKEN):
                return written
            unsettled = unsettled or written is Written.UNSETTLED
            await asyncio.sleep(pause)
        if unsettled:  # what got no answer may arrive later
            raise StoreUnavailable("whether the object was stored is unknown")
        raise Busy("others write the same object")

    async def _create_alone(self, sending: Sending) -> Written:
        async with self._lines.turn(sending.key):
            self._check_may_write()
            if self._doubts.about(sending.key):
                self._doubts.check(sending.key, await self._digest(sending))
            try:
                await self._calls.run(sending.lane, partial(self._bucket.head, sending.key))
            except NotFound:
                self._check_may_write()  # the look may have taken long
                await self._put_alone(sending)
                return Written.STORED
            return Written.TAKEN

    async def _put_alone(self, sending: Sending) -> None:
        try:
            await self._put(sending)
        except StoreUnavailable:
            self._doubts.note(sending.key, await self._digest(sending))
            raise

    async def _put(self, sending: Sending) -> None:
        await self._calls.run(sending.lane, lambda: self._bucket.put(sending.key, sending.content()))

    async def _digest(self, sending: Sending) -> bytes:
        return await self._calls.run(sending.lane, lambda: digest_of(sending.content()))

    def _check_may_write(self) -> None:
        if self._may_write is not None:
            self._may_write()
