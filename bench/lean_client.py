"""The least that an HTTP client over asyncio can do: what the relay's client is measured against.

Creates objects over kept connections, one request in flight on each, and looks at the status alone.
"""

import asyncio
from typing import cast
from urllib.parse import urlsplit

_CREATED = b"HTTP/1.1 201 "


class LeanClient:
    """A client for one server and one vault. `headers`: whole lines, sent with each request."""

    def __init__(self, url: str, headers: bytes) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._headers = headers
        self._idle: list[_Connection] = []

    async def put_new(self, path: str, body: bytes) -> None:
        """Raises RuntimeError for another answer than 201."""
        connection = self._idle.pop() if self._idle else await self._connected()
        head = b"PUT %s HTTP/1.1\r\n%sIf-None-Match: *\r\nContent-Length: %d\r\n\r\n"
        reply = await connection.ask(head % (path.encode(), self._headers, len(body)) + body)
        if not reply.startswith(_CREATED):
            raise RuntimeError(f"unexpected answer: {reply[:100]!r}")
        self._idle.append(connection)

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.close()

    async def _connected(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_Connection, self._host, self._port)
        return made


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[bytes] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        """The reply's head. Its body is taken to be empty."""
        self._reply = self._loop.create_future()
        self._transport.write(request)
        return self._reply

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the server closed the connection"))
