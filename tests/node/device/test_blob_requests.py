"""What flows ask about blobs and deletions, performed on each kind of store.

What is condemned is gone from the bucket after the relay's sweep, and nothing else is.
"""

import secrets
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crystal_mirror.requests import (
    Condemn,
    Flow,
    GetBlob,
    Has,
    Progress,
    PutBlob,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.runner import BadRelayReply, DeletionRefused, Runner
from crystal_relay.decorators import RetryingStore
from crystal_relay.errors import TooManyRequests
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.s3 import Conditions
from crystal_relay.server.condemned import PENDING_MAX
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.store import Store
from tests.support.relay_server import enrolled, joined, served
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import s3_store_on


@dataclass
class Asked:
    """A runner, its vault, and the store that in the end holds the objects."""

    runner: Runner
    keys: StoreKeys
    bucket: Store
    sweep: Callable[[], Awaitable[None]]

    async def ask(self, *requests: Request) -> list[Any]:
        def flow() -> Flow[list[Any]]:
            replies: list[Any] = []
            for request in requests:
                replies.append((yield request))  # noqa: PERF401  a generator expression cannot yield
            return replies

        return await self.runner.run(flow())

    async def held(self, prefix: str) -> list[str]:
        return [entry.key for entry in (await self.bucket.list(prefix)).entries]


class RequestsContract:
    """What each store has to do for flows."""

    @abstractmethod
    def opened(self, tmp_path: Path) -> AbstractAsyncContextManager[Asked]:
        """An empty vault."""

    @pytest_asyncio.fixture
    async def at(self, tmp_path: Path) -> AsyncIterator[Asked]:
        async with self.opened(tmp_path) as opened:
            yield opened

    async def test_a_blob_is_there_once_and_stays_as_it_was(self, at: Asked) -> None:
        big, empty, none = (at.keys.blob(secrets.token_bytes(32)) for _ in range(3))
        content = secrets.token_bytes(2_500_000)
        assert await at.ask(
            Has((big, empty, none)),
            GetBlob(big),
            PutBlob(big, content),
            PutBlob(big, b"other"),
            PutBlob(empty, b""),
            Has((none, big, empty)),
            GetBlob(big),
            GetBlob(empty),
            GetBlob(none),
            Has(()),
        ) == [[False, False, False], None, True, False, True, [False, True, True], content, b"", None, []]

    async def test_asking_whether_blobs_are_there_moves_no_content(self, at: Asked) -> None:
        names = [at.keys.blob(secrets.token_bytes(32)) for _ in range(20)]
        for name in names[::2]:
            await at.ask(PutBlob(name, bytes(300_000)))
        before = at.runner.traffic.copy()
        assert await at.ask(Has(tuple(names))) == [[True, False] * 10]
        cost = at.runner.traffic.since(before)
        assert (cost.requests, cost.bytes_up) == (20, 0)
        assert cost.bytes_down <= 10

    async def test_condemned_keys_and_ranges_are_gone_after_the_sweep_and_nothing_else(
        self, at: Asked
    ) -> None:
        blobs = sorted(at.keys.blob(secrets.token_bytes(32)) for _ in range(4))
        device, incarnation = secrets.token_bytes(16), secrets.token_bytes(8)
        stream = [at.keys.conversation(device, incarnation, n) for n in range(6)]
        mirror = [at.keys.mirror(1, n) for n in range(6)] + [at.keys.mirror(2, 0)]
        await at.ask(*(PutNew(key, b"x") for key in [*blobs, *mirror]))
        for key in stream:
            await at.bucket.put_new(key, b"another device's")
        assert await at.ask(
            Condemn(keys=(blobs[1], blobs[2])),
            Condemn(prefix=at.keys.stream_prefix(device, incarnation), through=stream[3]),
            Condemn(prefix=at.keys.epoch_prefix(1), through=mirror[5]),
            Condemn(prefix=at.keys.epoch_prefix(3), through=at.keys.mirror(3, 9)),
        ) == [None, None, None, None]
        await at.sweep()
        assert await at.held(at.keys.root) == [blobs[0], blobs[3], *stream[4:], mirror[6]]

    async def test_what_is_condemned_twice_or_never_was_is_no_error(self, at: Asked) -> None:
        blob, never = at.keys.blob(bytes(32)), at.keys.blob(b"n" * 32)
        await at.ask(PutBlob(blob, b"x"), Condemn(keys=(blob, never)), Condemn(keys=(blob, never)))
        await at.sweep()
        await at.ask(Condemn(keys=(blob, never)))
        await at.sweep()
        assert await at.ask(Has((blob,))) == [[False]]

    async def test_the_device_log_is_never_deleted(self, at: Asked) -> None:
        await at.ask(PutNew(at.keys.log(0), b"genesis"))
        for request in (
            Condemn(keys=(at.keys.log(0),)),
            Condemn(prefix=at.keys.log_prefix, through=at.keys.log(9)),
        ):
            with pytest.raises(DeletionRefused, match="device log"):
                await at.ask(request)
        await at.sweep()
        assert await at.held(at.keys.root) == [at.keys.log(0)]

    async def test_a_range_that_reaches_beyond_its_stream_is_refused(self, at: Asked) -> None:
        device, incarnation = secrets.token_bytes(16), secrets.token_bytes(8)
        await at.ask(PutNew(at.keys.mirror(1, 0), b"kept"))
        other = StoreKeys(secrets.token_bytes(16))
        for request in (
            Condemn(prefix=at.keys.root + "mirror", through=at.keys.mirror(1, 0)),
            Condemn(prefix=at.keys.stream_prefix(device, incarnation), through=at.keys.mirror(1, 0)),
            Condemn(prefix=at.keys.root, through=at.keys.mirror(1, 0)),
            Condemn(prefix="", through=other.mirror(1, 0)),
            Condemn(keys=tuple(at.keys.mirror(1, n) for n in range(501))),
            Condemn(),
        ):
            with pytest.raises(BadRelayReply):
                await at.ask(request)
        await at.sweep()
        assert await at.held(at.keys.root) == [at.keys.mirror(1, 0)]


async def _nothing() -> None:
    """A store that no relay serves deletes at once."""


class TestOverMemory(RequestsContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Asked]:
        store = MemoryStore()
        yield Asked(Runner(store, None), StoreKeys(secrets.token_bytes(16)), store, _nothing)
        await store.aclose()


class TestOverADirectory(RequestsContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Asked]:
        store = LocalStore(tmp_path / "store")
        yield Asked(Runner(RetryingStore(store), None), StoreKeys(secrets.token_bytes(16)), store, _nothing)
        await store.aclose()


@asynccontextmanager
async def through_a_relay(bucket: Store) -> AsyncGenerator[Asked]:
    async with served(bucket) as relay:
        member = await enrolled(relay.url)
        client = member.store(relay.url)

        async def sweep() -> None:
            swept = await Sweeper(bucket, clock=lambda: time.time() + 1).run()
            assert not swept.failures

        keys = StoreKeys(bytes.fromhex(member.vault))
        yield Asked(Runner(RetryingStore(client), None), keys, bucket, sweep)
        await client.aclose()


class TestThroughARelayOverMemory(RequestsContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Asked]:
        async with through_a_relay(MemoryStore()) as asked:
            yield asked


class TestThroughARelayOverADirectory(RequestsContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Asked]:
        store = LocalStore(tmp_path / "store")
        async with through_a_relay(store) as asked:
            yield asked
        await store.aclose()


class OverABucket(RequestsContract):
    """Blobs of more than 256 KiB go straight to the bucket and come straight from it, where that can be had."""

    server: S3Server
    conditions = Conditions.HONOURED

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Asked]:
        async with (
            s3_store_on(self.server.with_new_bucket(), self.conditions, prefix="relay/one") as store,
            through_a_relay(store) as asked,
        ):
            yield asked


