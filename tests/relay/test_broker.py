"""Relay processes that hear of each other's writes through a broker, a real one: woken whatever happens to it."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from crystal_relay.errors import BadRequest, Unauthorized
from crystal_relay.limits import WAIT_TOKEN_CHARS_MAX, WAIT_TOKEN_ORIGINS_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.notify import OrderedNotifier
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.peers import PeerTimes
from crystal_relay.server.peers.broker import BrokerPeers, announce_by_broker, key_of, number_of
from crystal_relay.server.peers.broker_address import checked_broker, password_in, shown_broker
from crystal_relay.server.serving import Server, listen
from tests.support.processes import SharedStore, eventually, vault
from tests.support.redis_server import RedisServer, redis_server
from tests.support.relay_server import ENROLL_TOKEN, enrolled, joined

QUICK = PeerTimes(heartbeat=0.1, silent=1.0, retry_first=0.01, greeting=2.0, announcement=2.0, farewell=1.0)


@pytest.fixture
def broker() -> Generator[RedisServer]:
    with redis_server() as server:
        yield server


class Linked:
    """One process: its store and its link."""

    def __init__(self, shared: MemoryStore, url: str) -> None:
        self.notifier = OrderedNotifier()
        self.store = SharedStore(shared, self.notifier)
        self.link = BrokerPeers(self.store, self.notifier, url=url, times=QUICK)
        self.forgotten: list[str] = []
        self.link.routes(RelaySettings(), None, self.forgotten.append)  # type: ignore[arg-type]


@asynccontextmanager
async def linked(count: int, url: str) -> AsyncGenerator[list[Linked]]:
    shared = MemoryStore()
    async with AsyncExitStack() as stack:
        processes = [Linked(shared, url) for _ in range(count)]
        for each in processes:
            await stack.enter_async_context(each.link.running())
        await eventually(lambda: len({each.notifier.name for each in processes}) == 1)
        yield processes


async def woken_by_a_write(sleeper: Linked, writer: Linked) -> str:
    """Returns the token that the wait ended with."""
    prefix = f"v/{vault()}/"
    token = await settled(sleeper, prefix)
    waiting = asyncio.create_task(sleeper.store.wait(prefix, token=token, timeout=30))
    await eventually(lambda: sleeper.notifier.waiting == 1)
    await writer.store.put_new(f"{prefix}mirror/1", b"x")
    woken = await asyncio.wait_for(waiting, 10)
    assert woken != token
    return woken


async def settled(process: Linked, prefix: str) -> str:
    """A token at which a wait sleeps: everything that was written before has come."""
    token = await process.store.wait(prefix, token=None, timeout=0)
    while (after := await process.store.wait(prefix, token=token, timeout=0.2)) != token:
        token = after
    return token


async def test_a_wait_at_one_process_is_woken_by_a_write_at_another_and_at_its_own(
    broker: RedisServer,
) -> None:
    async with linked(2, broker.url) as (one, other):
        await woken_by_a_write(one, other)
        await woken_by_a_write(other, one)
        await woken_by_a_write(one, one)


async def test_more_processes_than_a_token_could_name_share_one_number(broker: RedisServer) -> None:
    count = WAIT_TOKEN_ORIGINS_MAX + 8
    async with linked(count, broker.url) as processes:
        for at in (1, count // 2, count - 1):
            token = await woken_by_a_write(processes[at], processes[0])
            assert len(token) <= WAIT_TOKEN_CHARS_MAX
            assert token.count("-") == 1
        await eventually(lambda: processes[0].link.status().reached == count - 1)


async def test_a_token_is_good_at_every_process_and_wakes_nobody_twice(broker: RedisServer) -> None:
    async with linked(3, broker.url) as processes:
        prefix = f"v/{vault()}/"
        await processes[0].store.put_new(f"{prefix}mirror/1", b"x")
        token = await settled(processes[1], prefix)
        for each in (*processes, *processes):
            assert await each.store.wait(prefix, token=token, timeout=0.1) == token


async def test_writes_to_other_vaults_wake_nobody(broker: RedisServer) -> None:
    async with linked(2, broker.url) as (one, other):
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        for number in range(20):
            await other.store.put_new(f"v/{vault()}/mirror/{number}", b"x")
        assert await one.store.wait(prefix, token=token, timeout=0.3) == token


async def test_a_token_of_a_process_that_read_further_is_no_reason_to_wake(broker: RedisServer) -> None:
    async with linked(1, broker.url) as (one,):
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        name, _, number = token.partition("-")
        ahead = f"{name}-{int(number) + 10**9}"
        assert await one.store.wait(prefix, token=ahead, timeout=0.1) == ahead


@pytest.mark.parametrize("token", ["nonsense", "0123456789abcdef-7", None])
async def test_a_token_of_another_log_is_answered_at_once(broker: RedisServer, token: str | None) -> None:
    async with linked(1, broker.url) as (one,):
        fresh = await asyncio.wait_for(one.store.wait("v/", token=token, timeout=30), 5)
        assert fresh.startswith(f"{one.notifier.name}-")


async def test_a_broker_that_was_killed_and_forgot_everything_loses_no_write(broker: RedisServer) -> None:
    async with linked(2, broker.url) as (one, other):
        before = await woken_by_a_write(one, other)
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        waiting = asyncio.create_task(one.store.wait(prefix, token=token, timeout=60))
        await eventually(lambda: one.notifier.waiting == 1)
        broker.kill()
        await eventually(lambda: other.link.status().reached == 0 and one.link.status().reached == 0)
        await other.store.put_new(f"{prefix}mirror/1", b"x")
        broker.start()
        assert await asyncio.wait_for(waiting, 20) != token
        await eventually(lambda: one.notifier.name == other.notifier.name != before[:16])
        await woken_by_a_write(one, other)


async def test_while_the_broker_is_away_a_process_wakes_its_own_waiters(broker: RedisServer) -> None:
    async with linked(1, broker.url) as (one,):
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        broker.kill()
        await eventually(lambda: one.link._away_since is not None)  # pyright: ignore[reportPrivateUsage]
        waiting = asyncio.create_task(one.store.wait(prefix, token=token, timeout=60))
        await eventually(lambda: one.notifier.waiting == 1)
        await one.store.put_new(f"{prefix}mirror/1", b"x")
        await asyncio.wait_for(waiting, 10)
        assert one.link.status().not_told > 0


async def believed(process: Linked, prefix: str) -> bool:
    """Whether the process says, asked twice, that nothing was written."""
    token = await process.store.wait(prefix, token=None, timeout=0)
    again = await process.store.wait(prefix, token=token, timeout=0)
    return token == again == await process.store.wait(prefix, token=again, timeout=0)


async def test_while_the_broker_is_away_no_process_says_that_nothing_was_written(broker: RedisServer) -> None:
    async with linked(2, broker.url) as (one, other):
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        assert await believed(one, prefix)
        broker.kill()
        await eventually(lambda: one.link.status().reached == 0)
        await other.store.put_new(f"{prefix}mirror/1", b"x")
        for _ in range(3):
            fresh = await one.store.wait(prefix, token=token, timeout=0)
            assert fresh != token
            assert len(fresh) <= WAIT_TOKEN_CHARS_MAX
            token = fresh
        assert await one.store.wait(prefix, token=token, timeout=0.2) == token  # a wait sleeps on
        broker.start()
        await eventually(lambda: one.notifier.name == other.notifier.name and one.notifier.in_touch())
        await settled(one, prefix)
        assert await believed(one, prefix)


async def test_nor_while_a_process_that_was_there_is_silent(broker: RedisServer) -> None:
    async with linked(1, broker.url) as (one,):
        client: Any = Redis.from_url(broker.url)
        key = key_of(bytes.fromhex((await (await one.store.get("r/secret/peers")).read()).decode()))
        seconds, _ = await client.time()
        await client.zadd(f"{key}:live", {"cut off": seconds - 10})
        await eventually(lambda: not one.notifier.in_touch())
        assert not await believed(one, f"v/{vault()}/")
        await client.zrem(f"{key}:live", "cut off")
        await eventually(one.notifier.in_touch)
        await client.aclose()


async def test_a_relay_starts_without_its_broker_and_finds_it_later() -> None:
    with redis_server() as server:
        server.kill()
        async with linked_apart(2, server.url) as (one, other):
            assert await asyncio.wait_for(one.store.wait("v/", token=None, timeout=0), 5)
            server.start()
            await eventually(lambda: one.notifier.name == other.notifier.name)
            await woken_by_a_write(one, other)


@asynccontextmanager
async def linked_apart(count: int, url: str) -> AsyncGenerator[list[Linked]]:
    shared = MemoryStore()
    async with AsyncExitStack() as stack:
        processes = [Linked(shared, url) for _ in range(count)]
        for each in processes:
            await stack.enter_async_context(each.link.running())
        yield processes


async def test_what_lagged_behind_the_log_s_end_counts_as_written(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_relay.server.peers.broker.ENTRIES_AT_ONCE", 50)
    async with linked(2, broker.url) as (one, other):
        prefix = f"v/{vault()}/"
        token = await settled(one, prefix)
        client: Any = Redis.from_url(broker.url)
        key = key_of(bytes.fromhex((await (await other.store.get("r/secret/peers")).read()).decode()))
        async with client.pipeline() as pipe:  # at once: nobody reads in between
            pipe.xadd(f"{key}:log", {"w": f"{prefix}mirror/"})
            for _ in range(200):
                pipe.xadd(f"{key}:log", {"w": "v/other/mirror/"}, maxlen=100, approximate=False)
            await pipe.execute()
        await client.aclose()
        assert await asyncio.wait_for(one.store.wait(prefix, token=token, timeout=30), 10) != token


@pytest.mark.parametrize("fields", [{"w": b"\xff\xfe"}, {"x": "y"}, {"w": "z" * 100_000}, {"f": ""}])
async def test_rubbish_in_the_log_harms_nobody(broker: RedisServer, fields: dict[str, Any]) -> None:
    async with linked(2, broker.url) as (one, other):
        client: Any = Redis.from_url(broker.url)
        key = key_of(bytes.fromhex((await (await other.store.get("r/secret/peers")).read()).decode()))
        await client.xadd(f"{key}:log", fields)
        await client.aclose()
        await woken_by_a_write(one, other)
        assert not one.forgotten


async def test_a_revocation_is_known_everywhere_when_it_is_answered(broker: RedisServer) -> None:
    async with linked(3, broker.url) as processes:
        name = vault()
        await processes[0].link.forget(name)
        assert all(each.forgotten == [name] for each in processes)
        assert await announce_by_broker(processes[0].store, broker.url, "another") == 0
        assert all(each.forgotten == [name, "another"] for each in processes)


async def test_a_revoked_token_is_refused_at_the_other_process(broker: RedisServer) -> None:
    shared = MemoryStore()
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for _ in range(2):
            notifier = OrderedNotifier()
            store = SharedStore(shared, notifier)
            listener = listen("127.0.0.1", 0)
            link = BrokerPeers(store, notifier, url=broker.url, times=QUICK)
            app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN), peers=link)
            server = Server(app, listener)
            await stack.enter_async_context(link.running())
            serving = asyncio.create_task(server.serve())
            stack.push_async_callback(asyncio.wait, [serving])
            stack.callback(server.stop)
            urls.append(server.url)
        lead = await enrolled(urls[0])
        member = await joined(urls[0], lead)
        away = member.store(urls[1])
        stack.push_async_callback(away.aclose)
        await away.list(lead.prefix)
        at_home = lead.store(urls[0])
        stack.push_async_callback(at_home.aclose)
        await at_home.revoke_token(device=member.device)
        with pytest.raises(Unauthorized):
            await away.list(lead.prefix)


async def test_a_revocation_does_not_wait_for_a_broker_that_hangs(broker: RedisServer) -> None:
    async with linked(1, broker.url) as (one,):
        broker.pause()
        try:
            await asyncio.wait_for(one.link.forget(vault()), QUICK.announcement + 8)
        finally:
            broker.resume()
        assert one.link.status().reached == 0


def test_positions_keep_their_order_as_numbers_of_18_digits() -> None:
    positions = ["0-0", "0-1", "1790000000000-0", "1790000000000-7", "1790000000001-0", "9999999999999-99999"]
    numbers = [number_of(each) for each in positions]
    assert numbers == sorted(set(numbers))
    assert len(str(numbers[-1])) == 18


@pytest.mark.parametrize(
    "url", ["", "http://host", "redis://", "redis://host:99999", "redis://[", "host:6379"]
)
def test_what_is_no_broker_is_refused_with_what_would_be(url: str) -> None:
    with pytest.raises(BadRequest) as raised:
        checked_broker(url)
    assert "redis://HOST:6379" in raised.value.hint


def test_a_broker_s_password_is_never_shown() -> None:
    word = secrets.token_hex(8)
    url = checked_broker(f"rediss://relay:{word}@broker.example:6380/2?ssl_cert_reqs=required")
    assert shown_broker(url) == "broker.example:6380"
    assert password_in(url) == word
    assert shown_broker("unix:///run/redis.sock") == "/run/redis.sock"
