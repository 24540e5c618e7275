"""A real relay under clients that want its memory, its connections and its time; at full size: `bench/bench_siege.py`."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_relay.limits import KIB, MIB
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, admission, connection
from crystal_relay.server.admission import Trust
from crystal_relay.server.settings import ANONYMOUS_REFUSED_MAX, HEAD_BYTES_MAX
from tests.support.hand_written import connected, get_head, put_head
from tests.support.hostile_clients import KINDS, besieged, honest, hostile_to, rss_of, watched
from tests.support.raw_http import RawConnection, raw_request
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, served

RSS_MAX = 300 * MIB
P99_SECONDS_MAX = 1.0
PIPELINED = b"GET /%s HTTP/1.1\r\n\r\n"


@pytest.fixture
def process(tmp_path: Path) -> Generator[RelayProcess]:
    with running_relay(tmp_path / "relay") as running:
        yield running


@pytest.mark.parametrize("path", [b"health", b"v2/nothing"])
async def test_one_stranger_who_pipelines_52_mb_costs_neither_memory_nor_time(
    process: RelayProcess, path: bytes
) -> None:
    lead = await enrolled(process.url, enroll_token=process.enroll_token)
    before = rss_of(process.pid)
    request = PIPELINED % path
    reader, writer = await asyncio.open_connection(*process.url.removeprefix("http://").split(":"))
    writer.write(request * (52_000_000 // len(request)))
    reading = asyncio.create_task(reader.read(-1))
    usage = await watched(process.pid, honest(process.url, lead), 3)
    reading.cancel()
    writer.transport.abort()
    assert usage.rss_max - before < 20 * MIB
    assert max(usage.seconds) < P99_SECONDS_MAX


async def test_clients_of_eight_hostile_kinds_take_neither_memory_nor_time_from_honest_ones(
    process: RelayProcess,
) -> None:
    lead = await enrolled(process.url, enroll_token=process.enroll_token)
    thief = await enrolled(process.url, enroll_token=process.enroll_token)
    target = hostile_to(process.url, thief)
    with besieged(target, of_each=12):
        usage = await watched(process.pid, honest(process.url, lead), 8)
    assert target.opened > 12 * len(KINDS)
    assert usage.rss_max < RSS_MAX
    assert usage.p99 < P99_SECONDS_MAX
    assert "Traceback" not in process.errors


async def test_pipelined_requests_are_answered_in_order_and_bodies_go_with_their_own(
    relay: ServedRelay, lead: Member
) -> None:
    bodies = [b"\r\n\r\n" * 300, b"GET /health HTTP/1.1\r\n\r\n", b"", b"x" * 100_000]
    path = f"/v2/vaults/{lead.vault}/objects/blob/"
    sent = b"".join(
        put_head(lead, f"blob/{number}", len(body)) + body + get_head(lead, f"{path}{number}")
        for number, body in enumerate(bodies)
    )
    for step in (len(sent), 1_000, 7):
        async with connected(relay.url) as each:
            writing = asyncio.create_task(_sent_in_pieces(each, sent, step))
            for body in bodies:
                assert (await each.reply()).status in (201, 412)
                assert (await each.reply()).body == body
            await writing


async def _sent_in_pieces(each: RawConnection, data: bytes, step: int) -> None:
    for at in range(0, len(data), step):
        await each.send(data[at : at + step])
        if step > 100:
            await asyncio.sleep(0)


@pytest.mark.parametrize("cut", range(1, 5))
async def test_a_head_cut_within_its_end_delays_nothing_and_skips_nothing(
    relay: ServedRelay, cut: int
) -> None:
    request = b"GET /health/live HTTP/1.1\r\nHost: relay\r\n\r\n"
    async with connected(relay.url) as each:
        await each.send(request[:-cut])
        await asyncio.sleep(0.05)
        await each.send(request[-cut:] + request + request)
        assert [(await each.reply()).status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
async def test_no_other_spelling_of_an_empty_line_ends_a_head(relay: ServedRelay, ends: bytes) -> None:
    async with connected(relay.url) as each:
        await each.send((b"GET /health/live HTTP/1.1\r\nHost: relay" + ends) * 3)
        assert (await each.reply()).status == 400
        assert await each.is_closed(5)


async def test_what_is_pipelined_behind_a_wait_is_not_read_on_and_is_answered_later(
    relay: ServedRelay, lead: Member
) -> None:
    store = lead.store(relay.url)
    token = await store.wait(lead.prefix, token=None, timeout=0)
    health = b"GET /health/live HTTP/1.1\r\nHost: relay\r\n\r\n"
    count = 4 * MIB // len(health)
    async with connected(relay.url) as each:
        await each.send(get_head(lead, f"/v2/vaults/{lead.vault}/wait?timeout=60&token={token}"))
        sending = asyncio.create_task(each.send(health * count))
        await asyncio.sleep(0.3)
        waiting = relay.app.state.relay.admission.waiting_bytes
        assert HEAD_BYTES_MAX < waiting < 600 * KIB
        await store.put_new(f"{lead.prefix}blob/0", b"x")
        statuses = {(await each.reply()).status for _ in range(200)}
        assert statuses == {200}
        sending.cancel()
    await store.aclose()
    await _none_left(relay)


async def test_a_stranger_is_hung_up_on_after_many_refused_requests_and_a_device_is_not(
    relay: ServedRelay, lead: Member
) -> None:
    missing = b"GET /v2/nothing HTTP/1.1\r\nHost: relay\r\n\r\n"
    async with connected(relay.url) as each:
        for number in range(ANONYMOUS_REFUSED_MAX):
            await each.send(missing)
            reply = await each.reply()
            assert reply.status == 404
            assert (reply.headers.get("connection") == "close") is (number == ANONYMOUS_REFUSED_MAX - 1)
        assert await each.is_closed(5)
    async with connected(relay.url) as each:
        await each.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
        assert (await each.reply()).status == 200
        for _ in range(2 * ANONYMOUS_REFUSED_MAX):
            await each.send(missing)
            assert (await each.reply()).status == 404


async def test_refused_requests_count_for_their_address() -> None:
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, rate_per_address=0.3, trusted_proxies=("127.0.0.1",))
    async with served(MemoryStore(), settings) as relay:
        for path, status, address in (
            ("/v2/nothing", 404, "203.0.113.7"),
            ("/%41", 400, "203.0.113.8"),
            ("/health", 200, "203.0.113.9"),
            ("/" + "x" * 1500, 404, "203.0.113.10"),
        ):
            request = f"GET {path} HTTP/1.1\r\nHost: relay\r\nX-Forwarded-For: {address}\r\n\r\n".encode()
            statuses = [(await raw_request(relay.url, request)).status for _ in range(5)]
            assert statuses == [status] * 3 + [429] * 2


async def test_a_head_of_very_many_headers_ends_before_it_is_complete(relay: ServedRelay) -> None:
    async with connected(relay.url) as each:
        await each.send(b"GET /health HTTP/1.1\r\n" + b"a:\r\n" * 100)
        assert (await each.reply()).status == 431
        assert await each.is_closed(5)


async def test_a_chunked_body_is_not_read_and_ends_the_connection(relay: ServedRelay, lead: Member) -> None:
    for head in (put_head(lead, "blob/0", ""), b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n"):
        async with connected(relay.url) as each:
            await each.send(head[:-2] + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * 50_000)
            reply = await each.reply()
            assert reply.status in (411, 200)
            assert reply.headers["connection"] == "close"


async def test_strangers_bodies_share_a_limit_and_are_let_go_of(
    relay: ServedRelay, lead: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sends a body before the relay has looked at its token: all of them at once must not fit."""
    monkeypatch.setattr(admission, "WAITING_BYTES_MAX", 256 * KIB)
    closed = relay.app.state.relay.admission.closed
    body = put_head(lead, "blob/0", 8 * MIB).replace(b"Bearer ", b"Bearer 0") + bytes(64 * KIB)
    host, _, port = relay.url.removeprefix("http://").partition(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(40)]
    for each in clients:  # the relay runs in this loop: it finds all of them at once
        each.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            each.send(body)
    await asyncio.sleep(0.5)
    assert closed[admission.Closing.BYTES] > 0
    for each in clients:
        each.close()
    await _none_left(relay)