class TestThroughARelayOverMoto(OverABucket):
    @pytest.fixture(autouse=True)
    def use(self, moto_server: S3Server) -> None:
        self.server = moto_server


class TestThroughARelayOverCeph(OverABucket):
    @pytest.fixture(autouse=True)
    def use(self, rgw_server: S3Server) -> None:
        self.server = rgw_server


class TestThroughARelayOverRclone(OverABucket):
    conditions = Conditions.NOT_HONOURED

    @pytest.fixture(autouse=True)
    def use(self, rclone_server: S3Server) -> None:
        self.server = rclone_server


async def test_a_condemnation_by_a_device_that_does_not_lead_is_refused_in_clear_words() -> None:
    async with served(MemoryStore()) as relay:
        owner = await enrolled(relay.url)
        other = await joined(relay.url, owner)
        client = other.store(relay.url)
        key = StoreKeys(bytes.fromhex(owner.vault)).blob(bytes(32))
        asked = Asked(Runner(RetryingStore(client), None), StoreKeys(b""), relay.store, _nothing)
        await asked.ask(PutBlob(key, b"kept"))
        with pytest.raises(DeletionRefused, match="scope `mirror`") as caught:
            await asked.ask(Condemn(keys=(key,)))
        assert "Core" in (caught.value.hint or "")
        assert caught.value.exit_code == 5
        await Sweeper(relay.store, clock=lambda: time.time() + 60).run()
        assert await asked.held(key) == [key]
        await client.aclose()


async def test_a_relay_with_too_many_deletions_under_way_is_asked_again_later() -> None:
    """Nobody sleeps through a sweeper's minutes with the home locked: the failure says so at once, and passes."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with served(MemoryStore()) as relay:
        member = await enrolled(relay.url)
        client = member.store(relay.url)
        keys = StoreKeys(bytes.fromhex(member.vault))
        asked = Asked(Runner(RetryingStore(client, sleep=sleep), None), keys, relay.store, _nothing)
        blobs = [keys.blob(bytes([n]) * 32) for n in range(PENDING_MAX + 1)]
        await asked.ask(*(Condemn(keys=(blob,)) for blob in blobs[:-1]))
        with pytest.raises(StoreFailure, match="under way") as caught:
            await asked.ask(Condemn(keys=(blobs[-1],)))
        assert caught.value.exit_code == 4
        assert slept == []
        await Sweeper(relay.store, clock=lambda: time.time() + 60).run()
        await asked.ask(Condemn(keys=(blobs[-1],)))
        await client.aclose()


async def test_a_short_wait_that_the_relay_asks_for_is_waited() -> None:
    class Busy(MemoryStore):
        told = 2

        async def delete(self, key: str) -> None:
            if self.told:
                self.told -= 1
                raise TooManyRequests("slower", retry_after=7)
            await super().delete(key)

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    runner = Runner(RetryingStore(Busy(), sleep=sleep), None)
    asked = Asked(runner, StoreKeys(bytes(16)), MemoryStore(), _nothing)
    await asked.ask(Condemn(keys=(asked.keys.blob(bytes(32)),)))
    assert slept == [7, 7]


async def test_progress_is_told_to_whoever_waits() -> None:
    told: list[tuple[str, int, int]] = []

    def tell(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    runner = Runner(MemoryStore(), None, on_progress=tell)
    asked = Asked(runner, StoreKeys(bytes(16)), MemoryStore(), _nothing)
    assert await asked.ask(Progress("snapshot", 1, 3), Progress("snapshot", 3, 3)) == [None, None]
    assert told == [("snapshot", 1, 3), ("snapshot", 3, 3)]
    assert runner.traffic.requests == 0
