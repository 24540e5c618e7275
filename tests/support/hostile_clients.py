"""Clients that want a relay or a gateway to run out of memory, connections or time: eight kinds, each a task that goes on until
it is cancelled. A client whose connection is closed opens another.

    pipelining       requests, one behind the other, as fast as they are taken; answers are read
    slow-heads       a head of many small headers, a byte at a time
    slow-bodies      a body of 8 MiB, some bytes at a time, half of them with a valid token
    idle-polls       long polls with a valid token, as many as are let in, each with a request behind it
    half-open        connected, a piece of a request sent or nothing, and then silence
    huge-heads       heads without an end
    bad-tls          what is no HTTP: a TLS handshake, records cut short, random bytes
    missing-routes   requests for what is not there, on few connections and on ever new ones; answers are left unread

They run in a process of their own and with a low priority, as if on other machines: what an honest client measures is the
server's time and not theirs.
"""

import asyncio
import contextlib
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from tests.support.hand_written import connected, get_head, put_head
from tests.support.relay_server import Member

KIB = 1024
BODY_BYTES = 8 * KIB * KIB
PAUSE_SECONDS = 0.05
"""Between two attempts of one client: it wants to outlast the server, not this machine."""


@dataclass
class Target:
    """Where to, and what a valid request looks like. `opened`: connections that were opened."""

    url: str
    body: bytes
    """The head of a request with a body of 8 MiB, with valid credentials."""
    poll: bytes
    """A long poll, with valid credentials."""
    requests: bytes = b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n"
    opened: int = field(default=0)


Opened: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Client: TypeAlias = Callable[[Target, int], Coroutine[Any, Any, None]]


