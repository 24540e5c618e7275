"""An 8 MiB blob up and down: straight to the bucket, through the relay, and by boto3 bare; same server, same run, in turns.

Each figure is of one device with one transfer at a time. What the relay's own process had to carry is a row of its own: that
is what direct transfers are for.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from statistics import median

from bench.harness import Row, ratio_at_least, value_at_most
from crystal_relay.client.http import HttpStore
from crystal_relay.limits import BLOB_BYTES_MAX
from tests.support.direct_relay import BucketRelay, bucket_relay
from tests.support.relay_server import Member, enrolled
from tests.support.s3_servers import S3Server, running_moto, running_rgw

BODY = os.urandom(BLOB_BYTES_MAX)
MIB = 1024 * 1024
RATIO = 0.5
"""Direct transfers make two requests to the relay and one HEAD more; on loopback these weigh more than on any network."""

Work = Callable[[int], Awaitable[None]]


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    with _server() as server, bucket_relay(server) as relay:
        return asyncio.run(_rows(server, relay, rounds=5 if quick else 15))


@contextmanager
def _server() -> Generator[S3Server]:
    """Ceph where it is installed. The trial whether direct puts are safe there is left out: it is speed that counts here."""
    with running_rgw() if shutil.which("radosgw") else running_moto() as server:
        yield server


async def _rows(server: S3Server, relay: BucketRelay, *, rounds: int) -> list[Row]:
    member = await enrolled(relay.url)
    direct = HttpStore(relay.url, vault=member.vault, token=member.token)
    through = HttpStore(relay.url, vault=member.vault, token=member.token, direct=False)
    bare = _Bare(server)
    works: dict[str, tuple[Work, Work]] = {
        "direct": _works(direct, member, "direct"),
        "through": _works(through, member, "through"),
        "bare": (bare.put, bare.get),
    }
    seconds: dict[tuple[str, int], list[float]] = {}
    passed = 0
    for number in range(rounds + 1):
        for name, both in works.items():
            before = relay.store.passed_bytes
            for way, work in enumerate(both):
                began = time.perf_counter()
                await work(number)
                if number:  # the first round warms up connections
                    seconds.setdefault((name, way), []).append(time.perf_counter() - began)
            if name == "direct":
                passed += relay.store.passed_bytes - before
    await direct.aclose()
    await through.aclose()
    note = f"on {'Ceph RGW' if server.name == 'rgw' else server.name}, loopback"
    rows = [
        Row(
            name=f"8 MiB blob {way_name}, {how}",
            value=_rate(seconds[name, way]),
            unit="MiB/s",
            baseline="boto3 bare",
            baseline_value=_rate(seconds["bare", way]),
            target=ratio_at_least(RATIO) if name == "direct" else None,
            note=note,
        )
        for way, way_name in enumerate(("up", "down"))
        for name, how in (("direct", "straight to the bucket"), ("through", "through the relay"))
    ]
    carried = Row(
        name="8 MiB blobs straight to the bucket: bytes of them at the relay",
        value=passed,
        unit="bytes",
        target=value_at_most(0),
    )
    return [*rows, carried]


def _works(store: HttpStore, member: Member, name: str) -> tuple[Work, Work]:
    async def put(number: int) -> None:
        await store.put_new(f"{member.prefix}blob/{name}-{number}", BODY)

    async def get(number: int) -> None:
        count = 0
        async with await store.get(f"{member.prefix}blob/{name}-{number}") as found:
            async for piece in found:
                count += len(piece)
        if count != len(BODY):
            raise RuntimeError("the blob came back with another size")

    return put, get


class _Bare:
    def __init__(self, server: S3Server) -> None:
        self._client = server.client()
        self._bucket = server.bucket

    async def put(self, number: int) -> None:
        await asyncio.to_thread(
            self._client.put_object, Bucket=self._bucket, Key=f"bare/{number}", Body=BODY, IfNoneMatch="*"
        )

    async def get(self, number: int) -> None:
        def read() -> None:
            self._client.get_object(Bucket=self._bucket, Key=f"bare/{number}")["Body"].read()

        await asyncio.to_thread(read)


def _rate(seconds: list[float]) -> float:
    return len(BODY) / MIB / median(seconds)
