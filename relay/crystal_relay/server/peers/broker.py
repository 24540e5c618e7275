"""Relay processes over one store that hear of each other's writes through a server of Redis' protocol (Redis, Valkey).

    write    group ──► XADD <key>:log ──► XREAD at every process ──► those who wait
    revoke   vault ──► XADD, as `forget` ──► each process forgets it, and notes how far it has read in <key>:read
    5 s      each process puts itself into <key>:live; those silent for 15 s are not waited for

One log gives all writes one order, so that a token is one number for any number of processes; they need not reach each other.
Nothing that matters is kept in the broker: one that was emptied has a log of another name, and all waits are answered once.
While it is away, a process ends its own waits after a write of its own, and devices elsewhere find that in their next round:
nobody is told then that nothing was written, nor while a process that may write is cut off from the broker.
The broker sees which vault and channel is written to, and when. Who can write to it can wake waiters for nothing, and delay
what the other processes hear: of writes until devices' next round, of revocations for up to five minutes.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from starlette.routing import Route

from crystal_relay.errors import Unusable
from crystal_relay.notify import EVERYTHING, OrderedNotifier
from crystal_relay.server.peers.broker_address import checked_broker, shown_broker
from crystal_relay.server.peers.receiver import Forget
from crystal_relay.server.peers.records import ProcessRecords
from crystal_relay.server.peers.status import PeersStatus
from crystal_relay.server.peers.times import PeerTimes
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import Store

ENTRIES_MAX = 65_536
"""Entries that the log keeps, about: a process that lagged behind by more counts all as written."""
ENTRIES_AT_ONCE = 1_000
GROUPS_OF_ENTRY_MAX = 256
GROUP_CHARS_MAX = 256
_OF_MILLISECOND = 100_000
_BLOCK_MS = 1_000
_CONFIRMED_PAUSE = 0.01
_CALL_SECONDS_MAX = 5.0

Broker = Any
"""``redis.asyncio.Redis``, whose annotations unite the answers of all its protocols and options."""
_log = logging.getLogger("crystal_relay.peers")


class BrokerPeers:
    """One for each process over a shared store. The notifier is the one that the store's `wait` asks."""

    def __init__(
        self,
        store: Store,
        notifier: OrderedNotifier,
        *,
        url: str,
        times: PeerTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url`: the broker's. Raises Unusable if the package `redis` cannot open it."""
        self._records = ProcessRecords(store)
        self._notifier = notifier
        self._place = shown_broker(url)
        self._times = times or PeerTimes()
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._key = ""
        self._broker = connected(url)
        self._position = "0-0"
        self._groups: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._forget: Forget | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._away_since: float | None = None
        self._ended_at = float("-inf")
        self._returning = asyncio.Lock()
        self._live = 0
        self._silent: int | None = None
        """Processes that were heard of, but not lately; None before anything is known."""
        self._stopping = False
        self._told = self._not_told = self._heard = self._missed = 0

    # --- for the relay ---

    def routes(self, settings: RelaySettings, rates: Rates, forget: Forget) -> list[Route]:
        """None: no other process calls this one. `forget` is given vaults whose credentials may have changed elsewhere."""
        self._forget = forget
        return []

    async def forget(self, vault: str) -> None:
        """Tell all that the vault's credentials changed. Returns when those that live have read it, or after 2 s."""
        try:
            async with asyncio.timeout(self._times.announcement):
                await announced(self._broker, self._key, vault, silent=self._times.silent)
        except (TimeoutError, RedisError, OSError) as error:
            self._failed(error)

    def status(self) -> PeersStatus:
        """For the metrics."""
        others = max(self._live - 1, 0)
        return PeersStatus(
            known=others,
            reached=others if self._away_since is None else 0,
            told=self._told,
            not_told=self._not_told,
            heard=self._heard,
            missed=self._missed,
        )

    # --- start and stop ---

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start, and stop at the end. A broker that is away is no reason not to serve. Raises what the store raises."""
        self._key = key_of(await self._records.secret())
        self._notifier.on_written = self._written
        self._notifier.in_touch = self._in_touch
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.greeting):
                await self._attempt(self._enter)
        self._start(self._reads(), "broker reads")
        self._start(self._writes(), "broker writes")
        self._start(self._beats(), "broker heartbeats")
        try:
            yield
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._notifier.on_written = None
        self._stopping = True  # redis makes a cancellation a timeout where the two meet
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(self._times.farewell):
                await self._send()
                await self._broker.zrem(f"{self._key}:live", self._name)
                await self._broker.hdel(f"{self._key}:read", self._name)
        await self._broker.aclose()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s ended: restart this process", task.get_name(), exc_info=task.exception())

    # --- inside ---

    def _written(self, group: str, _number: int) -> None:
        if self._away_since is not None:
            self._not_told += 1
            now = self._clock()
            if now - self._ended_at >= 1.0:  # nobody is told, so let those who wait here look
                self._ended_at = now
                self._notifier.wake_all()
        self._groups[group] = None
        if len(self._groups) > GROUPS_OF_ENTRY_MAX * 16:
            self._groups = {EVERYTHING: None}
        self._wanted.set()

    def _in_touch(self) -> bool:
        # A process that is cut off may still write, as one that was killed may have just before.
        return self._away_since is None and self._silent == 0

    async def _writes(self) -> None:
        while not self._stopping:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._attempt(self._send):
                # What was written meanwhile is told as "anything may have been".
                self._groups = {EVERYTHING: None}
                await asyncio.sleep(self._times.retry_first * 10)
                self._wanted.set()

    async def _send(self) -> None:
        while self._groups:
            groups = [*self._groups]
            self._groups = dict.fromkeys(
                groups[GROUPS_OF_ENTRY_MAX:]
            )  # before the wait, in which more may be written
            await _add(self._broker, self._key, "w", " ".join(groups[:GROUPS_OF_ENTRY_MAX]))
            self._told += 1

    async def _reads(self) -> None:
        while not self._stopping:
            if not await self._attempt(self._read):
                await asyncio.sleep(self._times.retry_first * 10)

    async def _read(self) -> None:
        found = await self._broker.xread({f"{self._key}:log": self._position}, ENTRIES_AT_ONCE, _BLOCK_MS)
        if not found:
            if await self._is_another():
                await self._enter()
            return
        entries = found[0][1]
        if len(entries) == ENTRIES_AT_ONCE and await self._is_trimmed():
            await self._enter()
            return
        forgotten = False
        for number, fields in entries:
            self._position = number.decode("ascii")
            groups = [each for each in _text(fields, b"w") if len(each) <= GROUP_CHARS_MAX]
            vaults = [each for each in _text(fields, b"f") if each and len(each) <= GROUP_CHARS_MAX]
            self._heard += 1
            self._notifier.read(number_of(self._position), groups)
            if self._forget is not None:
                for vault in vaults:
                    self._forget(vault)
            forgotten = forgotten or bool(vaults)
        if forgotten:
            await self._broker.hset(f"{self._key}:read", self._name, self._position)

    async def _enter(self) -> None:
        """Find the log, and follow it from its end."""
        name = secrets.token_hex(8)
        if not await self._broker.set(f"{self._key}:name", name, nx=True):
            name = await self._log_name()
        self._position = await self._last()
        self._missed += 1
        self._notifier.follow(name, number_of(self._position))
        await self._beat()

    async def _is_another(self) -> bool:
        """Whether the log that is followed is gone, or its entries behind what was read here."""
        return await self._log_name() != self._notifier.name

    async def _is_trimmed(self) -> bool:
        """Whether entries behind what was read here are gone already."""
        entries = await self._broker.xrange(f"{self._key}:log", count=1)
        return not entries or number_of(entries[0][0].decode("ascii")) > number_of(self._position)

    async def _log_name(self) -> str:
        name = await self._broker.get(f"{self._key}:name")
        return "" if name is None else name.decode("ascii", "replace")

    async def _last(self) -> str:
        entries = await self._broker.xrevrange(f"{self._key}:log", count=1)
        return entries[0][0].decode("ascii") if entries else "0-0"

    async def _beats(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._times.heartbeat)
            await self._attempt(self._round)

    async def _round(self) -> None:
        if await self._is_another():
            await self._enter()
        await self._beat()

    async def _beat(self) -> None:
        now = await _now(self._broker)
        live = f"{self._key}:live"
        await self._broker.zadd(live, {self._name: now})
        for name in await self._broker.zrangebyscore(live, "-inf", now - self._times.give_up):
            await self._broker.zrem(live, name)
            await self._broker.hdel(f"{self._key}:read", name)
        self._live = await self._broker.zcount(live, now - self._times.silent, "+inf")
        self._silent = await self._broker.zcount(live, "-inf", f"({now - self._times.silent}")

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do it; False if the broker is away. Back again, the log is looked at anew: something may be missing in it."""
        try:
            async with self._returning:
                await self._return()
            await work()
        except (RedisError, OSError, TimeoutError) as error:
            if not self._stopping:
                self._failed(error)
            return False
        return True

    async def _return(self) -> None:
        if self._away_since is None:
            return
        await self._enter()
        _log.warning("the broker at %s is back after %.0f s", self._place, self._clock() - self._away_since)
        self._away_since = None
        self._groups = {EVERYTHING: None}
        self._wanted.set()

    def _failed(self, error: Exception) -> None:
        if self._away_since is None:
            self._away_since = self._clock()
            _log.error(
                "the broker at %s fails (%s): devices at other processes hear of writes in their next round",
                self._place,
                type(error).__name__,
            )


def connected(url: str) -> Broker:
    """A client of the broker, which connects when it is asked. Raises Unusable."""
    try:
        return Redis.from_url(
            url,
            socket_timeout=_CALL_SECONDS_MAX,
            socket_connect_timeout=_CALL_SECONDS_MAX,
            retry=Retry(NoBackoff(), 1),  # once, on a new connection; the loops here wait by themselves
        )
    except ValueError:
        raise Unusable("the broker's address cannot be used", hint="Give redis://HOST:6379.") from None


def key_of(secret: bytes) -> str:
    """Where a store's processes meet in a broker that others may use as well."""
    return f"crystal-relay:{sha256(b'crystal/relay/broker' + secret).hexdigest()[:32]}"


def number_of(position: str) -> int:
    """An entry's place in the log, milliseconds and a count within them, as one number of 18 digits at most."""
    moment, _, count = position.partition("-")
    return int(moment) * _OF_MILLISECOND + min(int(count), _OF_MILLISECOND - 1)


async def announce_by_broker(store: Store, url: str, vault: str) -> int:
    """Tell all relay processes that an operator's command changed the vault's credentials, or its state. Returns 1 if not all
    confirmed it: they find out by themselves within five minutes. Raises BadRequest, Unusable."""
    secret = await ProcessRecords(store).known_secret()
    if secret is None:
        return 0
    broker, times = connected(checked_broker(url)), PeerTimes()
    try:
        async with asyncio.timeout(times.announcement):
            await announced(broker, key_of(secret), vault, silent=times.silent)
    except (TimeoutError, RedisError, OSError):
        return 1
    finally:
        await broker.aclose()
    return 0


async def announced(broker: Broker, key: str, vault: str, *, silent: float) -> int:
    """Have all living processes forget the vault's credentials. Returns their number when all have read it."""
    place = number_of(await _add(broker, key, "f", vault))
    while True:
        live = await broker.zrangebyscore(f"{key}:live", await _now(broker) - silent, "+inf")
        read = await broker.hgetall(f"{key}:read")
        if all(name in read and number_of(read[name].decode("ascii")) >= place for name in live):
            return len(live)
        await asyncio.sleep(_CONFIRMED_PAUSE)


async def _add(broker: Broker, key: str, field: str, value: str) -> str:
    number = await broker.xadd(f"{key}:log", {field: value}, maxlen=ENTRIES_MAX, approximate=True)
    return str(number.decode("ascii"))


async def _now(broker: Broker) -> float:
    """By the broker's clock: the processes' own may differ."""
    seconds, micros = await broker.time()
    return float(seconds) + float(micros) / 1e6


def _text(fields: dict[bytes, bytes], name: bytes) -> list[str]:
    found = fields.get(name)
    return [] if found is None else found.decode("utf-8", "replace").split(" ")[:GROUPS_OF_ENTRY_MAX]
