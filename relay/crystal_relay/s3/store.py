"""The store in a bucket: the port on top of blocking calls, with bounds on threads, connections and bytes on their way.

A body is received whole and checked before anything is sent: small ones in memory, large ones in a spool. From then on a
write is finished also when its caller is cancelled, and before the store closes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any

from crystal_relay.errors import BadRange, BadRequest, Closed, StoreUnavailable
from crystal_relay.keys import check_key, check_prefix
from crystal_relay.limits import LIST_LIMIT_MAX, OBJECT_BYTES_MAX, PIECE_BYTES
from crystal_relay.notify import Notifier
from crystal_relay.s3.bucket import Bucket, Content
from crystal_relay.s3.calls import Calls
from crystal_relay.s3.direct import is_reachable, signed_get, signed_put
from crystal_relay.s3.reads import Reads
from crystal_relay.s3.settings import PENDING_BYTES_MAX, WHOLE_BYTES_MAX, Conditions, S3Settings
from crystal_relay.s3.spool import BucketSpool
from crystal_relay.s3.writes import PendingWrite, Writes
from crystal_relay.spool import Budget
from crystal_relay.store import (
    Body,
    DirectRequest,
    Head,
    Listed,
    Object,
    Page,
    body_of,
    body_size,
    check_limit,
    check_part,
    check_timeout,
    checked_pieces,
    whole_body,
)

_Write = Callable[[PendingWrite], Coroutine[Any, Any, None]]


class S3Store:
    """A `Store` (see the port). Open it with `open_s3_store`, which tests the bucket. One event loop."""

    def __init__(
        self,
        bucket: Bucket,
        conditions: Conditions,
        *,
        settings: S3Settings,
        notifier: Notifier | None = None,
        may_write: Callable[[], None] | None = None,
        released: Callable[[], Awaitable[None]] | None = None,
        direct_puts: bool = False,
    ) -> None:
        """`may_write` raises while this process must not write; `released` is called after the last write.
        `direct_puts`: the bucket takes signed requests exactly as they were signed."""
        self.bucket = bucket
        self.conditions = conditions
        self._direct_puts = direct_puts
        self.notifier = notifier if notifier is not None else Notifier()
        self._settings = settings
        self._released = released
        self._calls = Calls(settings)
        self._reads = Reads(bucket, self._calls, settings)
        self._writes = Writes(
            bucket, self._calls, conditions, settings, written=self.notifier.written, may_write=may_write
        )
        self._memory = Budget(PENDING_BYTES_MAX, "the room for small bodies")
        self._spooled = Budget(settings.spool_bytes_max, "the room for large bodies")
        self._users = 0
        self._idle = asyncio.Event()
        self._closed = False

    @property
    def operations(self) -> Counter[str]:
        """HTTP requests sent to the object store so far, by kind: put, get, head, list, delete, other."""
        return self.bucket.wire.operations

    # --- the port ---

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._receive(key, body, self._writes.create)

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._receive(key, body, self._writes.replace)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        check_key(key)
        check_part(start, length)
        with self._in_use():
            if start <= OBJECT_BYTES_MAX:
                count = None if length is None else min(length, OBJECT_BYTES_MAX)
                found = await self._reads.get(key, start, count)
                if found is not None:
                    return found
            size = (await self._calls.ask(self._calls.small, partial(self.bucket.head, key))).size
            if start == size:
                return Object.part(b"", size=size, start=start)
            if start > size:
                raise BadRange("the range begins beyond the end of the object")
            raise StoreUnavailable("the object was replaced meanwhile")

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        check_prefix(prefix)
        check_prefix(after)
        check_limit(limit)
        with self._in_use():
            if after > prefix and not after.startswith(prefix):
                return Page((), more=False)
            after = after if after >= prefix else ""
            while True:
                ask = partial(self.bucket.list, prefix, after, limit)
                rows, more = await self._calls.ask(self._calls.small, ask)
                entries = tuple(Listed(key, size) for key, size in rows if _is_key(key))
                if entries or not more:
                    return Page(entries, more)
                after = rows[-1][0]  # a page of names that are none of ours

    async def delete(self, key: str) -> None:
        check_key(key)
        with self._in_use():
            await self._calls.to_the_end(self._writes.delete(key))

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        check_prefix(prefix)
        check_timeout(timeout)
        with self._in_use():
            return await self.notifier.wait(prefix, token, timeout)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.notifier.wake_all()
        while self._users:
            self._idle.clear()
            await self._idle.wait()
        await self._calls.drained()
        if self._released is not None:
            await self._released()
        await asyncio.to_thread(self._close)

    # --- requests that devices make themselves (see `DirectStore`) ---

    @property
    def direct_puts(self) -> bool:
        return self._direct_puts and self.direct_gets

    @property
    def direct_gets(self) -> bool:
        return self.conditions is Conditions.HONOURED and is_reachable(self.bucket.address.endpoint)

    async def direct_put(self, key: str, *, size: int, md5: bytes) -> DirectRequest:
        check_key(key)
        with self._in_use():
            sign = partial(signed_put, self.bucket, key, size, md5)
            return await self._calls.ask(self._calls.small, sign)

    async def direct_get(self, key: str) -> DirectRequest:
        check_key(key)
        with self._in_use():
            return await self._calls.ask(self._calls.small, partial(signed_get, self.bucket, key))

    async def head(self, key: str) -> Head:
        check_key(key)
        with self._in_use():
            found = await self._calls.ask(self._calls.small, partial(self.bucket.head, key))
            return Head(found.size, found.write)

    def announce(self, key: str) -> None:
        self.notifier.written(key)

    # --- receiving ---

    async def _receive(self, key: str, body: bytes | Body, write: _Write) -> None:
        check_key(key)
        size = body_size(body)
        with self._in_use():
            if size > WHOLE_BYTES_MAX:
                await self._receive_large(key, body if isinstance(body, Body) else body_of(body), write)
                return
            whole = await whole_body(body)
            held = AsyncExitStack()
            held.enter_context(self._memory.of(size))
            pending = PendingWrite(key, partial(Content.of, whole), self._calls.small, held)
            await self._calls.to_the_end(write(pending))

    async def _receive_large(self, key: str, body: Body, write: _Write) -> None:
        async with AsyncExitStack() as held:
            held.enter_context(self._spooled.of(body.size))
            spool = await self._calls.receive(
                partial(BucketSpool, self._settings.spool_directory), BucketSpool.close
            )
            held.callback(spool.close)
            gathered = bytearray()
            async for piece in checked_pieces(body):
                if len(piece) >= PIECE_BYTES and not gathered:
                    await self._spool(partial(spool.write, piece))
                    continue
                gathered += piece
                if len(gathered) >= PIECE_BYTES:
                    await self._spool(partial(spool.write, bytes(gathered)))
                    gathered.clear()
            await self._spool(partial(spool.write, bytes(gathered)))
            pending = PendingWrite(key, spool.content, self._calls.large, held.pop_all())
            await self._calls.to_the_end(write(pending))

    async def _spool(self, call: Callable[[], None]) -> None:
        await self._calls.run(self._calls.large, call)

    # --- inside ---

    @contextmanager
    def _in_use(self) -> Generator[None]:
        if self._closed:
            raise Closed("the store is closed")
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._idle.set()

    def _close(self) -> None:
        self._calls.close()
        self.bucket.close()


def _is_key(name: str) -> bool:
    """Whether it is one of ours: others may keep things in the bucket that no request can name."""
    try:
        check_key(name)
    except BadRequest:
        return False
    return True
