"""One device, or one address, that takes all it can get: it gets its share, and the others go on."""

import asyncio
import contextlib
import gc
import resource
import secrets
import socket
import struct
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from crystal_relay.limits import KIB, MIB
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, connection, create_app
from crystal_relay.server.concurrency import VaultConcurrency
from crystal_relay.server.condemned import PENDING_MAX
from crystal_relay.server.load import ANSWERED_BYTES_OF_VAULT_MAX, GATHERED_BYTES_OF_VAULT_MAX, STREAM_BYTES
from crystal_relay.server.requests import FIELDS_KEY
from crystal_relay.server.serving import Server, listen
from crystal_relay.server.token_records import TOKENS_MAX
from crystal_relay.server.waits import WAITS_OF_DEVICE_MAX, WAITS_OF_VAULT_MAX
from crystal_relay.store import Body
from tests.support.hand_written import connected, get_head, put_head
from tests.support.raw_http import RawConnection, RawReply
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served


def post_head(member: Member, path: str, size: int) -> bytes:
    head = get_head(member, path, "Content-Type: application/json", f"Content-Length: {size}")
    return head.replace(b"GET ", b"POST ", 1)


@contextlib.asynccontextmanager
async def many(url: str, count: int) -> AsyncGenerator[list[RawConnection]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(url)) for _ in range(count)]


async def reached(value: Callable[[], int], wanted: int) -> None:
    """Return once `value()` is at least that."""
    async with asyncio.timeout(10):
        while value() < wanted:  # noqa: ASYNC110  (a count has no event)
            await asyncio.sleep(0.01)


async def all_go_on(relay: ServedRelay) -> None:
    """Another vault notices nothing."""
    other = await enrolled(relay.url)
    async with connected(relay.url) as each:
        await each.send(put_head(other, "blob/0", 300 * KIB) + bytes(100 * KIB))
        await each.send(bytes(200 * KIB))
        assert (await each.reply()).status == 201
        await each.send(get_head(other, f"/v2/vaults/{other.vault}/objects/blob/0"))
        assert len((await each.reply()).body) == 300 * KIB
        await each.send(get_head(other, f"/v2/vaults/{other.vault}/wait?timeout=0"))
        assert (await each.reply()).status == 200


async def test_a_device_that_begins_many_large_bodies_and_stalls_gets_its_share_of_memory(
    relay: ServedRelay, lead: Member
) -> None:
    load = relay.app.state.relay.objects.load
    fitting = GATHERED_BYTES_OF_VAULT_MAX // STREAM_BYTES
    async with many(relay.url, fitting + 1) as connections:
        for number, each in enumerate(connections[:-1]):
            await each.send(put_head(lead, f"blob/{number}", 8 * MIB) + bytes(KIB))
        await reached(lambda: load.gathered_bytes, GATHERED_BYTES_OF_VAULT_MAX)
        await connections[-1].send(put_head(lead, "blob/more", 8 * MIB) + bytes(KIB))
        refused = await connections[-1].reply()
        assert (refused.status, refused.json["error"]) == (503, "busy")
        await all_go_on(relay)


async def test_a_device_that_begins_many_requests_to_delete_and_stalls_gets_its_share_of_memory(
    relay: ServedRelay, lead: Member
) -> None:
    load = relay.app.state.relay.objects.load
    path = f"/v2/vaults/{lead.vault}/condemned"
    async with many(relay.url, GATHERED_BYTES_OF_VAULT_MAX // (256 * KIB) + 1) as connections:
        for each in connections[:-1]:
            await each.send(post_head(lead, path, 256 * KIB) + b" " * KIB)
        await reached(lambda: load.gathered_bytes, GATHERED_BYTES_OF_VAULT_MAX)
        await connections[-1].send(post_head(lead, path, 256 * KIB) + b" " * KIB)
        assert (await connections[-1].reply()).status == 503
        await all_go_on(relay)


@contextlib.asynccontextmanager
async def with_small_buffers(store: MemoryStore | LocalStore) -> AsyncGenerator[tuple[str, ServedRelay]]:
    """A server whose kernel keeps next to nothing of what a client does not take."""
    app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN))
    listener = listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    server = Server(app, listener)
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(ready=ready.set))
    await ready.wait()
    try:
        yield server.url, ServedRelay(server.url, server, store, app)
    finally:
        server.stop()
        await serving


