"""The relay's store as its requests use it: each vault's operations wait in a queue of their own, which are served in turn.

A store takes a limited number of operations at once; what is beyond waits in the store, first come, first served. There one
vault with many requests delays all others. So no more operations are begun than the store takes, and the next one is that of
the vault which was given the least work so far (`fair_queue`). Work is counted in requests and bytes (§R9-19).

Whose an operation is, its key says. Records of a vault count as its own once a device of it has been let in; before, and with
all other records of the relay, they share a queue with a larger share: strangers cannot make themselves many by naming vaults.
A vault's records come before its objects: else whoever has a stolen token could keep its owner from revoking it, by requests
that wait.

Not counted: waits, the time in which a client sends a large body or takes a large object, and what the relay does by itself,
a few operations at a time (health, counting, sweeping, peers).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from crystal_relay.errors import AlreadyExists, Busy, NotFound, RelayError, StoreUnavailable
from crystal_relay.limits import KIB, LIST_LIMIT_MAX
from crystal_relay.server.fair_queue import UNLIMITED, FairQueue
from crystal_relay.server.histogram import Histogram
from crystal_relay.server.settings import QUEUED_OF_VAULT_MAX, QUEUED_SECONDS_MAX, RelaySettings
from crystal_relay.store import (
    Body,
    DirectRequest,
    DirectStore,
    Head,
    ListingJson,
    Object,
    Page,
    Recalling,
    Store,
)

REQUEST_COST_BYTES = 64 * KIB
"""An operation costs as much as so many bytes, and its bytes."""
LISTED_KEY_BYTES = 128
"""A key of a list costs as much as so many bytes."""
CREDIT_BYTES = 4 * REQUEST_COST_BYTES
"""What a vault that was idle gets before those that are busy: a round of sync has a few operations."""
RESERVE_SHARE = 8
"""An eighth of the places is for vaults that were idle: what runs may last, and end at the same moment."""
SHARED = ""
"""The flow of what belongs to no vault that is known here."""
SHARED_WEIGHT = 4.0
"""Its share, in vaults. Credentials are looked up in it when a relay has just started."""
VAULTS_KNOWN_MAX = 65_536
_VAULTS = ("v/", "w/")
"""What keys of vaults begin with, before the vault's name."""
_VAULT_AT = 2

_Turn = asyncio.Future[None]


class Turns:
    """Turns at the store. One event loop. Each `enter` that returned needs a `leave`."""

    def __init__(self, *, at_once: int, of_vault_at_once: int, clock: Callable[[], float]) -> None:
        self._queue: FairQueue[_Turn] = FairQueue(
            at_once=at_once,
            of_flow_at_once=of_vault_at_once,
            # §R9-19
            reserve=at_once // RESERVE_SHARE if at_once < UNLIMITED else 0,
            credit=CREDIT_BYTES,
            weights={SHARED: SHARED_WEIGHT},
        )
        self._clock = clock
        self._waiting: dict[_Turn, tuple[str, float]] = {}
        """Each with its flow and when it has waited for too long (§R9-18), the oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self.queued = Histogram()
        """Seconds that operations waited for their turn."""

    @property
    def running(self) -> int:
        """Number of operations that have their turn."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """Number of operations that wait for it."""
        return self._queue.waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits. Then nobody owes anything either."""
        return not (self._queue.running or self._queue.waiting)

    def start(self, flow: str, cost: float) -> bool:
        """Take a turn at once if nothing is before it. False: `enter`."""
        if not self._queue.start(flow, cost):
            return False
        self.queued.observe(0.0)
        return True

    async def enter(self, flow: str, cost: float, *, ahead: bool = False) -> None:
        """Take a turn, or wait for one as `wait`."""
        if not self.start(flow, cost):
            await self.wait(flow, cost, ahead=ahead)

    async def wait(self, flow: str, cost: float, *, ahead: bool = False) -> None:
        """Wait for a turn, `ahead` before the flow's others. Raises Busy if too many of this flow wait, or for too long."""
        longest = QUEUED_OF_VAULT_MAX * (SHARED_WEIGHT if flow == SHARED else 1)
        if self._queue.waiting_of(flow, ahead=ahead) >= longest:  # §R9-18
            raise Busy("too many requests of this vault wait for the relay's store")
        loop = asyncio.get_running_loop()
        turn: _Turn = loop.create_future()
        self._queue.add(flow, cost, turn, ahead=ahead)
        began = self._clock()
        self._waiting[turn] = flow, loop.time() + QUEUED_SECONDS_MAX
        if self._timer is None:
            self._timer = loop.call_later(QUEUED_SECONDS_MAX, self._expire, loop)
        try:
            await turn
        except asyncio.CancelledError:
            expired = turn.done() and not turn.cancelled() and turn.exception() is not None
            if not expired and not self._queue.withdraw(flow, turn):
                self.leave(flow)  # it was given the turn at the moment of its cancellation
            raise
        finally:
            self._waiting.pop(turn, None)
            del turn  # else an error's traceback, this frame and the request hold each other
        self.queued.observe(self._clock() - began)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """All wait equally long, so one timer, for the oldest of them, is enough."""
        self._timer = None
        now = loop.time()
        for turn, (flow, until) in tuple(self._waiting.items()):
            if until > now:
                self._timer = loop.call_at(until, self._expire, loop)
                return
            if not turn.done() and self._queue.withdraw(flow, turn):
                turn.set_exception(Busy("the relay's store is too slow for all that this vault asks for"))

    def leave(self, flow: str, *, extra: float = 0.0) -> None:
        """End a turn, and give it to the next. `extra`: what it cost beyond what was said."""
        self._queue.end(flow, extra=extra)
        while (turn := self._queue.take()) is not None:
            if not turn.done():  # else its caller was cancelled, and leaves when it runs
                turn.set_result(None)


