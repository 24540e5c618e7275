"""The four routes' operations on the store. A crash may come after any step; repeating the request finishes it.

    drop      received whole --seen mark--> has its id --blob--> readable --all readers confirmed--> gone mark,
              blob and marks deleted
    confirm   a mark for that reader only; once all readers have one, the drop is deleted

A crash between seen mark and blob: the device got no answer and drops again; the same bytes find their id, and the blob is
stored there. A crash during the deletion: every reader has its mark, so no list shows the drop, and the next list finishes
the deletion.

Drops on one channel take their ids and become visible one after the other, so a list never shows a later drop without the
earlier one.

A drop goes before all readers have confirmed it in two cases. It is older than the operator lets drops become (`expire_ms`).
Or its space is full, only absent readers (`presence`) wait for it, and it is not the only copy: another reader has it, or its
channel carries copies of what the Core has (mirror, files). What a reader misses by that is counted.
"""

import asyncio
import time
from collections import Counter
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
from crystal_prototype.relay.presence import Presence, Presences
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
_COPIES = frozenset({V1Channel.MIRROR, V1Channel.FILES})
"""Channels whose content the Core has, too."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A drop that a reader has not confirmed yet."""

    id: DropId
    size: int


@dataclass(frozen=True, slots=True)
class Held:
    """What waits for one reader."""

    drops: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Deletable:
    """A drop that may go although `missing` readers have not confirmed it."""

    drop: DropId
    channel: V1Channel
    size: int
    marks: frozenset[str]
    missing: tuple[V1Holder, ...]


