"""Writes to the bucket: create, replace, delete.

If the bucket honours conditional writes, it decides which of several creates is first. If not, this process does: it is the
only one that writes (`claim`), and makes one write at a time to each key.
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
"""Keys in doubt above which all further writes are refused: the bucket is failing anyway."""
WAIT_SECONDS_MAX = 10.0
"""A write that would have to wait longer is refused as Busy."""
CONFLICT_TRIES = 7
CONFLICT_PAUSE_SECONDS = 0.02
CONFLICT_PAUSE_SECONDS_MAX = 1.0
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A received body, the lane of threads that sends it, and what is held until it is sent."""

    key: str
    content: Callable[[], Content]
    """Called in a thread."""
    lane: Lane
    held: AsyncExitStack


class Writes:
    """The writes of one store. `written` is called after each write that took effect, before it is reported."""

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
        self._locks = KeyLocks()
        self._doubts = Doubts(settings.doubt_seconds, clock=time.monotonic)

    async def create(self, pending: PendingWrite) -> None:
        """Store a body under a free key. Raises AlreadyExists, Busy, StoreFull, StoreUnavailable."""
        async with pending.held:
            if self._conditions is Conditions.HONOURED:
                written = await self._create_conditionally(pending)
            else:
                written = await self._create_alone(pending)
            if written is Written.TAKEN:
                raise AlreadyExists("the key is taken")
            self._written(pending.key)

    async def replace(self, pending: PendingWrite) -> None:
        """Store a body in place of the present one. Raises Busy, StoreFull, StoreUnavailable."""
        async with pending.held:
            await self._pace.turn(pending.key)
            if self._conditions is Conditions.HONOURED:
                await self._put(pending)
            else:
                async with self._locks.hold(pending.key):
                    self._check_may_write()
                    await self._put_alone(pending)
            self._written(pending.key)

    async def delete(self, key: str) -> None:
        """Delete an object. Raises Busy, StoreUnavailable."""
        call = partial(self._bucket.delete, key)
        if self._conditions is Conditions.HONOURED:
            await self._calls.run(self._calls.small, call)
            return
        async with self._locks.hold(key):
            self._check_may_write()
            try:
                await self._calls.run(self._calls.small, call)
            except StoreUnavailable:
                self._doubts.note(key, None)
                raise

    async def _create_conditionally(self, pending: PendingWrite) -> Written:
        write = new_write()
        unsettled = False
        for pause in conflict_pauses():
            try:
                written = await self._calls.run(
                    pending.lane, lambda: self._bucket.create(pending.key, pending.content(), write)
                )
            except (Busy, StoreFull):
                if unsettled:
                    break
                raise
            if written in (Written.STORED, Written.TAKEN):
                return written
            unsettled = unsettled or written is Written.UNSETTLED
            await asyncio.sleep(pause)
        if unsettled:  # a write without an answer may arrive later
            raise StoreUnavailable("whether the object was stored is unknown")
        raise Busy("others write the same object")

    async def _create_alone(self, pending: PendingWrite) -> Written:
        async with self._locks.hold(pending.key):
            self._check_may_write()
            if self._doubts.about(pending.key):
                self._doubts.check(pending.key, await self._digest(pending))
            try:
                await self._calls.run(pending.lane, partial(self._bucket.head, pending.key))
            except NotFound:
                self._check_may_write()  # that request may have taken long
                await self._put_alone(pending)
                return Written.STORED
            return Written.TAKEN

    async def _put_alone(self, pending: PendingWrite) -> None:
        try:
            await self._put(pending)
        except StoreUnavailable:
            self._doubts.note(pending.key, await self._digest(pending))
            raise

    async def _put(self, pending: PendingWrite) -> None:
        await self._calls.run(pending.lane, lambda: self._bucket.put(pending.key, pending.content()))

    async def _digest(self, pending: PendingWrite) -> bytes:
        return await self._calls.run(pending.lane, lambda: digest_of(pending.content()))

    def _check_may_write(self) -> None:
        if self._may_write is not None:
            self._may_write()


class KeyLocks:
    """A lock for each key that is being written. One event loop."""

    def __init__(self) -> None:
        self._locks: dict[str, _KeyLock] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of the key."""
        held = self._locks.setdefault(key, _KeyLock(asyncio.Lock()))
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._locks[key]


@dataclass(slots=True)
class _KeyLock:
    lock: asyncio.Lock
    users: int = 0


class KeyPacing:
    """At most one write of a key in `interval` seconds, in the order of the calls. One event loop."""

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
        """When the next write may start, for keys written in the last interval, oldest first."""

    async def turn(self, key: str) -> None:
        """Wait until the key may be written. Raises Busy."""
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


class Doubts:
    """Keys with a write of unknown outcome, which may still arrive. One event loop."""

    def __init__(self, seconds: float, *, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._keys: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def note(self, key: str, digest: bytes | None) -> None:
        """Note a write of unknown outcome. `digest` is of its bytes, None for a deletion."""
        self._keys[key] = (self._clock() + self._seconds, digest)
        self._keys.move_to_end(key)

    def about(self, key: str) -> bool:
        """Whether `key` is in doubt."""
        self._forget_old()
        return key in self._keys

    def check(self, key: str, digest: bytes) -> None:
        """Raise Busy if bytes of another digest may still arrive at the key."""
        self._forget_old()
        if len(self._keys) >= DOUBTS_MAX:
            raise Busy("the object store has failed too often just now")
        if key in self._keys and self._keys[key][1] != digest:
            raise Busy("an earlier write of this key may still be on its way")

    def _forget_old(self) -> None:
        now = self._clock()
        while self._keys and next(iter(self._keys.values()))[0] <= now:
            self._keys.popitem(last=False)


def conflict_pauses() -> Iterator[float]:
    """Pauses in seconds after each try that met a conflict: exponential, with jitter."""
    for number in range(CONFLICT_TRIES):
        longest = min(CONFLICT_PAUSE_SECONDS_MAX, CONFLICT_PAUSE_SECONDS * 3**number)
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311  (jitter, no secret)


def digest_of(content: Content) -> bytes:
    """SHA-256 of the content. Blocks."""
    if isinstance(content.source, bytes):
        return hashlib.sha256(content.source).digest()
    digest = hashlib.sha256()
    content.source.seek(0)
    while piece := content.source.read(_READ_BYTES):
        digest.update(piece)
    return digest.digest()
