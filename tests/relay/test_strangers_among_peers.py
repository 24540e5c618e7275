"""What strangers send to the route between relay processes, and what answers at an address that a process has left."""

import asyncio
import contextlib
import gzip
import secrets
from collections.abc import AsyncGenerator

import pytest

from crystal_relay.limits import KIB
from crystal_relay.server.load import Load
from crystal_relay.server.peers.messages import AUTHORIZATION, BODY_BYTES_MAX, PATH, News
from crystal_relay.server.peers.transport import ANSWER_BYTES_MAX, NotHeard, PeerConnection
from tests.relay.test_peer_messages import at, news, tell
from tests.support.hand_written import connected
from tests.support.processes import RunningProcess

__all__ = ["at"]


@contextlib.asynccontextmanager
async def answering(head: bytes, piece: bytes, count: int) -> AsyncGenerator[tuple[str, list[int]]]:
    """Something that answers everything with `head` and `count` pieces. Its address, and what it has sent."""
    sent = [0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(head)
            for _ in range(count):
                writer.write(piece)
                await writer.drain()
                sent[0] += len(piece)
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.05)  # the connections' ends


@pytest.mark.parametrize("encoding", ["", "Content-Encoding: gzip\r\n"])
async def test_an_answer_without_end_at_a_left_address_is_not_taken_in(encoding: str) -> None:
    piece = gzip.compress(bytes(1024 * KIB)) * 100 if encoding else bytes(64 * KIB)
    head = f"HTTP/1.1 200 OK\r\n{encoding}Content-Length: 99999999999\r\n\r\n".encode()
    async with answering(head, piece, 4096) as (url, sent):
        line = PeerConnection(url)
        with pytest.raises(NotHeard):
            await line.tell(secrets.token_bytes(32), News("0" * 16, "1" * 16, 1))
        await line.aclose()
        assert sent[0] < 64 * 1024 * KIB
    assert ANSWER_BYTES_MAX <= 64 * KIB


async def test_strangers_bodies_have_bounded_room_and_one_without_a_code_is_not_read(
    at: RunningProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at.peers.hearer, "_load", Load(bytes_max=BODY_BYTES_MAX))
    url = at.url
    plausible = f"Authorization: {AUTHORIZATION}{'0' * 64}\r\n"
    head = f"POST {PATH} HTTP/1.1\r\nHost: relay\r\nContent-Length: {BODY_BYTES_MAX}\r\n"
    async with connected(url) as first, connected(url) as second, connected(url) as third:
        await first.send(f"{head}{plausible}\r\n{{".encode())
        await asyncio.sleep(0.2)
        await second.send(f"{head}{plausible}\r\n{{".encode())
        assert (await second.reply()).status == 503
        await third.send(f"{head}Authorization: Bearer x\r\n\r\n{{".encode())
        assert (await third.reply()).status == 401
        await first.send(bytes(BODY_BYTES_MAX - 1))
        assert (await first.reply()).status == 401
    assert (await tell(at, news(at, last=1))).status_code == 200
