"""Long polls through the server: woken, ended with the relay, and gone with their client."""

import asyncio
import errno
import time
from typing import Any

import httpx
import pytest

from crystal_relay.errors import StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.server.waits import Waits
from tests.support.hand_written import get_head
from tests.support.raw_http import RawConnection
from tests.support.relay_server import Member, ServedRelay, enrolled, joined, served


async def sleeping(relay: ServedRelay, count: int) -> None:
    """Return once exactly that many waits sleep."""
    waits = relay.app.state.relay.waits
    async with asyncio.timeout(5):
        while waits.sleeping != count:  # noqa: ASYNC110  (a count has no event)
            await asyncio.sleep(0.01)


async def test_a_drop_on_one_device_wakes_the_other(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    reader, writer = lead.store(relay.url), node.store(relay.url)
    token = await reader.wait(lead.prefix, token=None, timeout=0)
    for number in range(20):
        wait = asyncio.create_task(reader.wait(lead.prefix, token=token, timeout=30))
        await sleeping(relay, 1)
        await writer.put_new(f"{node.prefix}conversations/{node.device}.{'0' * 16}/{number}", b"x")
        woken = await asyncio.wait_for(wait, 5)
        assert woken != token
        token = woken
    await reader.aclose()
    await writer.aclose()


async def test_another_vaults_writes_do_not_wake(relay: ServedRelay, lead: Member) -> None:
    other = await enrolled(relay.url)
    store, other_store = lead.store(relay.url), other.store(relay.url)
    token = await store.wait(lead.prefix, token=None, timeout=0)
    wait = asyncio.create_task(store.wait(lead.prefix, token=token, timeout=0.6))
    await sleeping(relay, 1)
    for number in range(10):
        await other_store.put_new(f"{other.prefix}devlog/{number}", b"x")
    assert await wait == token
    assert await store.wait(lead.prefix, token=token, timeout=0.1) == token
    await store.aclose()
    await other_store.aclose()


async def test_a_wait_whose_client_has_gone_does_not_stay(relay: ServedRelay, lead: Member) -> None:
    store = lead.store(relay.url)
    token = await store.wait(lead.prefix, token=None, timeout=0)
    connections = [await RawConnection.to(relay.url) for _ in range(30)]
    for connection in connections:
        await connection.send(get_head(lead, f"/v2/vaults/{lead.vault}/wait?timeout=60&token={token}"))
    await sleeping(relay, 30)
    for connection in connections[:10]:
        connection.half_close()
    await sleeping(relay, 20)
    for connection in connections:
        await connection.close()
    await sleeping(relay, 0)
    cancelled = asyncio.create_task(store.wait(lead.prefix, token=token, timeout=60))
    await sleeping(relay, 1)
    cancelled.cancel()
    await sleeping(relay, 0)
    await store.aclose()


async def test_a_stopping_relay_ends_waits_at_once_and_they_go_on_with_their_token() -> None:
    store = MemoryStore()
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        token = await client.wait(lead.prefix, token=None, timeout=0)
        waits = [asyncio.create_task(client.wait(lead.prefix, token=token, timeout=60)) for _ in range(10)]
        await sleeping(relay, 10)
        began = time.monotonic()
        relay.server.stop()
        assert await asyncio.wait_for(asyncio.gather(*waits), 5) == [token] * 10
        await client.aclose()
    assert time.monotonic() - began < 5
    await store.aclose()


async def test_a_stopping_relay_finishes_what_it_accepted() -> None:
    store = MemoryStore()
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        writes = [
            asyncio.create_task(client.put_new(f"{lead.prefix}blob/{number}", bytes(2_000_000)))
            for number in range(8)
        ]
        # Told to stop in the middle: one of them is done, the others are on their way.
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        relay.server.stop()
        results = await asyncio.gather(*writes, return_exceptions=True)
        await client.aclose()
    stored = {entry.key for entry in (await store.list(lead.prefix)).entries}
    for number, result in enumerate(results):
        key = f"{lead.prefix}blob/{number}"
        assert result is None or isinstance(result, StoreUnavailable)
        assert result is not None or key in stored
    assert any(result is None for result in results)
    await store.aclose()


async def test_a_token_of_before_a_restart_wakes_at_once() -> None:
    """The new process does not know what was written in between, so it says that something may have been."""
    store = MemoryStore()
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        old = await client.wait(lead.prefix, token=None, timeout=0)
        await client.aclose()
    objects = {
        entry.key: await (await store.get(entry.key)).read() for entry in (await store.list("")).entries
    }
    restarted = MemoryStore()
    for key, data in objects.items():
        await restarted.put_new(key, data)
    async with served(restarted) as relay:
        client = lead.store(relay.url)
        assert await asyncio.wait_for(client.wait(lead.prefix, token=old, timeout=30), 5) != old
        await client.aclose()
    await store.aclose()
    await restarted.aclose()


async def test_many_waiters_are_woken_by_one_drop(relay: ServedRelay, lead: Member) -> None:
    devices = [lead, *[await joined(relay.url, lead) for _ in range(5)]]
    count = 50 * len(devices)
    store = lead.store(relay.url)
    token = await store.wait(lead.prefix, token=None, timeout=0)
    connections = [await RawConnection.to(relay.url) for _ in range(count)]
    for number, connection in enumerate(connections):
        device = devices[number % len(devices)]
        await connection.send(get_head(device, f"/v2/vaults/{lead.vault}/wait?timeout=60&token={token}"))
    await sleeping(relay, count)
    await store.put_new(f"{lead.prefix}devlog/0", b"x")
    replies = await asyncio.gather(*(connection.reply() for connection in connections))
    assert {reply.status for reply in replies} == {200}
    assert token not in {reply.json["token"] for reply in replies}
    for connection in connections:
        await connection.close()
    await store.aclose()


async def test_behind_another_server_a_wait_ends_without_a_trace(relay: ServedRelay, lead: Member) -> None:
    store = lead.store(relay.url)
    token = await store.wait(lead.prefix, token=None, timeout=0)
    await store.aclose()
    loop, failed = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    path = f"/v2/vaults/{lead.vault}/wait?timeout=0.1&token={token}"
    transport = httpx.ASGITransport(relay.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://relay") as http:
        answer = await http.get(path, headers={"Authorization": f"Bearer {lead.token}"})
    await asyncio.sleep(0.05)
    assert (answer.json(), failed) == ({"token": token}, [])
    assert relay.app.state.relay.waits.sleeping == 0


async def test_a_stores_own_timeout_is_not_taken_for_a_client_that_left() -> None:
    async def stays() -> Any:
        await asyncio.Event().wait()

    async def failing() -> str:
        raise OSError(errno.ETIMEDOUT, "the disk does not answer")

    with pytest.raises(TimeoutError, match="does not answer"):
        await Waits().race(failing(), stays, {})
