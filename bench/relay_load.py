"""A load generator that costs little: raw HTTP/1.1 over kept connections, one request in flight on each."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: requests, the seconds that all took, and each one's own."""

    count: int
    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.count / self.seconds


class _Connection(asyncio.Protocol):
    """Sends the next request when the last one's answer is complete."""

    def __init__(self, requests: Iterator[bytes], expected: int, latencies: list[float]) -> None:
        self._requests = requests
        self._expected = f"HTTP/1.1 {expected} ".encode()
        self._latencies = latencies
        self._buffer = bytearray()
        self._began = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.find(b"content-length:")
        size = 0 if at < 0 else int(head[at + 15 :].partition(b"\r\n")[0])
        if len(self._buffer) < end + 4 + size:
            return
        if not self._buffer.startswith(self._expected):
            self._fail(RuntimeError(f"unexpected answer: {bytes(self._buffer[:300])!r}"))
            return
        del self._buffer[: end + 4 + size]
        self._latencies.append(time.perf_counter() - self._began)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the server closed the connection"))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def load(
    url: str, request: Callable[[int], bytes], *, count: int, connections: int, expected: int, first: int = 0
) -> Load:
    """Send `count` requests, made by their number from `first`, over so many connections. Raises for another answer."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    assert host is not None
    assert port is not None
    requests = map(request, range(first, first + count))
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: _Connection(requests, expected, latencies), host, port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(connection.done for _, connection in made))
    return Load(count, time.perf_counter() - began, tuple(latencies))
