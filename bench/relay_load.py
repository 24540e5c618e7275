"""A load generator that costs little: raw HTTP/1.1 over kept connections, one request in flight on each."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from tests.support.relay_server import Member

SMALL_BYTES = 4096
CONCURRENCY = 32
UNLIMITED = ("--rate-per-token", "0", "--rate-per-address", "0", "--foundings-per-hour", "0")
"""Options of a relay that is to be measured, not to be protected."""

Made = TypeVar("Made")


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


async def concurrently(
    keys: Sequence[str], call: Callable[[str], Coroutine[Any, Any, None]], *, at_once: int = CONCURRENCY
) -> Load:
    """Make a call for each key, so many at once."""
    latencies: list[float] = []
    left = iter(keys)

    async def worker() -> None:
        for key in left:
            began = time.perf_counter()
            await call(key)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return Load(len(keys), time.perf_counter() - began, tuple(latencies))


def on_uvloop(work: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
    """Run it on the event loop that the relay's server runs on."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def bare_server() -> contextlib.AbstractContextManager[str]:
    """The address of `bench.bare_server`, as a process."""
    return _served("bench.bare_server")


def lean_server(file: Path) -> contextlib.AbstractContextManager[str]:
    """The address of `bench.lean_server` over a database of its own, as a process."""
    return _served("bench.lean_server", str(file))


@contextlib.contextmanager
def _served(*module: str) -> Generator[str]:
    process = subprocess.Popen([sys.executable, "-m", *module], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


# --- requests of a member ---


def put(member: Member, at: int, body: bytes) -> bytes:
    """Create the object of that number."""
    head = b"PUT %s HTTP/1.1\r\n%sIf-None-Match: *\r\nContent-Length: %d\r\n\r\n"
    return head % (path(member, stream(member, at)), headers(member), len(body)) + body


def get(member: Member, at: int) -> bytes:
    """Read it."""
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (path(member, stream(member, at)), headers(member))


def stream(member: Member, at: int) -> str:
    """The key of a member's entry."""
    return f"conversations/{member.device}.{'0' * 16}/{at:016d}"


def path(member: Member, key: str) -> bytes:
    """Where an object is."""
    return f"/v2/vaults/{member.vault}/objects/{key}".encode()


def headers(member: Member) -> bytes:
    """Those that every request of a member has."""
    return f"Host: relay\r\nAuthorization: Bearer {member.token}\r\n".encode()
