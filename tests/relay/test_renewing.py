"""Connections that died in silence, as in sleep: whoever renews the store has their requests fail at once, and goes on."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.decorators import Pace, PacedStore, RetryingStore
from crystal_relay.errors import Closed, StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.store import renew
from tests.support.relay_server import Member, ServedRelay


class _Wire:
    """A way to the relay on which nothing more arrives once it is deaf; new connections are good after `hears_again`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 0)
        self.deaf = asyncio.Event()
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["_Wire"]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def hears_again(self) -> None:
        """For new connections; the old ones stay deaf."""
        self.deaf = asyncio.Event()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        deaf = self.deaf
        there, back = await asyncio.open_connection(*self._to)
        try:
            await asyncio.gather(_pump(reader, back, deaf), _pump(there, writer, deaf))
        finally:
            for stream in (writer, back):
                stream.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            if deaf.is_set():
                await asyncio.Event().wait()
            sink.write(data)
            await sink.drain()
        sink.close()


def _stacked(store: HttpStore) -> RetryingStore:
    """As a device has it."""
    return RetryingStore(PacedStore(store, up=Pace(0), down=Pace(0)))


async def test_a_wait_on_a_dead_connection_fails_at_once_when_the_store_is_renewed(
    relay: ServedRelay, lead: Member
) -> None:
    async with _Wire(relay.url).open() as wire:
        store = _stacked(lead.store(wire.url))
        token = await store.wait(lead.prefix, token=None, timeout=0)
        wire.deaf.set()
        waiting = asyncio.create_task(store.wait(lead.prefix, token=token, timeout=50))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await renew(store)
        with pytest.raises(StoreUnavailable):
            await waiting
        assert time.monotonic() - started < 2
        wire.hears_again()
        assert await store.wait(lead.prefix, token=None, timeout=0)
        await store.aclose()


async def test_a_put_under_way_is_repeated_on_a_new_connection(relay: ServedRelay, lead: Member) -> None:
    async with _Wire(relay.url).open() as wire:
        store = _stacked(lead.store(wire.url))
        await store.list(lead.prefix)
        wire.deaf.set()
        key = f"{lead.prefix}devlog/{7:020}"
        putting = asyncio.create_task(store.put_new(key, b"kept"))
        await asyncio.sleep(0.1)
        wire.hears_again()
        await renew(store)
        async with asyncio.timeout(5):
            await putting
        async with await store.get(key) as found:
            assert await found.read() == b"kept"
        await store.aclose()


async def test_a_closed_store_stays_closed_and_one_without_connections_has_nothing_to_renew(
    relay: ServedRelay, lead: Member
) -> None:
    store = lead.store(relay.url)
    await store.aclose()
    await renew(store)
    with pytest.raises(Closed):
        await store.list(lead.prefix)
    memory = MemoryStore()
    await renew(memory)
    await memory.aclose()