class _Operation:
    """One operation that has its turn: a context manager, which ends the turn and notes the seconds in the store."""

    __slots__ = ("_began", "_clock", "_ended", "_flow", "_seconds", "_turns", "extra")

    def __init__(
        self,
        turns: Turns,
        flow: str,
        seconds: Histogram,
        clock: Callable[[], float],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._turns = turns
        self._flow = flow
        self._seconds = seconds
        self._clock = clock
        self._ended = ended
        self._began = clock()
        self.extra = 0
        """Bytes that were not known at the beginning."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds.observe(self._clock() - self._began)
        self._ended(error)
        self._turns.leave(self._flow, extra=self.extra)


class FairStore:
    """A `Store`, and a `DirectStore` if that which it decorates is one."""

    def __init__(
        self, store: Store, settings: RelaySettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """At most `settings.store_concurrency` operations at once, and half as many with large bodies."""
        self._store = store
        self._direct = store if isinstance(store, DirectStore) else None
        self._memory = store if isinstance(store, Recalling) else None
        self._listing = store if isinstance(store, ListingJson) else None
        self._clock = clock
        at_once, of_vault = settings.store_concurrency, settings.vault_concurrency
        self.small = self._turns(at_once, of_vault)
        # §R9-18
        self.large = self._turns((at_once + 1) // 2, (of_vault + 1) // 2)
        self.seconds = {name: Histogram() for name in ("put", "get", "list", "delete", "head", "sign")}
        """Seconds in the store by operation, without those in the queue and those in which a body arrived."""
        self._known: OrderedDict[str, None] = OrderedDict()
        """Vaults of which a device was let in."""
        self.latest: tuple[float, bool] | None = None
        """When the latest operation of a request ended, and whether the store answered it."""

    # --- the port ---

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._put(self._store.put_new, key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._put(self._store.put, key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        with await self._turn("get", key) as operation:
            found = await self._store.get(key, start=start, length=length)
            operation.extra = found.length
            return found

    def recall(self, key: str, *, start: int = 0, length: int | None = None) -> Object | None:
        """As `Recalling`. None too if it has to wait for its turn."""
        found = self._memory.recall(key, start=start, length=length) if self._memory is not None else None
        if found is None:
            return None
        flow = self._flow_of(key)
        if self.small.is_idle:  # to take a turn and to end it would leave nothing behind
            self.small.queued.observe(0.0)
            self.seconds["get"].observe(0.0)
            self._ended(None)
            return found
        if not self.small.start(flow, REQUEST_COST_BYTES):
            return None
        with self._operation("get", flow) as operation:
            operation.extra = found.length
        return found

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        with await self._turn("list", prefix, LISTED_KEY_BYTES * limit):
            return await self._store.list(prefix, after=after, limit=limit)

    async def list_json(
        self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX, cut: int = 0
    ) -> tuple[bytes, bool] | None:
        """As `ListingJson`. None if the store is none."""
        if self._listing is None:
            return None
        with await self._turn("list", prefix, LISTED_KEY_BYTES * limit):
            return await self._listing.list_json(prefix, after=after, limit=limit, cut=cut)

    async def delete(self, key: str) -> None:
        with await self._turn("delete", key):
            await self._store.delete(key)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def aclose(self) -> None:
        await self._store.aclose()

    # --- requests that devices make themselves (see `DirectStore`) ---

    @property
    def direct_puts(self) -> bool:
        return self._direct is not None and self._direct.direct_puts

    @property
    def direct_gets(self) -> bool:
        return self._direct is not None and self._direct.direct_gets

    async def direct_put(self, key: str, *, size: int, md5: bytes) -> DirectRequest:
        with await self._turn("sign", key):
            return await self._signer().direct_put(key, size=size, md5=md5)

    async def direct_get(self, key: str) -> DirectRequest:
        with await self._turn("sign", key):
            return await self._signer().direct_get(key)

    async def head(self, key: str) -> Head:
        with await self._turn("head", key):
            return await self._signer().head(key)

    def announce(self, key: str) -> None:
        self._signer().announce(key)

    # --- inside ---

    async def _put(
        self, put: Callable[[str, bytes | Body], Awaitable[None]], key: str, body: bytes | Body
    ) -> None:
        if isinstance(body, Body):
            await self._put_arriving(put, key, body)
            return
        with await self._turn("put", key, len(body)):
            await put(key, body)

    async def _put_arriving(
        self, put: Callable[[str, bytes | Body], Awaitable[None]], key: str, body: Body
    ) -> None:
        """Take a turn when the whole body has arrived: a client that sends slowly holds up nobody."""
        flow = self._flow_of(key)
        entered: float | None = None

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal entered
            async for piece in body.open():
                yield piece
            if entered is None:
                await self.large.enter(flow, REQUEST_COST_BYTES + body.size)
                entered = self._clock()

        try:
            await put(key, Body(body.size, pieces, repeatable=body.repeatable))
            self._ended(None)
        except RelayError as error:
            self._ended(error)
            raise
        finally:
            if entered is not None:
                self.seconds["put"].observe(self._clock() - entered)
                self.large.leave(flow)

    async def _turn(self, operation: str, key: str, size: int = 0) -> "_Operation":
        flow, cost = self._flow_of(key), REQUEST_COST_BYTES + size
        if not self.small.start(flow, cost):
            # §R9-20
            await self.small.wait(flow, cost, ahead=flow != SHARED and key.startswith("r/"))
        return self._operation(operation, flow)

    def _operation(self, operation: str, flow: str) -> "_Operation":
        return _Operation(self.small, flow, self.seconds[operation], self._clock, self._ended)

    def _ended(self, error: BaseException | None) -> None:
        """Note whether the store answered. What a client did, or that it went away, tells nothing."""
        if error is None or isinstance(error, NotFound | AlreadyExists | StoreUnavailable):
            self.latest = (self._clock(), not isinstance(error, StoreUnavailable))

    def _flow_of(self, key: str) -> str:
        """The flow of a key or a prefix. A vault's objects are only asked for by those whom it has let in."""
        if key.startswith(_VAULTS):
            end = key.find("/", _VAULT_AT)
            flow = key if end < 0 else key[:end]
            if len(flow) > _VAULT_AT:
                if flow not in self._known:
                    self._known[flow] = None
                    if len(self._known) > VAULTS_KNOWN_MAX:
                        self._known.popitem(last=False)
                return flow
        # Such as r/vault/<vault>/…, r/condemned/<vault>/….
        root, _, inner, *_ = (*key.split("/", 3), "", "")
        flow = f"v/{inner}"
        return flow if root == "r" and flow in self._known else SHARED

    def _turns(self, at_once: int, of_vault: int) -> Turns:
        return Turns(at_once=at_once or UNLIMITED, of_vault_at_once=of_vault or UNLIMITED, clock=self._clock)

    def _signer(self) -> DirectStore:
        if self._direct is None:
            raise StoreUnavailable("this store takes no direct requests")
        return self._direct