async def test_an_anonymous_connection_is_kept_for_a_shorter_time_than_a_devices(
    relay: ServedRelay, lead: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANONYMOUS_KEEP_ALIVE_SECONDS", 0.3)
    async with connected(relay.url) as stranger, connected(relay.url) as device:
        await stranger.send(b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n")
        await device.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
        assert ((await stranger.reply()).status, (await device.reply()).status) == (200, 200)
        assert relay.app.state.relay.admission.count(Trust.AUTHENTICATED) == 1
        assert await stranger.is_closed(5)
        assert not await device.is_closed(0.5)


async def test_a_connection_that_went_on_is_kept_beyond_the_time_of_its_first_request(
    relay: ServedRelay, lead: Member
) -> None:
    """One timer serves many requests: it ends early, and is set again."""
    connections = relay.server._uvicorn.server_state.connections  # pyright: ignore[reportPrivateUsage]
    connections.clear()
    async with connected(relay.url) as device:
        await device.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
        assert (await device.reply()).status == 200
        (one,) = connections
        assert isinstance(one, connection.Connection)
        for left in (20.0, 0.05):
            timer = one.timeout_keep_alive_task
            assert timer is not None
            timer.cancel()
            one._idle_until = one.loop.time() + left  # pyright: ignore[reportPrivateUsage]
            one.timeout_keep_alive_handler()
            assert not one.transport.is_closing()
            assert one.timeout_keep_alive_task not in (None, timer)
        assert await device.is_closed(5)


async def test_strangers_who_take_all_places_keep_no_device_out(
    relay: ServedRelay, lead: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "ANONYMOUS_CONNECTIONS_MAX", 10)
    async with contextlib.AsyncExitStack() as stack:
        early = await stack.enter_async_context(connected(relay.url))
        await early.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
        assert (await early.reply()).status == 200
        strangers = [await stack.enter_async_context(connected(relay.url)) for _ in range(30)]
        late = await stack.enter_async_context(connected(relay.url))
        for device in (early, late):
            await device.send(get_head(lead, f"/v2/vaults/{lead.vault}/list"))
            assert (await device.reply()).status == 200
        assert await strangers[0].is_closed(5)
        assert not await strangers[-1].is_closed(0.1)


async def test_the_description_of_the_routes_costs_no_more_than_a_health_check(process: RelayProcess) -> None:
    async def seconds(path: str) -> float:
        request = f"GET {path} HTTP/1.1\r\nHost: relay\r\n\r\n".encode()
        async with connected(process.url) as each:
            began = _cpu(process.pid)
            for _ in range(500):
                await each.send(request)
                assert (await each.reply()).status == 200
            return _cpu(process.pid) - began

    rounds = [(await seconds("/v2/openapi.json"), await seconds("/health")) for _ in range(3)]
    assert sum(each[0] for each in rounds) <= 1.5 * sum(each[1] for each in rounds) + 0.05


def _cpu(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def _none_left(relay: ServedRelay) -> None:
    """Nothing is counted any more once all connections are gone."""
    async with asyncio.timeout(10):
        while relay.app.state.relay.admission.waiting_bytes:  # noqa: ASYNC110  (a count has no event)
            await asyncio.sleep(0.02)
