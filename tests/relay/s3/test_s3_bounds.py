"""Memory, connections, spool and pace stay within their bounds, whatever is asked."""

import asyncio
import json
import os
import resource
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from crystal_relay.errors import Busy, StoreFull
from crystal_relay.limits import MIB
from crystal_relay.s3 import Conditions, S3Store
from crystal_relay.s3.settings import WHOLE_BYTES_MAX
from crystal_relay.s3.writes import WAIT_SECONDS_MAX, KeyPacing
from crystal_relay.store import Body
from tests.contract.opened import read
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, s3_store_on

PROJECT = Path(__file__).resolve().parents[3]
BIG_BYTES = 100 * MIB
GROWTH_BYTES_MAX = 24 * MIB
PUT_AND_GET = f"""
import asyncio, json, resource, sys
from crystal_relay.s3 import Conditions, S3Settings, S3Store, parse_s3_address
from crystal_relay.s3.bucket import Bucket
from crystal_relay.store import Body

def high_water():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def pieces(size):
    for _ in range(size // 65536):
        yield bytes(65536)

async def main(endpoint, bucket):
    settings = S3Settings()
    place = Bucket(parse_s3_address("s3://" + bucket, endpoint), settings)
    store = S3Store(place, Conditions.HONOURED, settings=settings)
    async def move(key, size):
        await store.put_new(key, Body(size, lambda: pieces(size)))
        async with await store.get(key) as found:
            return sum([len(piece) async for piece in found])
    await move("v/warm", 4 * 1024 * 1024)
    before = high_water()
    moved = await move("v/big", {BIG_BYTES})
    print(json.dumps({{"moved": moved, "growth": high_water() - before}}))
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def test_an_object_of_a_hundred_mebibytes_goes_in_and_out_in_bounded_memory(rgw_server: S3Server) -> None:
    place = rgw_server.with_new_bucket()
    done = subprocess.run(
        [sys.executable, "-c", PUT_AND_GET, place.endpoint, place.bucket],
        env=dict(os.environ) | place.environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["moved"] == BIG_BYTES
    assert said["growth"] < GROWTH_BYTES_MAX


async def test_large_bodies_beyond_the_room_for_them_are_told_to_come_again(server: S3Server) -> None:
    settings = replace(QUICK, spool_bytes_max=5 * MIB)
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * MIB
            begun.set()
            await go_on.wait()
            yield b"x" * 2 * MIB

        first = asyncio.create_task(store.put_new("v/a", Body(3 * MIB, slow)))
        await begun.wait()
        with pytest.raises(Busy):
            await store.put_new("v/b", b"y" * 3 * MIB)
        await store.put_new("v/small", b"y")
        go_on.set()
        await first
        await store.put_new("v/b", b"y" * 3 * MIB)


async def test_a_spool_that_cannot_be_written_stores_nothing(server: S3Server, tmp_path: Path) -> None:
    settings = replace(QUICK, spool_directory=tmp_path / "gone")
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        with pytest.raises(StoreFull):
            await store.put_new("v/a", b"x" * (WHOLE_BYTES_MAX + 1))
        assert store.operations["put"] == 0


async def test_a_full_disk_for_large_bodies_is_said_as_one_and_recovers(
    server: S3Server, tmp_path: Path
) -> None:
    settings = replace(QUICK, spool_directory=tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
        try:
            with pytest.raises(StoreFull):
                await store.put_new("v/a", b"x" * 4 * MIB)
            await store.put_new("v/small", b"x")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [entry.key for entry in (await store.list("v/")).entries] == ["v/small"]
        await store.put_new("v/a", b"x" * 4 * MIB)


async def test_a_spool_leaves_no_file_behind(server: S3Server, tmp_path: Path) -> None:
    settings = replace(QUICK, spool_directory=tmp_path)
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        await store.put_new("v/a", b"x" * 2 * MIB)
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_slow_readers_of_large_objects_hold_up_no_writer(server: S3Server) -> None:
    settings = replace(QUICK, threads=2, large_threads=2, streams_max=3, stream_wait_seconds=0.2)
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        body = secrets.token_bytes(3 * MIB)
        await store.put_new("v/big", body)
        held = [await store.get("v/big") for _ in range(3)]
        begun = [aiter(one) for one in held]
        for pieces in begun:
            await anext(pieces)
        with pytest.raises(Busy):
            await store.get("v/big")
        await asyncio.gather(*(store.put_new(f"v/{number}", b"x") for number in range(20)))
        assert await read(store, "v/3") == b"x"
        waiting = asyncio.create_task(read(store, "v/big"))
        await held[0].aclose()
        assert await waiting == body
        for one in held:
            await one.aclose()


async def test_a_stalled_reader_is_left_at_once_when_cancelled(store: S3Store, proxy: FaultProxy) -> None:
    await store.put_new("v/a", b"x")
    proxy.next("GET", Fault.STALL)
    reading = asyncio.create_task(store.get("v/a"))
    await asyncio.to_thread(proxy.wait_for, "GET")
    reading.cancel()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert loop.time() - began < QUICK.read_seconds


async def test_what_was_sent_is_counted_by_kind(store: S3Store, proxy: FaultProxy) -> None:
    await store.put_new("v/a", b"x")
    await read(store, "v/a")
    await store.list("v/")
    await store.list("v/", after="w")  # answered without asking
    await store.delete("v/a")
    assert dict(store.operations) == {"put": 1, "get": 1, "list": 1, "delete": 1}
    assert len(proxy.seen) == 4


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_overwrites_of_one_key_are_a_second_apart_and_of_others_are_not() -> None:
    time = Time()
    pace = KeyPacing(1.0, clock=time.clock, sleep=time.sleep)
    for key in ("a", "b", "a", "a", "b"):
        await pace.turn(key)
    assert time.slept == [1.0, 2.0, 1.0]
    time.now += 10
    await pace.turn("a")
    assert len(time.slept) == 3
    for _ in range(int(WAIT_SECONDS_MAX)):
        await pace.turn("a")
    with pytest.raises(Busy):
        await pace.turn("a")


async def test_a_bucket_of_r2_is_overwritten_once_a_second(server: S3Server) -> None:
    settings = replace(QUICK, overwrite_seconds=0.3)
    async with s3_store_on(server, Conditions.HONOURED, settings=settings) as store:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(3):
            await store.put("v/cursor", b"%d" % number)
        assert loop.time() - began >= 0.6
        assert await read(store, "v/cursor") == b"2"
