"""The local store by itself: durable drops, pickups and lists, beside what a file for each object would cost."""

import asyncio
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from bench.harness import Row, percentile, value_at_least, value_at_most
from bench.relay_load import CONCURRENCY, SMALL_BYTES, Load, concurrently, on_uvloop
from crystal_relay.local import LocalStore

BODY = os.urandom(SMALL_BYTES)


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    count = 2_000 if quick else 10_000
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as directory:
        return on_uvloop(lambda: _store(Path(directory), count, rounds))


async def _store(directory: Path, count: int, rounds: int) -> list[Row]:
    drops: list[Load] = []
    pickups: list[Load] = []
    pages: list[float] = []
    files: list[float] = []
    for number in range(rounds):
        store = LocalStore(directory / f"store-{number}")
        keys = [f"v/a/conversations/d/{at:016d}" for at in range(count)]
        drops.append(await concurrently(keys, partial(_drop, store)))
        pickups.append(await concurrently(keys, partial(_pick_up, store)))
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
            note="the most recent 32 MiB are in memory",
        ),
        Row(name="local store, a list of 100", value=median(pages) * 1000, unit="ms"),
    ]


async def _drop(store: LocalStore, key: str) -> None:
    await store.put_new(key, BODY)


async def _pick_up(store: LocalStore, key: str) -> None:
    await (await store.get(key)).read()


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
