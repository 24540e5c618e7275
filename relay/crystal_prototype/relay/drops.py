"""The four routes' operations on the store. A crash may come after any step; repeating the request finishes it.

    drop      received whole --seen mark--> has its id --blob--> readable --all readers confirmed--> gone mark,
              blob and marks deleted
    confirm   a mark for that reader only; once all readers have one, the drop is deleted

A crash between seen mark and blob: the device got no answer and drops again; the same bytes find their id, and the blob is
stored there. A crash during the deletion: every reader has its mark, so no list shows the drop, and the next list finishes
the deletion.

Drops on one channel take their ids and become visible one after the other, so a list never shows a later drop without the
earlier one.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from crystal_prototype.relay.names import (
    DAY_MS,
    DropId,
    V1Channel,
    blob_key,
    channel_prefix,
    day_of_seen,
    done_key,
    done_prefix,
    gone_key,
    later,
    seen_key,
    seen_prefix,
)
from crystal_prototype.relay.spool import Received
from crystal_prototype.relay.tokens import Tokens, V1Holder, V1Member, entries
from crystal_relay.errors import AlreadyExists, Busy, NotFound, RelayError, StoreUnavailable
from crystal_relay.store import Object, Store

LISTED_MAX = 100_000
"""Drops in one answer. The earliest come first, so a device that confirms them gets the others next."""
REPAIRS_MAX = 100
"""Interrupted deletions that one list finishes."""
SEEN_DAYS_BEFORE = 1
"""A repeated drop is recognized on the day of the first one and this many days after."""
FORGOTTEN_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Waiting:
    """A drop that a reader has not confirmed yet."""

    id: DropId
    size: int


@dataclass(slots=True)
class _Order:
    """State of one channel in this process."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: tuple[int, int] | None = None
    looked: bool = False
    forgotten_day: int = -1