async def _pipelining(target: Target, number: int) -> None:
    reader, writer = await _opened(target)
    request = target.requests if number % 2 else target.requests.replace(b"/health", b"/v2/nothing")
    many = request * (64 * KIB // len(request))
    reading = asyncio.create_task(_read(reader))
    with _closing(writer):
        try:
            while not reading.done():
                writer.write(many)
                await writer.drain()
        finally:
            reading.cancel()


async def _slow_heads(target: Target, number: int) -> None:
    _, writer = await _opened(target)
    with _closing(writer):
        writer.write(target.requests[:-2] + (b"a:\r\n" * 50 if number % 2 else b""))
        for at in range(100_000):
            writer.write(b"x-%d:\r\n" % at if number % 3 else b"x")
            await writer.drain()
            await asyncio.sleep(PAUSE_SECONDS)


async def _slow_bodies(target: Target, number: int) -> None:
    _, writer = await _opened(target)
    with _closing(writer):
        head = target.body.replace(b"NUMBER", str(number).encode())
        writer.write(head if number % 2 else head.replace(b"Bearer ", b"Bearer 0"))
        writer.write(bytes(64 * KIB))
        while True:
            writer.write(b"x" * 100)
            await writer.drain()
            await asyncio.sleep(PAUSE_SECONDS)


async def _idle_polls(target: Target, number: int) -> None:
    reader, writer = await _opened(target)
    with _closing(writer):
        writer.write(target.poll + target.requests * number)
        await _read(reader)


async def _half_open(target: Target, number: int) -> None:
    reader, writer = await _opened(target)
    with _closing(writer):
        writer.write((b"", b"GET", b"\r\n", target.requests[:-2])[number % 4])
        if number % 8 >= 4:
            writer.write_eof()
        await _read(reader)


async def _huge_heads(target: Target, number: int) -> None:
    _, writer = await _opened(target)
    with _closing(writer):
        writer.write(b"GET /" + b"a" * (200 * KIB) if number % 2 else target.requests[:-2])
        while True:
            writer.write(b"x: y\r\n" * 2_000 if number % 3 else b"x" * 8 * KIB)
            await writer.drain()
            await asyncio.sleep(0)


async def _bad_tls(target: Target, number: int) -> None:
    reader, writer = await _opened(target)
    hello = bytes.fromhex("16030100ba010000b60303") + bytes(32)
    with _closing(writer):
        writer.write(
            (hello, hello[:4], b"\x17\x03\x03\xff\xff" + bytes(64 * KIB), os.urandom(300))[number % 4]
        )
        await _read(reader)


async def _missing_routes(target: Target, number: int) -> None:
    _, writer = await _opened(target)
    request = b"GET /v2/%d/nothing HTTP/1.1\r\nHost: relay\r\n\r\n" % number
    with _closing(writer):
        for _ in range(10_000 if number % 2 else 1):
            writer.write(request)
            await writer.drain()
            await asyncio.sleep(0)


KINDS: dict[str, Client] = {
    "pipelining": _pipelining,
    "slow-heads": _slow_heads,
    "slow-bodies": _slow_bodies,
    "idle-polls": _idle_polls,
    "half-open": _half_open,
    "huge-heads": _huge_heads,
    "bad-tls": _bad_tls,
    "missing-routes": _missing_routes,
}


@contextlib.contextmanager
def besieged(target: Target, of_each: int, kinds: Sequence[str] = tuple(KINDS)) -> Generator[None]:
    """So many clients of each kind at the same time, until the end of the block. `target.opened` is right after it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hostile_clients"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="ascii",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        words = (target.url, target.body.decode("ascii"), target.poll.decode("ascii"))
        process.stdin.write(json.dumps([*words, target.requests.decode("ascii"), of_each, *kinds]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n"
        yield
        process.stdin.close()
        target.opened = int(process.stdout.readline())
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _besiege() -> None:
    """The clients that the first line of stdin describes, until its end."""
    url, body, poll, requests, of_each, *kinds = json.loads(sys.stdin.readline())
    target = Target(url, body.encode(), poll.encode(), requests.encode())
    os.nice(10)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients = [
        asyncio.create_task(_again(KINDS[kind], target, number))
        for number in range(of_each)
        for kind in kinds
    ]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for each in clients:
        each.cancel()
    ended = await asyncio.gather(*clients, return_exceptions=True)
    assert not (odd := [each for each in ended if not isinstance(each, asyncio.CancelledError)]), odd
    sys.stdout.write(f"{target.opened}\n")


@dataclass
class Usage:
    """What a process used while it was watched, and how long an honest client waited for each of its answers."""

    rss_max: int = 0
    """Bytes."""
    seconds: list[float] = field(default_factory=list[float])

    @property
    def p99(self) -> float:
        """Seconds that 99 of 100 answers took at most."""
        assert len(self.seconds) >= 20, "too few answers to judge by"
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


def hostile_to(url: str, thief: Member) -> Target:
    """A relay, with the valid credentials of a device whose token was stolen."""
    poll = get_head(thief, f"/v2/vaults/{thief.vault}/wait?timeout=60")
    return Target(url, put_head(thief, "blob/NUMBER", BODY_BYTES), poll)


def honest(url: str, member: Member) -> Callable[[], Coroutine[Any, Any, None]]:
    """A device that stores an object and reads it back, on a new connection each time."""
    numbers = itertools.count()

    async def ask() -> None:
        name, body = f"blob/{next(numbers)}", b"x" * 4 * KIB
        async with connected(url) as each:
            await each.send(put_head(member, name, len(body)) + body)
            assert (await each.reply()).status == 201
            await each.send(get_head(member, f"/v2/vaults/{member.vault}/objects/{name}"))
            assert (await each.reply()).body == body

    return ask


async def watched(pid: int, ask: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> Usage:
    """Ask again and again for so long, and watch the process's memory meanwhile."""
    usage = Usage()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        await ask()
        usage.seconds.append(time.monotonic() - began)
        usage.rss_max = max(usage.rss_max, rss_of(pid))
        await asyncio.sleep(0.02)
    return usage


def rss_of(pid: int) -> int:
    """Bytes of a process that are in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    raise AssertionError("this system does not say how much memory a process has")


async def _again(client: Client, target: Target, number: int) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await client(target, number)
        await asyncio.sleep(PAUSE_SECONDS)


async def _opened(target: Target) -> Opened:
    parts = urlsplit(target.url)
    assert parts.hostname is not None
    target.opened += 1
    return await asyncio.open_connection(parts.hostname, parts.port)


async def _read(reader: asyncio.StreamReader) -> None:
    """Until the other side ends the connection."""
    with contextlib.suppress(OSError):
        while await reader.read(64 * KIB):
            pass


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Generator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(_besiege())
