"""Held waits: one response for many minutes, with a blank now and then, which ends as soon as any other wait."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.decorators import Pace, PacedStore, RetryingStore
from crystal_relay.errors import BadReply, StoreUnavailable, Unauthorized
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, waits
from crystal_relay.store import hold
from tests.support.hand_written import connected, get_head
from tests.support.raw_http import RawConnection, RawReply
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served

_BEAT_SECONDS = 0.05
_SOON = 5.0
_BLANK = b"1\r\n \r\n"


@pytest.fixture(autouse=True)
def soon_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "BEAT_SECONDS", _BEAT_SECONDS)


async def _token(relay: ServedRelay, member: Member) -> str:
    store = member.store(relay.url)
    try:
        return await store.wait(member.prefix, token=None, timeout=0)
    finally:
        await store.aclose()


async def _write(relay: ServedRelay, member: Member, slot: str) -> None:
    store = member.store(relay.url)
    await store.put_new(f"{member.prefix}devlog/{slot}", b"x")
    await store.aclose()


def _asked(member: Member, token: str, *, seconds: str = "wait=60", timeout: str = "60") -> bytes:
    path = f"/v2/vaults/{member.vault}/wait?timeout={timeout}&token={token}"
    return get_head(member, path, f"Prefer: {seconds}")


async def _begun(connection: RawConnection) -> RawReply:
    """The head of a held answer, once it has come."""
    reply = await connection.reply(head_only=True)
    assert reply.headers["transfer-encoding"] == "chunked"
    return reply


async def _rest(connection: RawConnection) -> bytes:
    """What follows it, as it is sent."""
    async with asyncio.timeout(_SOON):
        return await connection.until(b"0\r\n\r\n")


def _body(chunks: bytes) -> bytes:
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body


async def test_a_held_wait_is_one_response_with_blanks_and_then_the_token(
    relay: ServedRelay, lead: Member
) -> None:
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        await connection.send(_asked(lead, token))
        reply = await _begun(connection)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers["x-accel-buffering"] == "no"
        await asyncio.sleep(_BEAT_SECONDS * 4)
        assert relay.app.state.relay.waits.sleeping == 1
        await _write(relay, lead, "0")
        rest = await _rest(connection)
        assert rest.startswith(_BLANK * 3)
        assert json.loads(_body(rest))["token"] != token
        # The connection carries the next request.
        await connection.send(get_head(lead, f"/v2/vaults/{lead.vault}/wait?timeout=0"))
        assert (await connection.reply()).status == 200


async def test_what_is_written_before_the_first_blank_is_answered_like_any_other_wait(
    relay: ServedRelay, lead: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "BEAT_SECONDS", 30.0)
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        await connection.send(_asked(lead, token))
        await asyncio.sleep(0.1)
        await _write(relay, lead, "0")
        reply = await connection.reply()
        assert "transfer-encoding" not in reply.headers
        assert reply.json["token"] != token


async def test_it_ends_at_its_time_with_the_same_token(relay: ServedRelay, lead: Member) -> None:
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        await connection.send(_asked(lead, token, seconds="wait=1"))
        await _begun(connection)
        assert json.loads(_body(await _rest(connection))) == {"token": token}


@pytest.mark.parametrize(
    "seconds", ["wait=0", "wait=", "wait=-1", "wait=99999", "wait=9, x", "respond-async"]
)
async def test_a_preference_that_is_not_understood_is_no_error(
    relay: ServedRelay, lead: Member, seconds: str
) -> None:
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        await connection.send(_asked(lead, token, seconds=seconds, timeout="0.2"))
        assert (await connection.reply()).json == {"token": token}


async def test_a_preference_that_came_twice_is_none(relay: ServedRelay, lead: Member) -> None:
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        path = f"/v2/vaults/{lead.vault}/wait?timeout=0.2&token={token}"
        await connection.send(get_head(lead, path, "Prefer: wait=60\r\nPrefer: wait=50"))
        assert (await connection.reply()).json == {"token": token}


async def test_only_http_1_1_and_only_a_get_with_a_token_and_a_time_is_held(
    relay: ServedRelay, lead: Member
) -> None:
    token = await _token(relay, lead)
    held = _asked(lead, token, timeout="0.2")
    for asked in (
        held.replace(b"HTTP/1.1", b"HTTP/1.0"),
        held.replace(b"GET", b"HEAD"),
        _asked(lead, token, timeout="0"),
        _asked(lead, "unknown", timeout="60"),
    ):
        async with connected(relay.url) as connection:
            await connection.send(asked)
            reply = await connection.reply(head_only=asked.startswith(b"HEAD"))
            assert (reply.status, "transfer-encoding" in reply.headers) == (200, False)


async def test_a_revoked_token_ends_its_held_wait(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    token = await _token(relay, node)
    store, manager = node.store(relay.url), lead.store(relay.url)
    heard = asyncio.Event()
    wait = asyncio.create_task(store.hold(node.prefix, token=token, timeout=60, heard=heard.set))
    await asyncio.wait_for(heard.wait(), _SOON)
    await manager.revoke_token(device=node.device)
    assert await asyncio.wait_for(wait, _SOON) == token
    with pytest.raises(Unauthorized):
        await store.hold(node.prefix, token=token, timeout=60, heard=heard.set)
    await store.aclose()
    await manager.aclose()


class _OneOfSeveral(MemoryStore):
    """The store of a process that hears from others, or does not."""

    def lose_the_others(self) -> None:
        self._notifier.in_touch = lambda: False


async def test_a_process_that_does_not_hear_of_all_writes_holds_no_wait() -> None:
    memory = _OneOfSeveral()
    async with served(memory) as relay:
        lead = await enrolled(relay.url)
        await _held_only_while_in_touch(relay, lead, memory)
    await memory.aclose()


async def _held_only_while_in_touch(relay: ServedRelay, lead: Member, memory: _OneOfSeveral) -> None:
    token = await _token(relay, lead)
    store = lead.store(relay.url)
    heard = asyncio.Event()
    wait = asyncio.create_task(store.hold(lead.prefix, token=token, timeout=60, heard=heard.set))
    await asyncio.wait_for(heard.wait(), _SOON)
    memory.lose_the_others()
    assert await asyncio.wait_for(wait, _SOON) == token
    heard.clear()
    assert (
        await asyncio.wait_for(store.hold(lead.prefix, token=token, timeout=60, heard=heard.set), _SOON)
        == token
    )
    assert not heard.is_set()
    await store.aclose()


async def test_a_stopping_relay_ends_held_waits_at_once() -> None:
    store = MemoryStore()
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        token = await _token(relay, lead)
        client = lead.store(relay.url)
        heard = [asyncio.Event() for _ in range(10)]
        held = [
            asyncio.create_task(client.hold(lead.prefix, token=token, timeout=60, heard=each.set))
            for each in heard
        ]
        for each in heard:
            await asyncio.wait_for(each.wait(), _SOON)
        relay.server.stop()
        assert await asyncio.wait_for(asyncio.gather(*held), _SOON) == [token] * 10
        await client.aclose()
    await store.aclose()


async def test_a_held_wait_whose_client_has_gone_does_not_stay(relay: ServedRelay, lead: Member) -> None:
    token = await _token(relay, lead)
    connection = await RawConnection.to(relay.url)
    await connection.send(_asked(lead, token))
    await _begun(connection)
    await connection.close()
    async with asyncio.timeout(_SOON):
        while relay.app.state.relay.waits._held:  # noqa: ASYNC110  (a count has no event)
            await asyncio.sleep(0.01)


async def test_held_waits_count_towards_the_limit_of_their_device(relay: ServedRelay, lead: Member) -> None:
    token = await _token(relay, lead)
    connections = [await RawConnection.to(relay.url) for _ in range(waits.WAITS_OF_DEVICE_MAX)]
    for connection in connections:
        await connection.send(_asked(lead, token))
    for connection in connections:
        await _begun(connection)
    async with connected(relay.url) as one_more:
        await one_more.send(_asked(lead, token))
        assert (await one_more.reply()).status == 429
    for connection in connections:
        await connection.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has the option")
async def test_a_client_that_acknowledges_nothing_is_given_up_within_a_minute(
    relay: ServedRelay, lead: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_on: list[socket.socket] = []
    end = waits.end_if_unacknowledged

    def noted(connection: Any) -> None:
        end(connection)
        set_on.append(connection.transport.get_extra_info("socket"))

    monkeypatch.setattr(waits, "end_if_unacknowledged", noted)
    token = await _token(relay, lead)
    async with connected(relay.url) as connection:
        await connection.send(_asked(lead, token))
        await _begun(connection)
        milliseconds = set_on[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert milliseconds == waits.UNACKNOWLEDGED_MS_MAX


# --- the client ---

_MEMBER = Member()


@asynccontextmanager
async def _answering(*pieces: bytes, then_silent: bool = True) -> AsyncGenerator[HttpStore]:
    """A client of something that answers every request with these pieces, and then says nothing more."""

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(_BEAT_SECONDS)
            if then_silent:
                await reader.read()
        except ConnectionError:
            return
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timeouts = Timeouts(silence=_BEAT_SECONDS * 4)
    store = _MEMBER.store(f"http://127.0.0.1:{port}", timeouts=timeouts)
    try:
        yield store
    finally:
        await store.aclose()
        await asyncio.wait_for(ended.wait(), _SOON)
        server.close()


_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def _hold(store: HttpStore, heard: list[bool], *, timeout: float = 60) -> str:
    async with asyncio.timeout(_SOON):
        return await store.hold(
            _MEMBER.prefix, token="a-1", timeout=timeout, heard=lambda: heard.append(True)
        )


async def test_the_client_hears_each_blank_and_no_more(relay: ServedRelay, lead: Member) -> None:
    heard: list[bool] = []
    async with _answering(_HEAD, _BLANK, _BLANK, b'f\r\n{"token":"b-1"}\r\n0\r\n\r\n') as store:
        assert await _hold(store, heard) == "b-1"
    assert len(heard) == 2


async def test_a_proxy_that_keeps_the_blanks_back_is_given_up() -> None:
    heard: list[bool] = []
    async with _answering() as store:
        with pytest.raises(StoreUnavailable):
            await _hold(store, heard)
    assert not heard


async def test_a_connection_that_falls_silent_or_breaks_is_given_up() -> None:
    for silent in (True, False):
        heard: list[bool] = []
        async with _answering(_HEAD, _BLANK, then_silent=silent) as store:
            with pytest.raises(StoreUnavailable):
                await _hold(store, heard)
        assert heard


async def test_a_relay_that_never_ends_a_wait_is_given_up() -> None:
    heard: list[bool] = []
    async with _answering(_HEAD, *[_BLANK] * 60) as store:
        with pytest.raises(StoreUnavailable):
            await _hold(store, heard, timeout=0.1)
    assert 0 < len(heard) < 60


async def test_a_relay_that_sends_blanks_without_end_is_refused() -> None:
    heard: list[bool] = []
    many = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    async with _answering(_HEAD, many, *[_BLANK] * 20) as store:
        with pytest.raises(BadReply):
            await _hold(store, heard)
    assert len(heard) <= 1


async def test_the_decorators_of_a_store_pass_a_held_wait_on_and_other_stores_poll(
    relay: ServedRelay, lead: Member
) -> None:
    token = await _token(relay, lead)
    store = RetryingStore(PacedStore(lead.store(relay.url), up=Pace(0), down=Pace(0)))
    heard = asyncio.Event()
    wait = asyncio.create_task(hold(store, lead.prefix, token=token, timeout=60, heard=heard.set))
    await asyncio.wait_for(heard.wait(), _SOON)
    await _write(relay, lead, "0")
    assert await asyncio.wait_for(wait, _SOON) != token
    await store.aclose()
    memory = MemoryStore()
    known = await memory.wait(lead.prefix, token=None, timeout=0)
    assert await hold(memory, lead.prefix, token=known, timeout=0.05, heard=heard.set) == known
    await memory.aclose()


async def test_an_emptied_cache_of_tokens_ends_no_held_wait() -> None:
    store = MemoryStore()
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, auth_cache_seconds=0.01)
    async with served(store, settings) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        token = await client.wait(lead.prefix, token=None, timeout=0)
        heard: list[bool] = []
        assert (
            await client.hold(lead.prefix, token=token, timeout=1, heard=lambda: heard.append(True)) == token
        )
        assert len(heard) > 5
        await client.aclose()
    await store.aclose()