async def unread(url: str, request: bytes) -> asyncio.StreamWriter:
    """A connection that asks, and takes nothing of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * KIB)
    client.setblocking(False)
    host, port = url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    # With a limit of one byte the stream itself stops taking after the first piece.
    reader, writer = await asyncio.open_connection(sock=client, limit=1)
    writer.write(request)
    assert reader is not None
    return writer


@pytest.mark.parametrize("what", ["list", "object"])
async def test_a_device_that_asks_for_much_and_reads_nothing_gets_its_share_of_memory(
    tmp_path: Path, what: str
) -> None:
    store = LocalStore(tmp_path / "relay")
    async with with_small_buffers(store) as (url, relay):
        lead = await enrolled(url)
        await store.put_new(f"{lead.prefix}blob/0", bytes(128 * KIB))
        for number in range(1000 if what == "list" else 0):
            await store.put_new(f"{lead.prefix}devlog/{'x' * 190}{number:04d}", b"")
        path = {"list": "list", "object": "objects/blob/0"}[what]
        request = get_head(lead, f"/v2/vaults/{lead.vault}/{path}")
        load = relay.app.state.relay.objects.load
        writers = [await unread(url, request) for _ in range(200)]
        await reached(lambda: load.answered_bytes, ANSWERED_BYTES_OF_VAULT_MAX - 300 * KIB)
        async with connected(url) as one_more:
            await one_more.send(request)
            assert (await one_more.reply()).status == 503
        assert load.answered_bytes <= ANSWERED_BYTES_OF_VAULT_MAX
        await all_go_on(relay)
        for each in writers:
            each.transport.abort()
        async with asyncio.timeout(10):
            while load.answered_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await store.aclose()


async def test_what_is_left_unread_of_a_small_answer_does_not_keep_its_connection_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "SEND_STALL_SECONDS_MAX", 0.5)
    store = MemoryStore()
    async with with_small_buffers(store) as (url, relay):
        lead = await enrolled(url)
        await store.put_new(f"{lead.prefix}blob/0", bytes(50 * KIB))
        connections = relay.server._uvicorn.server_state.connections  # pyright: ignore[reportPrivateUsage]
        connections.clear()
        slow = await unread(url, get_head(lead, f"/v2/vaults/{lead.vault}/objects/blob/0"))
        await reached(lambda: sum(each.transport.get_write_buffer_size() for each in connections), 1)
        async with asyncio.timeout(10):
            while connections:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        slow.transport.abort()


async def test_a_device_hoards_no_long_polls(relay: ServedRelay, lead: Member) -> None:
    waits = relay.app.state.relay.waits
    wait = await _wait_path(relay, lead)
    async with many(relay.url, WAITS_OF_DEVICE_MAX + 1) as connections:
        for each in connections[:-1]:
            await each.send(get_head(lead, wait))
        await reached(lambda: waits.sleeping, WAITS_OF_DEVICE_MAX)
        await connections[-1].send(get_head(lead, wait))
        refused = await connections[-1].reply()
        assert (refused.status, refused.json["error"]) == (429, "too-many-requests")
        assert int(refused.headers["retry-after"]) >= 1
        await connections[0].close()
        await all_go_on(relay)
        again = await _until_let_in(connections[-1], get_head(lead, wait.replace("timeout=60", "timeout=0")))
        assert again.status == 200, "its place is free once its connection has gone"


async def test_the_devices_of_a_vault_together_hoard_no_long_polls(relay: ServedRelay, lead: Member) -> None:
    waits = relay.app.state.relay.waits
    devices = [await joined(relay.url, lead) for _ in range(WAITS_OF_VAULT_MAX // WAITS_OF_DEVICE_MAX)]
    wait = await _wait_path(relay, lead)
    async with many(relay.url, WAITS_OF_VAULT_MAX) as connections:
        for number, each in enumerate(connections):
            await each.send(get_head(devices[number % len(devices)], wait))
        await reached(lambda: waits.sleeping, WAITS_OF_VAULT_MAX)
        async with connected(relay.url) as one_more:
            await one_more.send(get_head(lead, wait))
            assert (await one_more.reply()).status == 429
        await all_go_on(relay)


async def test_a_long_poll_with_a_request_behind_it_ends_when_its_client_goes(
    relay: ServedRelay, lead: Member
) -> None:
    waits = relay.app.state.relay.waits
    wait = get_head(lead, await _wait_path(relay, lead))
    each = await RawConnection.to(relay.url)
    await each.send(wait + wait)
    await reached(lambda: waits.sleeping, 1)
    await each.close()
    async with asyncio.timeout(5):
        while waits.sleeping:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "framing", ["Content-Length: 100000000", "Content-Length: 1", "Transfer-Encoding: chunked"]
)
async def test_a_long_poll_takes_no_body_which_would_be_held_and_hide_that_its_client_goes(
    relay: ServedRelay, lead: Member, framing: str
) -> None:
    wait = await _wait_path(relay, lead)
    async with connected(relay.url) as each:
        await each.send(get_head(lead, wait, framing))
        refused = await each.reply()
        assert (refused.status, refused.json["error"]) == (400, "bad-request")
    async with connected(relay.url) as each:
        await each.send(get_head(lead, wait.replace("timeout=60", "timeout=0"), "Content-Length: 0"))
        assert (await each.reply()).status == 200


async def test_an_idle_connection_keeps_no_large_head(relay: ServedRelay, lead: Member) -> None:
    path = f"/v2/vaults/{lead.vault}/objects/devlog/0"
    connections = relay.server._uvicorn.server_state.connections  # pyright: ignore[reportPrivateUsage]
    for extra, is_kept in (("a" * 15_000, False), ("a", True)):
        connections.clear()
        async with connected(relay.url) as each:
            await each.send(get_head(lead, path, f"User-Agent: {extra}"))
            assert (await each.reply()).status == 404
            (one,) = connections
            assert isinstance(one, connection.Connection)
            assert (one._fields is not None) is is_kept  # pyright: ignore[reportPrivateUsage]
            assert (FIELDS_KEY in one.cycle.scope) is is_kept


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Without garbage collection, so that reference cycles stay in memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("extra", [(), ("X-Other: a",)])
@pytest.mark.parametrize("asked", ["found", "not found", "stored", "taken", "waited"])
@pytest.mark.parametrize("reset", [False, True])
async def test_nothing_is_held_of_a_connection_that_ended(
    relay: ServedRelay, lead: Member, asked: str, extra: tuple[str, ...], reset: bool
) -> None:
    """Neither by a reference cycle nor by an error's traceback: these stay in memory until the next garbage collection."""
    async with connected(relay.url) as each:
        await each.send(put_head(lead, "devlog/0", 1) + b"x")
        assert (await each.reply()).status == 201
    path = f"/v2/vaults/{lead.vault}/objects/devlog/"
    requests = {
        "found": (get_head(lead, f"{path}0", *extra), 200),
        "not found": (get_head(lead, f"{path}9", *extra), 404),
        "stored": (put_head(lead, "devlog/1", 1, *extra) + b"x", 201),
        "taken": (put_head(lead, "devlog/0", 1, *extra) + b"x", 412),
        "waited": (get_head(lead, await _wait_path(relay, lead), *extra), 0),
    }
    request, status = requests[asked]
    connections = relay.server._uvicorn.server_state.connections  # pyright: ignore[reportPrivateUsage]
    connections.clear()
    client = socket.create_connection(("127.0.0.1", int(relay.url.rpartition(":")[2])))
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with no_collection():
        each = RawConnection(*await asyncio.open_connection(sock=client))
        await each.send(request)
        if status:
            assert (await each.reply()).status == status
        else:
            await reached(lambda: relay.app.state.relay.waits.sleeping, 1)
        (held,) = [weakref.ref(one) for one in connections]
        await each.close()
        async with asyncio.timeout(5):
            while held() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_bodies_sent_at_once_find_no_more_room_than_one_after_the_other() -> None:
    store = MemoryStore()
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=4 * MIB)) as relay:
        lead = await enrolled(relay.url)
        async with many(relay.url, 20) as connections:
            await connections[0].send(put_head(lead, "devlog/0", 1) + b"x")
            assert (await connections[0].reply()).status == 201
            await relay.app.state.relay.usage.counted()
            for number, each in enumerate(connections):
                await each.send(put_head(lead, f"blob/{number}", MIB) + bytes(KIB))
            await asyncio.sleep(0.2)
            for each in connections:
                await each.send(bytes(MIB - KIB))
            replies = [await each.reply() for each in connections]
        assert sum(reply.status == 201 for reply in replies) == 3
        assert {reply.status for reply in replies} == {201, 507}


