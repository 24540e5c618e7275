"""Runs the protocol's flows on a store: the bridge from sans-IO generators to the asynchronous ``Store`` port.

A flow yields a request, the runner performs it and sends the reply, until the flow returns. A failing request is thrown into
the flow as a ``StoreFailure`` (or a subclass with the relay's exit code and hint), so that a flow sees one kind of failure.
Everything from the relay is bounded before it is held: an object is read up to one byte more than an entry (or a blob) may
have, which shows that it is none. ``Has`` reads one byte; the relay's answer to it proves nothing.

``Condemn`` goes to the store if it accepts condemnations, as a relay does; on other stores the objects are deleted at once
(``crystal_relay.deletion``).

Databases are used between requests on the event loop's thread; embedding takes seconds and runs in a thread.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from crystal_core.embed.port import Embedder, EmbeddingError
from crystal_crypto.limits import BLOB_BYTES_MAX, ENTRY_BYTES_MAX
from crystal_mirror.requests import (
    Condemn,
    Embed,
    Flow,
    Get,
    GetBlob,
    GetBlobs,
    GetMany,
    GetPart,
    Has,
    List,
    Listing,
    Poll,
    Progress,
    Put,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_node.base.errors import ExitCode
from crystal_relay.batches import Found, Lacking, Written, read_many, write_many
from crystal_relay.deletion import condemner_of
from crystal_relay.errors import (
    AlreadyExists,
    BadRange,
    BadRequest,
    BodyTooLarge,
    Forbidden,
    NotFound,
    QuotaExceeded,
    RelayAtCap,
    RelayError,
    StoreDamaged,
    StoreUnavailable,
    Unauthorized,
    VaultClosed,
    VaultReadOnly,
)
from crystal_relay.limits import (
    BATCH_BYTES_MAX,
    BATCH_OBJECT_BYTES_MAX,
    BATCH_OBJECTS_MAX,
    LIST_LIMIT_MAX,
    MIB,
)
from crystal_relay.store import Store

GETS_AT_ONCE = 16
"""Objects fetched concurrently: enough to hide a round trip of 100 ms, few enough for any relay."""

BEHIND_BYTES_MAX = 8 * MIB
"""Blobs that are being written while a flow goes on."""
_TURNS_TO_THE_WIRE = 4
"""Turns of the event loop after which a request has been sent, or as much of it as the connection takes at once."""

READS_OF_BLOB_MAX = 4
"""How often a blob is read on after the connection broke, as long as each time brings bytes."""

_TOO_LARGE_HINT = (
    "A relay takes blobs of 8 MiB. What stands before it may not: let the proxy pass bodies of 9 MiB "
    "(nginx: `client_max_body_size 9m`)."
)

K = TypeVar("K")
T = TypeVar("T")
EmbedderSource = Callable[[], Embedder]
"""Returns the embedder; called only when a flow needs vectors."""
PollKnowing = Callable[[str, str, Callable[[], Awaitable[str]]], Awaitable[str]]
"""Called with a poll's prefix and token, and with what asks the store."""
OnProgress = Callable[[str, int, int], None]
"""Called with what is under way, the bytes done, and the bytes in all."""


class RelayRefused(StoreFailure):
    """The relay does not allow this device to do that."""

    exit_code = ExitCode.RELAY_REFUSED
    hint = "Join again with `crystal pair --code -`: the relay no longer knows this device's token."


class TokenRefused(RelayRefused):
    """The relay does not know this device's token, as after a revocation."""

    hint = (
        "This device was revoked, or the relay lost its tokens. `crystal devices` on another machine tells; to bring this one "
        "back in, pair it again: `crystal pair --code -`. A Core registers its vault at an emptied relay again: "
        "`crystal init --role core`, at a relay elsewhere with --enroll-token -."
    )


class DeletionRefused(RelayRefused):
    """Only the Core may delete at the relay, and nobody may delete the device log."""

    hint = "Only the Core's token may delete. `crystal role` tells who leads; nothing was deleted."


