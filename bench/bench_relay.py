"""The relay: durable drops, pickups and lists, at the store and over HTTP, each beside what bounds it."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Row, percentile, value_at_least, value_at_most
from bench.relay_load import Load, load
from crystal_relay.local import LocalStore
from tests.support.relay_process import running_relay
from tests.support.relay_server import Member, enrolled

SMALL_BYTES = 4096
CONCURRENCY = 32
BODY = os.urandom(SMALL_BYTES)


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    count = 2_000 if quick else 10_000
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory:
        return [
            *_on_loop(lambda: _store(Path(directory), count, rounds)),
            *_over_http(Path(directory), count // 2, rounds),
        ]


def _on_loop(work: Callable[[], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


# --- the store ---


async def _store(directory: Path, count: int, rounds: int) -> list[Row]:
    drops: list[Load] = []
    pickups: list[Load] = []
    pages: list[float] = []
    files: list[float] = []
    for number in range(rounds):
        store = LocalStore(directory / f"store-{number}")
        keys = [f"v/a/conversations/d/{at:016d}" for at in range(count)]
        drops.append(await _concurrently(keys, partial(_drop, store)))
        pickups.append(await _concurrently(keys, partial(_pick_up, store)))
        began = time.perf_counter()
        for at in range(0, 1000, 20):
            await store.list("v/a/", after=keys[at], limit=100)
        pages.append((time.perf_counter() - began) / 50)
        await store.aclose()
        files.append(await asyncio.to_thread(_one_file_each, directory / f"files-{number}", count // 10))
    rate = median(drop.rate for drop in drops)
    return [
        Row(
            name=f"local store, durable {SMALL_BYTES // 1024} KB drops, {CONCURRENCY} at once",
            value=rate,
            unit="/s",
            baseline="a file and two fsyncs each, one thread",
            baseline_value=median(files),
            target=value_at_least(3_000),
        ),
        Row(
            name="local store, the same drops, p99",
            value=median(percentile(drop.latencies, 99) for drop in drops) * 1000,
            unit="ms",
            target=value_at_most(50),
        ),
        Row(
            name=f"local store, {SMALL_BYTES // 1024} KB pickups, {CONCURRENCY} at once",
            value=median(pickup.rate for pickup in pickups),
            unit="/s",
        ),
        Row(name="local store, a list of 100", value=median(pages) * 1000, unit="ms"),
    ]


async def _drop(store: LocalStore, key: str) -> None:
    await store.put_new(key, BODY)


async def _pick_up(store: LocalStore, key: str) -> None:
    await (await store.get(key)).read()


async def _concurrently(keys: list[str], call: Callable[[str], Coroutine[Any, Any, None]]) -> Load:
    latencies: list[float] = []
    left = iter(keys)

    async def worker() -> None:
        for key in left:
            began = time.perf_counter()
            await call(key)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return Load(len(keys), time.perf_counter() - began, tuple(latencies))


def _one_file_each(directory: Path, count: int) -> float:
    """Files a second when each is written, synced, renamed and its directory synced."""
    directory.mkdir()
    began = time.perf_counter()
    for number in range(count):
        temporary = directory / f"{number}.tmp"
        with temporary.open("wb", buffering=0) as file:
            file.write(BODY)
            os.fsync(file.fileno())
        temporary.rename(directory / str(number))
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return count / (time.perf_counter() - began)


# --- HTTP ---


def _over_http(directory: Path, count: int, rounds: int) -> list[Row]:
    with running_relay(directory / "relay") as relay, _bare_server() as bare:
        member = asyncio.run(enrolled(relay.url, enroll_token=relay.enroll_token))
        return _on_loop(lambda: _compare(relay.url, bare, member, count, rounds))


async def _compare(url: str, bare: str, member: Member, count: int, rounds: int) -> list[Row]:
    drops: list[tuple[Load, Load]] = []
    pickups: list[tuple[Load, Load]] = []
    for number in range(rounds + 1):
        first = number * count

        async def both(
            request: Callable[[int], bytes], expected: int, first: int = first
        ) -> tuple[Load, Load]:
            return (
                await load(
                    url, request, count=count, connections=CONCURRENCY, expected=expected, first=first
                ),
                await load(
                    bare, request, count=count, connections=CONCURRENCY, expected=expected, first=first
                ),
            )

        drops.append(await both(lambda at: _put(member, at), 201))
        pickups.append(await both(lambda at: _get(member, at), 200))
    del drops[0], pickups[0]  # the first round warmed up
    return [
        _row("relay, durable 4 KB drops, 32 at once", drops),
        Row(
            name="relay, the same drops, p99",
            value=median(percentile(ours.latencies, 99) for ours, _ in drops) * 1000,
            unit="ms",
        ),
        _row("relay, 4 KB pickups, 32 at once", pickups),
    ]


def _row(name: str, loads: list[tuple[Load, Load]]) -> Row:
    return Row(
        name=name,
        value=median(ours.rate for ours, _ in loads),
        unit="/s",
        baseline="a bare Starlette handler",
        baseline_value=median(bare.rate for _, bare in loads),
    )


def _put(member: Member, at: int) -> bytes:
    return b"PUT %s HTTP/1.1\r\n%sIf-None-Match: *\r\nContent-Length: %d\r\n\r\n%s" % (
        _path(member, at),
        _headers(member),
        SMALL_BYTES,
        BODY,
    )


def _get(member: Member, at: int) -> bytes:
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (_path(member, at), _headers(member))


def _path(member: Member, at: int) -> bytes:
    stream = f"{member.device}.{'0' * 16}"
    return f"/v2/vaults/{member.vault}/objects/conversations/{stream}/{at:016d}".encode()


def _headers(member: Member) -> bytes:
    return f"Host: relay\r\nAuthorization: Bearer {member.token}\r\n".encode()


@contextmanager
def _bare_server() -> Generator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_server"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()