class Held(MemoryStore):
    """Once it has a gate, what is written waits until that opens, as for a commit."""

    gate: asyncio.Event | None = None

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if self.gate is not None:
            await self.gate.wait()
        await super().put_new(key, body)


@pytest.mark.parametrize("extra", [(), ("X-Other: a",)], ids=["fast", "general"])
@pytest.mark.parametrize("size", [4 * KIB, 64 * KIB, 128 * KIB])
async def test_bodies_that_wait_for_their_commit_find_no_more_room_than_one_after_the_other(
    size: int, extra: tuple[str, ...]
) -> None:
    store = Held()
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=3 * size)) as relay:
        lead = await enrolled(relay.url)
        usage = relay.app.state.relay.usage
        async with many(relay.url, 8) as connections:
            await connections[0].send(put_head(lead, "devlog/0", 1) + b"x")
            assert (await connections[0].reply()).status == 201
            await usage.counted()
            store.gate = asyncio.Event()
            for number, each in enumerate(connections):
                await each.send(put_head(lead, f"blob/{number}", size, *extra) + bytes(size))
            await reached(lambda: usage.refused, 6)
            store.gate.set()
            replies = [await each.reply() for each in connections]
        assert sorted(reply.status for reply in replies) == [201] * 2 + [507] * 6


