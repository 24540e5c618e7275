"""Servers that are no relay, and a client to meet them with."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.tokens import new_token

VAULT = "ab" * 16
DEVICE = "cd" * 16
PREFIX = f"v/{VAULT}/"
KEY = f"{PREFIX}devlog/0"
TOKEN = new_token(DEVICE)
QUICK = Timeouts(connect=1, idle=0.4, wait_grace=0.4)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def odd_server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """A server that answers every connection as told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def says(text: bytes, *, then_hang: bool = False) -> Answer:
    """Read a request's head, write `text`, close (or not)."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()
        if then_hang:
            await asyncio.sleep(5)

    return answer


def reply(status: int, body: bytes = b"", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[HttpStore]:
    store = HttpStore(url, vault=VAULT, token=TOKEN, timeouts=QUICK)
    try:
        yield store
    finally:
        await store.aclose()
