"""Held waits behind the proxies that we ship files for, and behind an nginx that somebody set up with three lines."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.errors import StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.server import waits
from tests.support.caddy import CADDY, free_ports, running_caddy
from tests.support.nginx import NGINX, nginx_process, running_nginx
from tests.support.relay_server import Member, enrolled, served

_BEAT_SECONDS = 0.2
_SILENCE_SECONDS = 3.0
_SOON = 10.0
_BARE = """
server {{
	listen 127.0.0.1:{port};
	location / {{ proxy_pass {relay}; {more} }}
}}
"""
_HTTP_1_1 = "proxy_http_version 1.1;"

pytestmark = pytest.mark.skipif(NGINX is None or not CADDY.exists(), reason="a proxy is not installed")


@pytest.fixture(autouse=True)
def soon_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "BEAT_SECONDS", _BEAT_SECONDS)


@contextmanager
def _proxy(kind: str, directory: Path, relay: str) -> Generator[tuple[str, httpx.AsyncBaseTransport | None]]:
    if kind == "caddy":
        with running_caddy(directory, relay) as caddy:
            yield caddy.url, caddy.transport()
    elif kind == "nginx":
        with running_nginx(directory, relay, "http://127.0.0.1:1") as nginx:
            yield nginx.url, nginx.transport()
    else:
        (port,) = free_ports("127.0.0.1", 1)
        with nginx_process(directory, _BARE.format(port=port, relay=relay, more=kind), port):
            yield f"http://127.0.0.1:{port}", None


@asynccontextmanager
async def _collecting(relay: str) -> AsyncGenerator[str]:
    """A proxy that passes an answer on once it is whole."""
    parts = httpx.URL(relay)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_relay = await asyncio.open_connection(parts.host, parts.port)
        passing = asyncio.create_task(_pass_on(reader, to_relay))
        try:
            while True:
                head = await there.readuntil(b"\r\n\r\n")
                if b"transfer-encoding: chunked" in head.lower():
                    body = await there.readuntil(b"0\r\n\r\n")
                else:
                    size = re.search(rb"content-length: (\d+)", head.lower())
                    body = await there.readexactly(int(size[1]) if size else 0)
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            passing.cancel()
            writer.close()
            to_relay.close()

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def _behind(kind: str, directory: Path) -> AsyncGenerator[tuple[HttpStore, Member]]:
    memory = MemoryStore()
    async with served(memory) as relay:
        member = await enrolled(relay.url)
        way = _proxy(kind, directory, relay.url)
        url, transport = await asyncio.to_thread(way.__enter__)
        try:
            async with _client(url, member, transport) as store:
                yield store, member
        finally:
            await asyncio.to_thread(way.__exit__, None, None, None)
    await memory.aclose()


@asynccontextmanager
async def _client(
    url: str, member: Member, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[HttpStore]:
    timeouts = Timeouts(silence=_SILENCE_SECONDS)
    store = HttpStore(url, vault=member.vault, token=member.token, transport=transport, timeouts=timeouts)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.mark.parametrize("kind", ["caddy", "nginx", _HTTP_1_1], ids=["caddy", "nginx", "a bare nginx"])
async def test_blanks_and_the_answer_pass_at_once(kind: str, tmp_path: Path) -> None:
    async with _behind(kind, tmp_path) as (store, member):
        blanks = asyncio.Semaphore(0)
        token = await store.wait(member.prefix, token=None, timeout=0)
        wait = asyncio.create_task(store.hold(member.prefix, token=token, timeout=60, heard=blanks.release))
        async with asyncio.timeout(_SILENCE_SECONDS):
            for _ in range(3):
                await blanks.acquire()
        await store.put_new(f"{member.prefix}devlog/0", b"x")
        assert await asyncio.wait_for(wait, _SILENCE_SECONDS / 2) != token


async def test_to_a_proxy_that_speaks_http_1_0_it_is_a_wait_like_any_other(tmp_path: Path) -> None:
    async with _behind("proxy_http_version 1.0;", tmp_path) as (store, member):
        token = await store.wait(member.prefix, token=None, timeout=0)
        heard: list[None] = []
        wait = asyncio.create_task(
            store.hold(member.prefix, token=token, timeout=60, heard=lambda: heard.append(None))
        )
        await asyncio.sleep(_BEAT_SECONDS * 3)
        await store.put_new(f"{member.prefix}devlog/0", b"x")
        assert await asyncio.wait_for(wait, _SOON) != token
        assert not heard


async def test_a_proxy_that_collects_answers_passes_a_write_on_and_is_given_up_without() -> None:
    memory = MemoryStore()
    async with served(memory) as relay:
        member = await enrolled(relay.url)
        async with _collecting(relay.url) as url, _client(url, member) as store:
            token = await store.wait(member.prefix, token=None, timeout=0)
            heard: list[None] = []

            async def hold(token: str) -> str:
                return await asyncio.wait_for(
                    store.hold(member.prefix, token=token, timeout=60, heard=lambda: heard.append(None)),
                    _SOON,
                )

            wait = asyncio.create_task(hold(token))
            await asyncio.sleep(_BEAT_SECONDS * 3)
            await store.put_new(f"{member.prefix}devlog/0", b"x")
            fresh = await wait
            assert fresh != token
            heard.clear()  # those that came with the answer
            with pytest.raises(StoreUnavailable):
                await hold(fresh)
            assert not heard
    await memory.aclose()