@pytest.mark.parametrize("extra", [(), ("X-Other: a",)], ids=["fast", "general"])
async def test_a_small_body_that_has_arrived_is_stored_while_no_more_may_gather(
    relay: ServedRelay, lead: Member, extra: tuple[str, ...]
) -> None:
    load = relay.app.state.relay.objects.load
    with load.gathering(lead.vault, GATHERED_BYTES_OF_VAULT_MAX):
        async with connected(relay.url) as each:
            await each.send(put_head(lead, "devlog/0", 4, *extra) + b"body")
            assert (await each.reply()).status == 201
            await each.send(put_head(lead, "devlog/1", 4, *extra) + b"bo")
            assert (await each.reply()).status == 503


async def test_deletions_asked_for_at_once_are_no_more_than_may_wait(
    relay: ServedRelay, lead: Member
) -> None:
    body = b'{"keys": ["mirror/1/0"]}'
    path = f"/v2/vaults/{lead.vault}/condemned"
    async with many(relay.url, 3 * PENDING_MAX) as connections:
        for each in connections:
            await each.send(post_head(lead, path, len(body)) + body[:-1])
        for each in connections:
            await each.send(body[-1:])
        replies = [await each.reply() for each in connections]
    assert {reply.status for reply in replies} <= {202, 429, 503}
    page = await relay.store.list(f"r/condemned/{lead.vault}/")
    assert 1 <= len(page.entries) <= PENDING_MAX


async def test_tokens_that_never_were_let_in_cannot_be_shut_out_without_end(
    relay: ServedRelay, lead: Member
) -> None:
    for _ in range(TOKENS_MAX):
        await relay.store.put_new(
            f"r/vault/{lead.vault}/revoked/{lead.device}/{secrets.token_hex(32)}", b"{}"
        )
    node = await joined(relay.url, lead)
    client = lead.store(relay.url)
    async with connected(relay.url) as each:
        path = f"/v2/vaults/{lead.vault}/tokens/{node.device}?token_hash="
        await each.send(get_head(lead, path + "0" * 64).replace(b"GET", b"DELETE", 1))
        assert (await each.reply()).status == 507
        await each.send(get_head(lead, path.partition("?")[0]).replace(b"GET", b"DELETE", 1))
        assert (await each.reply()).status == 200, "one that is in can always be shut out"
        await each.send(get_head(node, f"/v2/vaults/{lead.vault}/list"))
        assert (await each.reply()).status == 401
    await client.aclose()


async def test_of_one_vault_so_many_have_their_turn_and_another_has_its_own() -> None:
    turns = VaultConcurrency(2)
    await turns.enter("a")
    await turns.enter("a")
    await turns.enter("b")
    waiting = [asyncio.create_task(turns.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    turns.leave("a")
    await waiting[1]
    assert not waiting[2].done()
    turns.leave("a")
    await waiting[2]
    turns.leave("a")
    turns.leave("a")
    turns.leave("b")
    assert turns.under_way("a") == turns.under_way("b") == 0


async def _wait_path(relay: ServedRelay, member: Member) -> str:
    store = member.store(relay.url)
    token = await store.wait(member.prefix, token=None, timeout=0)
    await store.aclose()
    return f"/v2/vaults/{member.vault}/wait?prefix=mirror/&timeout=60&token={token}"


async def _until_let_in(each: RawConnection, request: bytes) -> RawReply:
    async with asyncio.timeout(5):
        while True:
            await each.send(request)
            reply = await each.reply()
            if reply.status != 429:
                return reply
            await asyncio.sleep(0.05)


def test_a_system_that_grants_few_open_files_leaves_the_store_some_beside_the_connections(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    relay = RelayProcess(tmp_path / "relay")
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        relay.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        asyncio.run(_write_beside(relay, 200))
    finally:
        relay.stop()


def test_where_few_files_may_be_open_strangers_leave_the_store_and_devices_some(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "relay", prefix=("prlimit", "--nofile=256:256"))
    relay.start()
    try:
        asyncio.run(_write_beside(relay, 400))
    finally:
        relay.stop()
    assert "Too many open files" not in relay.errors


async def _write_beside(relay: RelayProcess, count: int) -> None:
    lead = await enrolled(relay.url, enroll_token=relay.enroll_token)
    async with many(relay.url, count):
        store = lead.store(relay.url)
        await store.put_new(f"{lead.prefix}blob/0", bytes(MIB))
        await store.aclose()
