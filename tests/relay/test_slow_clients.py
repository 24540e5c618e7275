"""Clients that are slow, go away in the middle, or do not listen: given up in time, and none stalls the others."""

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server import connection as connection_limits
from crystal_relay.server.settings import UNREAD_BYTES_MAX
from tests.support.hand_written import connected, get_head, put_head
from tests.support.raw_http import RawConnection
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

SETTINGS = RelaySettings(enroll_token=ENROLL_TOKEN)


async def stored(relay: ServedRelay, member: Member) -> list[str]:
    return [entry.key for entry in (await relay.store.list(member.prefix)).entries]


async def test_a_refused_body_is_skipped_and_the_connection_goes_on(relay: ServedRelay, lead: Member) -> None:
    async with connected(relay.url) as connection:
        for _ in range(3):
            await connection.send(put_head(lead, "devlog/A", 900_000) + bytes(900_000))
            assert (await connection.reply()).status == 400
        await connection.send(put_head(lead, "devlog/0", 4) + b"good")
        assert (await connection.reply()).status == 201


async def test_a_huge_refused_body_ends_the_connection(relay: ServedRelay, lead: Member) -> None:
    async with connected(relay.url) as connection:
        await connection.send(put_head(lead, "devlog/0", UNREAD_BYTES_MAX + 1))
        reply = await connection.reply()
        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert await connection.is_closed(5)


@pytest.mark.parametrize("size", [1000, 600_000])
async def test_a_body_that_stalls_is_given_up_in_time(tmp_path: Path, size: int) -> None:
    store = LocalStore(tmp_path / "relay")
    async with served(store, replace(SETTINGS, body_idle_seconds=0.3)) as relay:
        lead = await enrolled(relay.url)
        async with connected(relay.url) as connection:
            await connection.send(put_head(lead, "blob/0", size) + bytes(size // 2))
            began = time.monotonic()
            reply = await connection.reply()
            assert (reply.status, reply.json["error"]) == (408, "too-slow")
            assert time.monotonic() - began < 3
            assert await connection.is_closed(5)
        assert await stored(relay, lead) == []
    await store.aclose()
    assert [path for path in (tmp_path / "relay" / "files").rglob("*") if path.is_file()] == []


async def test_a_body_that_drips_is_given_up_in_time() -> None:
    store = MemoryStore()
    slow = replace(SETTINGS, body_idle_seconds=5, body_grace_seconds=0.5, body_bytes_per_second_min=100_000)
    async with served(store, slow) as relay:
        lead = await enrolled(relay.url)
        async with connected(relay.url) as connection:
            await connection.send(put_head(lead, "blob/0", 20_000))
            began = time.monotonic()
            answer = asyncio.create_task(connection.reply())
            while not answer.done():
                await connection.send(b"x")
                await asyncio.sleep(0.05)
            assert (await answer).status == 408
            assert time.monotonic() - began < 5
        assert await stored(relay, lead) == []
    await store.aclose()


@pytest.mark.parametrize("half", ["half-close", "reset"])
async def test_a_client_that_goes_in_the_middle_leaves_nothing(tmp_path: Path, half: str) -> None:
    store = LocalStore(tmp_path / "relay")
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        for size in (1000, 600_000):
            connection = await RawConnection.to(relay.url)
            await connection.send(put_head(lead, "blob/0", size) + bytes(size // 2))
            if half == "half-close":
                connection.half_close()
                assert await connection.is_closed(5)
            await connection.close()
        await asyncio.sleep(0.1)
        assert await stored(relay, lead) == []
        async with connected(relay.url) as connection:
            await connection.send(put_head(lead, "blob/0", 4) + b"good")
            assert (await connection.reply()).status == 201
    await store.aclose()
    assert [path for path in (tmp_path / "relay" / "files").rglob("*") if path.is_file()] == []


async def test_a_head_that_drips_is_cut_off(relay: ServedRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS_MAX", 0.4)
    for drip in (b"", b"GET /health HTTP/1.1\r\nX: " + b"x" * 40):
        async with connected(relay.url) as connection:
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                for at in range(40):
                    await connection.send(drip[at : at + 1])
                    await asyncio.sleep(0.05)
            assert await connection.is_closed(5)
            assert time.monotonic() - began < 5


async def test_an_answer_that_nobody_reads_is_given_up(
    relay: ServedRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "SEND_STALL_SECONDS_MAX", 0.5)
    lead = await enrolled(relay.url)
    await relay.store.put_new(f"{lead.prefix}blob/0", bytes(30 * 1024 * 1024))
    connections = relay.server._uvicorn.server_state.connections  # pyright: ignore[reportPrivateUsage]
    before = set(connections)
    async with connected(relay.url) as connection:
        await connection.send(get_head(lead, f"/v2/vaults/{lead.vault}/objects/blob/0"))
        async with asyncio.timeout(20):
            while not (mine := connections - before):  # noqa: ASYNC110  (a set has no event)
                await asyncio.sleep(0.01)
            while connections & mine:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await connection.reply()


async def test_slow_clients_do_not_slow_the_others(relay: ServedRelay, lead: Member) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(100):
            connection = await stack.enter_async_context(connected(relay.url))
            match number % 4:
                case 0:
                    await connection.send(b"GET /hea")
                case 1:
                    await connection.send(put_head(lead, f"blob/{number}", 500_000) + bytes(1000))
                case 2:
                    await connection.send(get_head(lead, f"/v2/vaults/{lead.vault}/wait?timeout=60"))
                case _:
                    pass
        store = lead.store(relay.url)
        began = time.monotonic()
        for number in range(50):
            await store.put_new(f"{lead.prefix}devlog/{number}", b"x")
        assert time.monotonic() - began < 5
        await store.aclose()
