"""Relay processes over one store: how soon a wait at one hears of a write at another, by each other or by a broker.

All processes run in one, so the time is that of messages and Python, without a store.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from bench.harness import Row, percentile
from crystal_relay.memory import MemoryStore
from crystal_relay.notify import OrderedNotifier
from crystal_relay.server import RelaySettings
from crystal_relay.server.peers import PeerTimes
from crystal_relay.server.peers.broker import BrokerPeers
from tests.support.processes import SharedStore, process, vault
from tests.support.redis_server import redis_server

COUNTS = (2, 16, 40)
MESH_MAX = 16
PAUSE_SECONDS = 0.01


def run(quick: bool) -> list[Row]:
    """Rows for the result table. The mesh is measured up to 16 processes, and can have 32."""
    wakes = 30 if quick else 300
    rows: list[Row] = []
    with redis_server() as server:
        for count in COUNTS:
            by_broker = asyncio.run(_by_broker(server.url, count, wakes))
            by_mesh = asyncio.run(_by_mesh(count, wakes)) if count <= MESH_MAX else None
            rows.extend(
                Row(
                    name=f"a wait hears of a write at another of {count} processes, by a broker, p{percent}",
                    value=percentile(by_broker, percent) * 1000,
                    unit="ms",
                    baseline="" if by_mesh is None else "told by each other",
                    baseline_value=None if by_mesh is None else percentile(by_mesh, percent) * 1000,
                )
                for percent in (50, 99)
            )
    return rows


async def _by_mesh(count: int, wakes: int) -> list[float]:
    shared = MemoryStore()
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(process(shared, times=PeerTimes())) for _ in range(count)]
        return await _wakes([each.store for each in found], wakes)


async def _by_broker(url: str, count: int, wakes: int) -> list[float]:
    shared = MemoryStore()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(_linked(shared, url)) for _ in range(count)]
        return await _wakes(stores, wakes)


@asynccontextmanager
async def _linked(shared: MemoryStore, url: str) -> AsyncGenerator[SharedStore]:
    notifier = OrderedNotifier()
    store = SharedStore(shared, notifier)
    link = BrokerPeers(store, notifier, url=url)
    link.routes(RelaySettings(), None, lambda _vault: None)  # type: ignore[arg-type]
    async with link.running():
        yield store


async def _wakes(stores: list[SharedStore], count: int) -> list[float]:
    """Seconds from a write at the first process until a wait at each of the others in turn has ended."""
    prefix = f"v/{vault()}/"
    seconds: list[float] = []
    for number in range(count):
        sleeper = stores[1 + number % (len(stores) - 1)]
        token = await sleeper.wait(prefix, token=None, timeout=0)
        while (after := await sleeper.wait(prefix, token=token, timeout=PAUSE_SECONDS)) != token:
            token = after
        waiting = asyncio.create_task(sleeper.wait(prefix, token=token, timeout=30))
        await asyncio.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        await stores[0].put_new(f"{prefix}mirror/{number}", b"x")
        await waiting
        seconds.append(time.perf_counter() - began)
    return seconds
