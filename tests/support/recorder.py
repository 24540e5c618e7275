"""Servers that note what they are asked and answer as told: a relay that lies, a bucket that does."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.odd_server import reply


@dataclass
class Asked:
    """A request, as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for given, value in self.headers if given == name), None)


Answer = Callable[[Asked], bytes | None]
"""The raw answer; None closes the connection without one."""


@dataclass
class Recorder:
    """Where it is, and what it was asked."""

    url: str
    asked: list[Asked] = field(default_factory=list[Asked])
    bytes: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def recorder(answer: Answer) -> AsyncGenerator[Recorder]:
    """A server on loopback. Each connection is for one request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            found.bytes += head
            first, *lines = head.decode().split("\r\n")[:-2]
            headers = [
                (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)
            ]
            body = await reader.readexactly(int(dict(headers).get("content-length", 0)))
            method, target, _ = first.split(" ")
            asked = Asked(method, target, headers, body)
            found.asked.append(asked)
            said = answer(asked)
            if said is not None:
                writer.write(said)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found = Recorder(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield found
    finally:
        server.close()


def json_reply(status: int, document: dict[str, Any]) -> bytes:
    return reply(status, json.dumps(document).encode(), b"Content-Type: application/json")


def error_reply(status: int, code: str) -> bytes:
    return json_reply(status, {"error": code, "message": "m", "hint": ""})