class RelayHasNoRoom(StoreFailure):
    """The relay's disk is full or damaged."""

    exit_code = ExitCode.STORAGE
    hint = "Make room on the relay's disk; this device keeps its work and sends it later."


class BadRelayReply(StoreFailure):
    """The relay's answer violates its interface."""

    exit_code = ExitCode.RELAY_MISBEHAVES
    hint = "Check the relay's address and version; nothing was taken over from it."


@dataclass(slots=True)
class Traffic:
    """Object bytes and requests that this device has sent and received."""

    bytes_up: int = 0
    bytes_down: int = 0
    requests: int = 0

    def since(self, earlier: "Traffic") -> "Traffic":
        return Traffic(
            self.bytes_up - earlier.bytes_up,
            self.bytes_down - earlier.bytes_down,
            self.requests - earlier.requests,
        )

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.bytes_up + other.bytes_up,
            self.bytes_down + other.bytes_down,
            self.requests + other.requests,
        )

    def copy(self) -> "Traffic":
        return replace(self)


class Runner:
    """Runs flows on one store, and counts their ``traffic``."""

    def __init__(
        self,
        store: Store,
        embedder: EmbedderSource | None,
        on_embedded: Callable[[int], None] | None = None,
        on_progress: OnProgress | None = None,
        on_unembedded: Callable[[EmbeddingError], None] | None = None,
        poll: PollKnowing | None = None,
    ) -> None:
        """``embedder`` None: for flows that need no vectors. ``on_embedded`` is called with the number of texts embedded.

        ``on_unembedded`` is called with the reason why optional vectors were not made; without it, that ends a flow. ``poll``
        answers ``Poll`` from what is known, or by calling its last argument, which asks the store.
        """
        self._store = store
        self._condemner = condemner_of(store)
        self._on_progress = on_progress
        self._embedder = embedder
        self._on_embedded = on_embedded
        self._on_unembedded = on_unembedded
        self._poll = poll
        self._gate = asyncio.Semaphore(GETS_AT_ONCE)
        self.traffic = Traffic()

    async def run(self, flow: Flow[T]) -> T:
        """Runs a flow and returns its result.

        Cancellation closes the flow at its current request; what it committed stays committed.

        Raises:
            what the flow raises; ``StoreFailure`` for failures that it does not handle.
        """
        beside = _Beside(self.perform)
        try:
            request = next(flow)
            while True:
                try:
                    reply = await beside.perform(request)
                except StoreFailure as failure:
                    request = flow.throw(failure)
                else:
                    request = flow.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            flow.close()
            await beside.end()

    async def perform(self, request: Request) -> Any:
        """Performs one request. Raises StoreFailure."""
        if isinstance(request, Embed):
            return await self._vectors(request)
        if isinstance(request, Progress):
            if self._on_progress is not None:
                self._on_progress(request.what, request.done, request.total)
            await asyncio.sleep(0)  # a flow that works on the disk for long lets other tasks run
            return None
        try:
            return await self._ask(request)
        except RelayError as error:
            raise store_failure(error) from error

    async def _vectors(self, request: Embed) -> list[list[bytes]] | None:
        try:
            vectors = await asyncio.to_thread(self._embed, request.texts)
        except EmbeddingError as error:
            if request.needed or self._on_unembedded is None:
                raise
            self._on_unembedded(error)
            return None
        if self._on_embedded is not None:
            self._on_embedded(len(request.texts))
        return vectors

    async def _ask(self, request: Request) -> Any:
        match request:
            case Get(key):
                return await self._get(key)
            case GetPart(key, start, length):
                return await self._get_part(key, start, length)
            case GetMany(keys):
                return await self._many(self._get, keys)
            case PutNew(key, body) | PutBlob(key, body):
                return await self._put_new(key, body)
            case Put(key, body):
                await self._store.put(key, body)
                self._count_up(body)
                return None
            case List(prefix, after, limit):
                return await self._list(prefix, after, min(limit, LIST_LIMIT_MAX))
            case Poll(prefix, token):
                if self._poll is None:
                    return await self._polled(prefix, token)
                return await self._poll(prefix, token, lambda: self._polled(prefix, token))
            case Has(keys):
                return await self._many(self._has, keys)
            case GetBlob(key):
                return await self._get_blob(key, BLOB_BYTES_MAX)
            case GetBlobs(keys, limits):
                found = await self._get_blobs(dict(zip(keys, limits, strict=True)))
                return list(map(found.get, keys))
            case PutBlobs(blobs):
                made = await self._put_blobs(dict(blobs))
                return [made[key] for key, _ in blobs]
            case Condemn():
                await self._condemn(request)
                return None
            case Embed() | Progress():
                raise AssertionError("embedding and telling ask no store")

    async def _polled(self, prefix: str, token: str) -> str:
        self.traffic.requests += 1
        return await self._store.wait(prefix, token=token or None, timeout=0)

    async def _get(self, key: str) -> bytes | None:
        async with self._gate:
            self.traffic.requests += 1
            try:
                found = await self._store.get(key, length=ENTRY_BYTES_MAX + 1)
                body = await found.read()
            except NotFound:
                return None
            except StoreDamaged:
                return b""  # an object that the relay's disk lost or truncated: damaged, and replaced where it may be
        self.traffic.bytes_down += len(body)
        return body

    async def _get_part(self, key: str, start: int, length: int) -> bytes | None:
        async with self._gate:
            self.traffic.requests += 1
            try:
                found = await self._store.get(key, start=start, length=length)
                body = await found.read()
            except NotFound:
                return None
            except (BadRange, StoreDamaged):
                return b""
        self.traffic.bytes_down += len(body)
        return body

    async def _has(self, key: str) -> bool:
        async with self._gate:
            self.traffic.requests += 1
            try:
                await (await self._store.get(key, length=1)).read()
            except (NotFound, StoreDamaged):
                return False
            return True

    async def _get_blobs(self, limits: dict[str, int]) -> dict[str, bytes | None]:
        """Blobs, small ones many in a request; each is as long as its limit and a byte at most."""
        found = dict.fromkeys(limits)
        alone: list[str] = []
        groups = list(
            _groups({key: limit for key, limit in limits.items() if limit < BATCH_OBJECT_BYTES_MAX})
        )
        replies = await self._many(
            lambda group: self._read_many(group, max(map(limits.__getitem__, group)) + 1), groups
        )
        for group, reply in zip(groups, replies, strict=True):
            for key, each in zip(group, reply, strict=True):
                if each is Lacking.ALONE:
                    alone.append(key)
                elif each is not Lacking.ABSENT:
                    found[key] = b"" if isinstance(each, Lacking) else each[: limits[key] + 1]
        alone += [key for key, limit in limits.items() if limit >= BATCH_OBJECT_BYTES_MAX]
        rest = await self._many(lambda key: self._get_blob(key, limits[key]), alone)
        return found | dict(zip(alone, rest, strict=True))

    async def _read_many(self, keys: tuple[str, ...], bytes_max: int) -> list[Found]:
        async with self._gate:
            found = await read_many(self._store, keys, bytes_max) if len(keys) > 1 else [Lacking.ALONE]
            self.traffic.requests += any(each is not Lacking.ALONE for each in found)
        self.traffic.bytes_down += sum(len(each) for each in found if isinstance(each, bytes))
        return list(found)

    async def _put_blobs(self, blobs: dict[str, bytes]) -> dict[str, bool]:
        """Creates blobs, small ones many in a request. Says of each whether it was created."""
        small = {key: len(body) for key, body in blobs.items() if len(body) <= BATCH_OBJECT_BYTES_MAX}
        groups = list(_groups(small))
        replies = await self._many(
            lambda group: self._write_many([(key, blobs[key]) for key in group]), groups
        )
        made = {
            key: each
            for group, reply in zip(groups, replies, strict=True)
            for key, each in zip(group, reply, strict=True)
            if isinstance(each, bool)
        }
        alone = [key for key in blobs if key not in made]
        rest = await self._many(lambda key: self._put_blob(key, blobs[key]), alone)
        return made | dict(zip(alone, rest, strict=True))

    async def _write_many(self, objects: list[tuple[str, bytes]]) -> list[Written]:
        async with self._gate:
            written = await write_many(self._store, objects) if len(objects) > 1 else [Lacking.ALONE]
            sent = [
                len(body) for (_, body), each in zip(objects, written, strict=True) if isinstance(each, bool)
            ]
            self.traffic.requests += bool(sent)
        self.traffic.bytes_up += sum(sent)
        return list(written)

    async def _put_blob(self, key: str, body: bytes) -> bool:
        async with self._gate:
            return await self._put_new(key, body)

    async def _get_blob(self, key: str, limit: int) -> bytes | None:
        held = bytearray()
        async with self._gate:
            for left in reversed(range(READS_OF_BLOB_MAX)):
                before = len(held)
                try:
                    await self._read_on(key, held, limit)
                    break
                except NotFound:
                    return None
                except StoreDamaged:
                    return b""  # a blob that the relay's disk lost or truncated: damaged, replaced under another name
                except StoreUnavailable:
                    if not left or len(held) == before or len(held) > limit:
                        raise
        return bytes(held)

    async def _read_on(self, key: str, held: bytearray, limit: int) -> None:
        """Appends the rest of a blob to ``held``, which keeps what came before a failure."""
        self.traffic.requests += 1
        before = len(held)
        try:
            async with await self._store.get(key, start=before, length=limit + 1 - before) as found:
                async for piece in found:
                    held += piece
        finally:
            self.traffic.bytes_down += len(held) - before

    async def _many(self, ask: Callable[[K], Awaitable[T]], keys: Sequence[K]) -> list[T]:
        """Asks for all keys, or groups of keys, concurrently, within the gate's bound."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_result_or_error(ask, key)) for key in keys]
        results: list[T] = []
        for task in tasks:
            outcome = task.result()
            if isinstance(outcome, RelayError):
                raise outcome
            results.append(outcome)
        return results

    async def _put_new(self, key: str, body: bytes) -> bool:
        try:
            await self._store.put_new(key, body)
        except AlreadyExists:
            self._count_up(body)
            return False
        self._count_up(body)
        return True

    async def _condemn(self, request: Condemn) -> None:
        self.traffic.requests += 1
        try:
            await self._condemner.condemn(keys=request.keys, prefix=request.prefix, through=request.through)
        except (VaultClosed, VaultReadOnly):
            raise
        except Forbidden as error:
            raise DeletionRefused(f"the relay lets this device delete nothing there: {error}") from error

    async def _list(self, prefix: str, after: str, limit: int) -> Listing:
        self.traffic.requests += 1
        page = await self._store.list(prefix, after=after, limit=limit)
        keys = tuple(entry.key for entry in page.entries)
        last = after
        for key in keys:
            if not key.startswith(prefix) or key <= last:
                raise BadRelayReply("the relay listed keys that were not asked for or are out of order")
            last = key
        return Listing(keys, page.more)

    def _count_up(self, body: bytes) -> None:
        self.traffic.requests += 1
        self.traffic.bytes_up += len(body)

    def _embed(self, texts: tuple[str, ...]) -> list[list[bytes]]:
        if self._embedder is None:
            raise AssertionError("this flow was not to ask for vectors")
        return self._embedder().embed_windows(texts)


class _Beside:
    """What goes on at the store while a flow works: writes that it does not wait for yet, and what it will ask for next."""

    def __init__(self, perform: Callable[[Request], Coroutine[Any, Any, Any]]) -> None:
        self._perform = perform
        self._writes: deque[tuple[asyncio.Task[Any], int]] = deque()
        """With the bytes of each."""
        self._ahead: tuple[GetBlobs, asyncio.Task[Any]] | None = None

    async def perform(self, request: Request) -> Any:
        """Raises StoreFailure."""
        if isinstance(request, PutBlobs):
            return await self._write(request)
        if isinstance(request, GetBlobs):
            return await self._read(request)
        return await self._perform(request)

    async def end(self) -> None:
        """Ends what nobody waits for any more."""
        tasks = [task for task, _ in self._writes]
        if self._ahead is not None:
            tasks.append(self._ahead[1])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writes.clear()
        self._ahead = None

    async def _write(self, request: PutBlobs) -> Any:
        size = sum(len(body) for _, body in request.blobs)
        await self._written(max(0, BEHIND_BYTES_MAX - size) if request.behind else 0)
        if not request.behind:
            return await self._perform(request)
        self._writes.append((await self._begun(request), size))
        return None

    async def _begun(self, request: Request) -> "asyncio.Task[Any]":
        """Begins a request, and lets it get as far as the wire: the flow may work for long before it asks again."""
        task = asyncio.create_task(self._perform(request))
        for _ in range(_TURNS_TO_THE_WIRE):
            await asyncio.sleep(0)
        return task

    async def _written(self, left: int) -> None:
        """Waits until at most so many bytes are being written. Raises StoreFailure."""
        while sum(size for _, size in self._writes) > left:
            task = self._writes[0][0]
            await asyncio.wait([task])
            self._writes.popleft()
            task.result()

    async def _read(self, request: GetBlobs) -> Any:
        found: dict[tuple[str, int], bytes | None] = {}
        wanted = list(zip(request.keys, request.limits, strict=True))
        if self._ahead is not None:
            (ahead, task), self._ahead = self._ahead, None
            found = dict(zip(zip(ahead.keys, ahead.limits, strict=True), await task, strict=True))
        lacking = [each for each in wanted if each not in found]
        if lacking:
            keys, limits = zip(*lacking, strict=True)
            found |= dict(zip(lacking, await self._perform(GetBlobs(keys, limits)), strict=True))
        if request.ahead is not None and request.ahead.keys:
            self._ahead = request.ahead, await self._begun(request.ahead)
        return [found[each] for each in wanted]


def _groups(sizes: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Keys of objects that make a request each. Objects are at most so large."""
    group: list[str] = []
    held = 0
    for key, size in sizes.items():
        if group and (len(group) == BATCH_OBJECTS_MAX or held + size > BATCH_BYTES_MAX):
            yield tuple(group)
            group, held = [], 0
        group.append(key)
        held += size
    if group:
        yield tuple(group)


