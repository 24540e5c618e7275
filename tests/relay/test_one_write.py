"""An answer leaves by one system call, and its head does not wait for a body that takes its time."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

from crystal_relay.memory import MemoryStore
from crystal_relay.store import Object
from tests.support.hand_written import get_head, put_head
from tests.support.relay_process import running_relay
from tests.support.relay_server import Member, enrolled, served

BODY = b"HTTP/ is how heads begin, and so may bodies " * 20
TIMES = 300


async def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (parts.hostname, parts.port))
    return client


def _path(member: Member) -> str:
    return f"/v2/vaults/{member.vault}/objects/devlog/0"


async def test_head_and_body_of_a_small_object_arrive_together(tmp_path: Path) -> None:
    """From a process of its own: what leaves by two calls is seen apart now and then."""
    loop = asyncio.get_running_loop()
    with running_relay(tmp_path / "relay") as relay:
        lead = await enrolled(relay.url, enroll_token=relay.enroll_token)
        with await _connected(relay.url) as client:
            await loop.sock_sendall(client, put_head(lead, "devlog/0", len(BODY)) + BODY)
            assert (await loop.sock_recv(client, 65_536)).startswith(b"HTTP/1.1 201 ")
            for _ in range(TIMES):
                await loop.sock_sendall(client, get_head(lead, _path(lead)))
                received = await loop.sock_recv(client, 65_536)
                assert received.startswith(b"HTTP/1.1 200 ")
                assert received.endswith(b"\r\n\r\n" + BODY)


async def test_a_head_whose_body_is_slow_leaves_by_itself() -> None:
    go_on = asyncio.Event()

    class SlowStore(MemoryStore):
        """Gives an object's first byte when it is told to."""

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            if not key.startswith("v/"):
                return await super().get(key, start=start, length=length)
            return Object(self._slow(), size=4, start=0, length=4)

        async def _slow(self) -> AsyncGenerator[bytes]:
            await go_on.wait()
            yield b"slow"

    loop = asyncio.get_running_loop()
    async with served(SlowStore()) as relay, asyncio.timeout(20):
        lead = await enrolled(relay.url)
        with await _connected(relay.url) as client:
            await loop.sock_sendall(client, get_head(lead, _path(lead)))
            head = await loop.sock_recv(client, 65_536)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert head.endswith(b"\r\n\r\n")
            go_on.set()
            assert await loop.sock_recv(client, 65_536) == b"slow"