class Drops:
    """The compatibility layer without its HTTP. One for each relay process; several may share a store."""

    def __init__(self, store: Store, tokens: Tokens, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._tokens = tokens
        self._clock = clock
        self._orders: dict[tuple[str, V1Channel], _Order] = {}

    async def drop(self, sender: V1Holder, channel: V1Channel, received: Received) -> DropId:
        """Store a drop for all readers of the channel. The same bytes of the same token, repeated soon, are the same drop."""
        space = sender.space
        order = self._orders.setdefault((space, channel), _Order())
        async with order.lock:
            drop = await self._next(order, sender, channel, received.digest)
            await self._forget_old(order, space, drop.day)
            earlier = await self._claim(space, channel, drop)
            if earlier is not None:
                await self._repeat(space, channel, earlier, received)
                return earlier
            order.last = (drop.milliseconds, drop.sequence)
            try:
                await self._store.put_new(blob_key(space, channel, drop), received.body)
            except AlreadyExists:
                return drop  # its name holds the digest: these bytes
            except StoreUnavailable:
                raise  # it may be there
            except RelayError:
                with suppress(RelayError):  # else the next try takes this place in the order
                    await self._store.delete(seen_key(space, channel, drop))
                raise
            return drop

    async def waiting(self, reader: V1Holder, channel: V1Channel) -> list[Waiting]:
        """The drops that the reader has not confirmed, in order. Finishes interrupted deletions."""
        found: list[Waiting] = []
        if not reader.reads(channel):
            return found
        members: list[V1Member] | None = None
        unfinished: list[DropId] = []
        async with aclosing(self._marked(reader.space, channel)) as drops:
            async for drop, size, marks in drops:
                if marks and members is None:
                    members = [member async for member in self._tokens.members(reader.space)]
                if size is None or (marks and _all_have(members or [], channel, marks)):
                    unfinished.append(drop)
                elif reader.id not in marks:
                    found.append(Waiting(drop, size))
                if len(found) >= LISTED_MAX:
                    break
        for drop in unfinished[:REPAIRS_MAX]:
            await self._settle(reader.space, channel, drop)
        return found

    async def pick_up(self, reader: V1Holder, channel: V1Channel, drop: DropId) -> Object:
        """The sealed bytes. Raises NotFound, also if the drop is not for this reader, or was confirmed by it."""
        if not reader.reads(channel) or await self._has(done_key(reader.space, channel, drop, reader.id)):
            raise NotFound("there is no such blob")
        return await self._store.get(blob_key(reader.space, channel, drop))

    async def confirm(self, reader: V1Holder, channel: V1Channel, drop: DropId) -> None:
        """Mark a drop as confirmed by this reader. Idempotent; a deleted drop is no error. Raises NotFound."""
        if not reader.reads(channel):
            raise NotFound("there is no such blob")
        if not await self._has(blob_key(reader.space, channel, drop)):
            return
        with suppress(AlreadyExists):
            await self._store.put_new(done_key(reader.space, channel, drop, reader.id), b"{}")
        await self._settle(reader.space, channel, drop)

    async def revoke(self, identity: str) -> V1Holder:
        """Revoke a token and delete the drops that only it had not confirmed. Idempotent. Raises NotFound."""
        holder = await self._tokens.revoke(identity)
        for channel in V1Channel:
            if channel.reader is not holder.role:
                continue
            async with aclosing(self._marks(holder.space, channel)) as marked:
                async for drop, _ in marked:
                    await self._settle(holder.space, channel, drop)
        return holder

    # --- dropping ---

    async def _next(self, order: _Order, sender: V1Holder, channel: V1Channel, digest: str) -> DropId:
        now = int(self._clock() * 1000)
        if not order.looked:
            # An earlier process may have seen a later time than this one does.
            prefix = channel_prefix(sender.space, channel)
            async for entry in entries(self._store, prefix, after=f"{prefix}{now:013d}"):
                last = DropId.parse(entry.key.removeprefix(prefix))
                order.last = (last.milliseconds, last.sequence)
            order.looked = True
        return DropId(*later(order.last, now), sender.id, digest)

    async def _claim(self, space: str, channel: V1Channel, drop: DropId) -> DropId | None:
        """Record the id of the bytes and return None; or return the id that they got before."""
        for days in range(SEEN_DAYS_BEFORE, 0, -1):
            earlier = await self._seen(seen_key(space, channel, drop, days_before=days))
            if earlier is not None:
                return earlier
        key = seen_key(space, channel, drop)
        try:
            await self._store.put_new(key, str(drop).encode())
        except AlreadyExists:
            earlier = await self._seen(key)
            if earlier is None:  # another process has just failed to store it
                raise Busy("the same blob is being dropped elsewhere") from None
            return earlier
        return None

    async def _repeat(self, space: str, channel: V1Channel, drop: DropId, received: Received) -> None:
        """Finish an earlier try: store the blob if it is missing, unless all readers have confirmed it already."""
        if await self._has(blob_key(space, channel, drop)) or await self._has(gone_key(space, channel, drop)):
            return
        with suppress(AlreadyExists):
            await self._store.put_new(blob_key(space, channel, drop), received.body)
        if await self._has(gone_key(space, channel, drop)):
            await self._store.delete(blob_key(space, channel, drop))

    async def _seen(self, key: str) -> DropId | None:
        try:
            text = await (await self._store.get(key)).read()
        except NotFound:
            return None
        return DropId.parse(text.decode("ascii", "replace"))

    async def _forget_old(self, order: _Order, space: str, day: int) -> None:
        """Delete some of the seen marks of earlier days; a few with each drop, so that it never takes long."""
        if order.forgotten_day == day:
            return
        page = await self._store.list(seen_prefix(space), limit=FORGOTTEN_AT_ONCE)
        old = [entry.key for entry in page.entries if day_of_seen(space, entry.key) < day - SEEN_DAYS_BEFORE]
        for key in old:
            await self._store.delete(key)
        if len(old) < FORGOTTEN_AT_ONCE:
            order.forgotten_day = day

    # --- deleting ---

    async def _settle(self, space: str, channel: V1Channel, drop: DropId) -> None:
        """Delete the drop if all its readers have confirmed it, and the marks of a deleted one."""
        members = [member async for member in self._tokens.members(space)]
        prefix = done_prefix(space, channel, drop)
        marks = {entry.key.removeprefix(prefix) async for entry in entries(self._store, prefix)}
        if await self._has(blob_key(space, channel, drop)):
            if not _all_have(members, channel, marks):
                return
            if drop.day >= int(self._clock() * 1000) // DAY_MS - SEEN_DAYS_BEFORE:
                with suppress(AlreadyExists):
                    await self._store.put_new(gone_key(space, channel, drop), b"{}")
            await self._store.delete(blob_key(space, channel, drop))
        for reader in marks:
            await self._store.delete(done_key(space, channel, drop, reader))

    # --- looking ---

    async def _has(self, key: str) -> bool:
        page = await self._store.list(key, limit=1)
        return bool(page.entries) and page.entries[0].key == key

    async def _marked(
        self, space: str, channel: V1Channel
    ) -> AsyncGenerator[tuple[DropId, int | None, set[str]]]:
        """All drops in order, each with its size and the readers that confirmed it; without a size only marks are left."""
        prefix = channel_prefix(space, channel)
        async with (
            aclosing(self._marks(space, channel)) as marks,
            aclosing(entries(self._store, prefix)) as blobs,
        ):
            marked = await anext(marks, None)
            async for entry in blobs:
                drop = DropId.parse(entry.key.removeprefix(prefix))
                while marked is not None and marked[0] < drop:
                    yield marked[0], None, marked[1]
                    marked = await anext(marks, None)
                if marked is not None and marked[0] == drop:
                    yield drop, entry.size, marked[1]
                    marked = await anext(marks, None)
                else:
                    yield drop, entry.size, set()
            while marked is not None:
                yield marked[0], None, marked[1]
                marked = await anext(marks, None)

    async def _marks(self, space: str, channel: V1Channel) -> AsyncGenerator[tuple[DropId, set[str]]]:
        """Drops with confirmations, in order, and the readers that confirmed them."""
        prefix = done_prefix(space, channel)
        current = ""
        readers: set[str] = set()
        async for entry in entries(self._store, prefix):
            drop, _, reader = entry.key.removeprefix(prefix).partition("/")
            if drop != current:
                if current:
                    yield DropId.parse(current), readers
                current = drop
                readers = set()
            readers.add(reader)
        if current:
            yield DropId.parse(current), readers


def _all_have(members: list[V1Member], channel: V1Channel, marks: set[str]) -> bool:
    """Whether every reader of the channel has confirmed a drop. False if the channel has no reader."""
    readers = {member.holder.id for member in members if not member.revoked and member.holder.reads(channel)}
    return bool(readers) and readers <= marks