async def _result_or_error(ask: Callable[[K], Awaitable[T]], key: K) -> T | RelayError:
    try:
        return await ask(key)
    except RelayError as error:  # returned, not raised: one failure must not surface as a group of them
        return error


def store_failure(error: RelayError) -> StoreFailure:
    """The failure that flows and people see for a relay's error."""
    if isinstance(error, (VaultClosed, VaultReadOnly, QuotaExceeded, RelayAtCap, StoreDamaged)):
        # Neither joining again nor a larger disk helps here; the relay's own hint does.
        kind = RelayRefused if isinstance(error, Forbidden) else RelayHasNoRoom
        return kind(str(error), hint=error.hint or None)
    if isinstance(error, Unauthorized):
        return TokenRefused("the relay no longer lets this device in")
    if error.exit_code == ExitCode.RELAY_REFUSED:
        return RelayRefused(str(error))
    if error.exit_code == ExitCode.STORAGE:
        return RelayHasNoRoom(str(error))
    if isinstance(error, BodyTooLarge):
        return BadRelayReply(f"the relay takes no such request: {error}", hint=_TOO_LARGE_HINT)
    if isinstance(error, BadRequest):
        return BadRelayReply(f"the relay takes no such request: {error}")
    return StoreFailure(str(error), hint=error.hint or None)
