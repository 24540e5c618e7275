"""Bodies that were received, on their way into the bucket: create, replace, delete.

Where the bucket honours conditions, it decides who is first. Where it does not, this process does: it is the only one
(`claim`), and does one thing at a time with each key.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from crystal_relay.errors import AlreadyExists, Busy, NotFound, StoreFull, StoreUnavailable
from crystal_relay.s3.bucket import Bucket, Content, Written, new_write
from crystal_relay.s3.calls import Calls
from crystal_relay.s3.conflicts import conflict_pauses
from crystal_relay.s3.pacing import KeyPacing
from crystal_relay.s3.serialised import Doubts, KeyLines, digest_of
from crystal_relay.s3.settings import R2_OVERWRITE_SECONDS, Conditions, S3Settings
from crystal_relay.threads import Lane


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
