"""The store in a bucket beside what boto3 does bare with as many threads: same server, same run, in turns.

The bare figure is a pool of threads that call the SDK with the same configuration of its client, and nothing else: no event
loop, no conditions, no digest.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

from boto3.session import Session

from bench.harness import Row, ratio_at_least
from crystal_relay.s3 import Conditions, S3Settings, S3Store, parse_s3_address
from crystal_relay.s3.bucket import Bucket
from crystal_relay.s3.client import Wire, make_client
from tests.support.s3_servers import S3Server, running_moto, running_rgw
from tests.support.s3_servers.server import REGION

THREADS = 16
BODY = os.urandom(4096)
LARGE_BODY = os.urandom(8 * 1024 * 1024)
LISTED = 100
RATIO = 0.8


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    with _server() as server:
        return _rows(server, count=320 if quick else 1_600, rounds=3 if quick else 7)


@contextmanager
def _server() -> Generator[S3Server]:
    """Ceph where it is installed: moto's own work is many times the SDK's and would hide ours."""
    with running_rgw() if shutil.which("radosgw") else running_moto() as server:
        yield server


def _rows(server: S3Server, *, count: int, rounds: int) -> list[Row]:
    settings = S3Settings(threads=THREADS)
    address = parse_s3_address(f"s3://{server.bucket}", server.endpoint)
    session = Session(server.access_key, server.secret_key, region_name=REGION)
    bare = _Bare(make_client(address, settings, Wire(), session), server.bucket)
    rates: dict[str, tuple[list[float], list[float]]] = {}

    async def measure() -> None:
        store = S3Store(Bucket(address, settings, session), Conditions.HONOURED, settings=settings)
        for turn in range(-1, rounds):
            for name, ours, theirs, times in _works(store, bare, turn, count):
                pair = (await _ours(ours, times), await asyncio.to_thread(bare.rate, theirs, times))
                if turn >= 0:  # the first turn warms up connections
                    found = rates.setdefault(name, ([], []))
                    found[0].append(pair[0])
                    found[1].append(pair[1])
        await store.aclose()

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure())
    bare.threads.shutdown()
    return [
        Row(
            name=f"bucket: {name}, {THREADS} threads",
            value=median(ours),
            unit="/s",
            baseline="boto3 bare",
            baseline_value=median(theirs),
            target=ratio_at_least(RATIO),
            note=f"on {'Ceph RGW' if server.name == 'rgw' else server.name}",
        )
        for name, (ours, theirs) in rates.items()
    ]


_Ours = Callable[[int], Coroutine[Any, Any, object]]
_Theirs = Callable[[int], object]


def _works(store: S3Store, bare: "_Bare", turn: int, count: int) -> list[tuple[str, _Ours, _Theirs, int]]:
    place = f"v/{turn + 1}/"

    async def put(number: int) -> None:
        await store.put_new(f"{place}ours/{number:06d}", BODY)

    async def get(number: int) -> None:
        assert await (await store.get(f"{place}ours/{number:06d}")).read() == BODY

    async def page(number: int) -> None:
        assert len((await store.list(f"{place}ours/", limit=LISTED)).entries) == LISTED

    async def put_large(number: int) -> None:
        await store.put_new(f"{place}large/{number:06d}", LARGE_BODY)

    async def get_large(number: int) -> None:
        async with await store.get(f"{place}large/{number:06d}") as found:
            assert sum([len(piece) async for piece in found]) == len(LARGE_BODY)

    large = max(8, count // 100)  # all turns together stay well below the 4 GiB of the server's store
    return [
        ("durable 4 KB puts", put, partial(bare.put, place, BODY), count),
        ("4 KB gets", get, partial(bare.get, place), count),
        (f"lists of {LISTED}", page, partial(bare.page, place), count // 4),
        ("8 MiB puts", put_large, partial(bare.put, f"{place}large-", LARGE_BODY), large),
        ("8 MiB gets", get_large, partial(bare.get, f"{place}large-"), large),
    ]


async def _ours(work: _Ours, count: int) -> float:
    """Calls a second, with two of them waiting for each thread, as under load."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await work(number)

    began = time.perf_counter()
    await asyncio.gather(*(go_on() for _ in range(2 * THREADS)))
    return count / (time.perf_counter() - began)


class _Bare:
    """The SDK's client and threads."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self.threads = ThreadPoolExecutor(THREADS)

    def rate(self, work: _Theirs, count: int) -> float:
        """Calls a second."""
        began = time.perf_counter()
        for _ in self.threads.map(work, range(count)):
            pass
        return count / (time.perf_counter() - began)

    def put(self, place: str, body: bytes, number: int) -> None:
        self._client.put_object(Bucket=self._bucket, Key=f"{place}bare/{number:06d}", Body=body)

    def get(self, place: str, number: int) -> None:
        found = self._client.get_object(Bucket=self._bucket, Key=f"{place}bare/{number:06d}")
        assert found["Body"].read()

    def page(self, place: str, number: int) -> None:
        found = self._client.list_objects_v2(
            Bucket=self._bucket, Prefix=f"{place}bare/", MaxKeys=LISTED, StartAfter=f"{place}bare/"
        )
        assert len(found["Contents"]) == LISTED