@dataclass(slots=True)
class _Order:
    """State of one channel in this process."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: tuple[int, int] | None = None
    looked: bool = False
    forgotten_day: int = -1


class Drops:
    """The compatibility layer without its HTTP. One for each relay process; several may share a store."""

    def __init__(
        self, store: Store, tokens: Tokens, *, clock: Callable[[], float] = time.time, expire_ms: int = 0
    ) -> None:
        """`expire_ms`: the age at which drops are deleted; 0 for never."""
        self._store = store
        self._tokens = tokens
        self._clock = clock
        self._expire_ms = expire_ms
        self.presences = Presences(store, clock=clock)
        self._orders: dict[tuple[str, V1Channel], _Order] = {}

    async def drop(self, sender: V1Holder, channel: V1Channel, received: Received) -> DropId:
        """Store a drop for all readers of the channel. The same bytes of the same token, repeated soon, are the same drop."""
        space = sender.space
        order = self._orders.setdefault((space, channel), _Order())
        async with order.lock:
            drop = await self._next(order, sender, channel, received.digest)
            await self._forget_old(order, space, drop.day)
            await self._expire(space, channel)
            earlier = await self._claim(space, channel, drop)
            if earlier is not None and self._expired(earlier):
                earlier = await self._claim_again(space, channel, drop, earlier)
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
        await self.presences.note(reader)
        await self._expire(reader.space, channel)
        members: list[V1Member] | None = None
        unfinished: list[DropId] = []
        async with aclosing(self._marked(reader.space, channel)) as drops:
            async for drop, size, marks in drops:
                if marks and members is None:
                    members = [member async for member in self._tokens.members(reader.space)]
                if size is None or (marks and _all_have(members or [], channel, marks)):
                    unfinished.append(drop)
                elif reader.id not in marks and not self._expired(drop):
                    found.append(Waiting(drop, size))
                if len(found) >= LISTED_MAX:
                    break
        for drop in unfinished[:REPAIRS_MAX]:
            await self._settle(reader.space, channel, drop)
        return found

    async def pick_up(self, reader: V1Holder, channel: V1Channel, drop: DropId) -> Object:
        """The sealed bytes. Raises NotFound, also if the drop is not for this reader, or was confirmed by it."""
        confirmed = done_key(reader.space, channel, drop, reader.id)
        if not reader.reads(channel) or self._expired(drop) or await self._has(confirmed):
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

    async def make_room(self, space: str, size: int) -> int:
        """Delete drops that only absent readers hold, the oldest first, until `size` bytes are free. Returns bytes freed."""
        members = [each.holder async for each in self._tokens.members(space) if not each.revoked]
        absent = {each.id for each in members if self.presences.absent(await self.presences.of(each))}
        found: list[_Deletable] = []
        for channel in V1Channel:
            readers = [each for each in members if each.reads(channel)]
            async with aclosing(self._marked(space, channel)) as drops:
                async for drop, drop_size, marks in drops:
                    missing = tuple(each for each in readers if each.id not in marks)
                    elsewhere = channel in _COPIES or any(each.id in marks for each in readers)
                    if drop_size is not None and elsewhere and all(each.id in absent for each in missing):
                        found.append(_Deletable(drop, channel, drop_size, frozenset(marks), missing))
        chosen: list[_Deletable] = []
        freed = 0
        for each in sorted(found, key=lambda each: each.drop):
            if freed >= size:
                break
            chosen.append(each)
            freed += each.size
        await self._delete_unread(space, chosen)
        return freed

    async def held(self, space: str) -> dict[str, Held]:
        """What waits for each reader of a space, by its id."""
        members = [each.holder async for each in self._tokens.members(space) if not each.revoked]
        drops, size = Counter[str](), Counter[str]()
        for channel in V1Channel:
            readers = [each.id for each in members if each.reads(channel)]
            async with aclosing(self._marked(space, channel)) as marked:
                async for _, drop_size, marks in marked:
                    for reader in readers:
                        if drop_size is not None and reader not in marks:
                            drops[reader] += 1
                            size[reader] += drop_size
        return {each.id: Held(drops[each.id], size[each.id]) for each in members}

    async def presence_of(self, reader: V1Holder) -> Presence:
        """When the reader last asked, and what it missed."""
        return await self.presences.of(reader)

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

    async def _claim_again(
        self, space: str, channel: V1Channel, drop: DropId, expired: DropId
    ) -> DropId | None:
        """As `_claim`, for bytes whose earlier drop has expired: it is repeated only if all readers confirmed it."""
        if await self._has(gone_key(space, channel, expired)):
            return expired
        await self._store.delete(seen_key(space, channel, expired))
        return await self._claim(space, channel, drop)

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
            await self._delete_blob(space, channel, drop)
        for reader in marks:
            await self._store.delete(done_key(space, channel, drop, reader))

    async def _delete_blob(self, space: str, channel: V1Channel, drop: DropId) -> None:
        if drop.day >= int(self._clock() * 1000) // DAY_MS - SEEN_DAYS_BEFORE:
            with suppress(AlreadyExists):
                await self._store.put_new(gone_key(space, channel, drop), b"{}")
        await self._store.delete(blob_key(space, channel, drop))

    async def _delete_unread(self, space: str, chosen: list[_Deletable]) -> None:
        """Delete drops that readers have not confirmed. The count of what they miss is written first."""
        for reader, count in Counter(reader for each in chosen for reader in each.missing).items():
            await self.presences.missed(reader, count)
        for each in chosen:
            if each.missing or not each.marks:
                # The same bytes are another drop from now on, which the readers get. Killed here, the next one finishes it.
                await self._store.delete(seen_key(space, each.channel, each.drop))
                await self._store.delete(blob_key(space, each.channel, each.drop))
            else:
                await self._delete_blob(space, each.channel, each.drop)
            for mark in each.marks:
                await self._store.delete(done_key(space, each.channel, each.drop, mark))

    def _expired(self, drop: DropId) -> bool:
        return bool(self._expire_ms) and int(self._clock() * 1000) - drop.milliseconds > self._expire_ms

    async def _expire(self, space: str, channel: V1Channel) -> None:
        """Delete some of the channel's expired drops, so that no request takes long by it; others are not shown."""
        if not self._expire_ms:
            return
        prefix = channel_prefix(space, channel)
        page = await self._store.list(prefix, limit=FORGOTTEN_AT_ONCE)
        old = [(DropId.parse(each.key.removeprefix(prefix)), each.size) for each in page.entries]
        expired = [(drop, size) for drop, size in old if self._expired(drop)]
        if not expired:
            return
        readers = [
            each.holder
            async for each in self._tokens.members(space)
            if not each.revoked and each.holder.reads(channel)
        ]
        chosen: list[_Deletable] = []
        for drop, size in expired:
            done = done_prefix(space, channel, drop)
            marks = frozenset([each.key.removeprefix(done) async for each in entries(self._store, done)])
            missing = tuple(each for each in readers if each.id not in marks)
            chosen.append(_Deletable(drop, channel, size, marks, missing))
        await self._delete_unread(space, chosen)

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
