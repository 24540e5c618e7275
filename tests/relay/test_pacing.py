"""The limit on bytes a second: kept over time whatever moves, and never in the way of what steers."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from crystal_relay.decorators import BURST_SECONDS, RATE_MIN, STREAMS_MAX, Pace, PacedStore
from crystal_relay.errors import NotFound, StoreUnavailable
from crystal_relay.limits import KIB, MIB
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body, Object, Store
from tests.support.relay_server import enrolled, served

VAULT = "v/" + "ab" * 16 + "/"
BLOB, ENTRY, CURSOR, LOG = (
    VAULT + name
    for name in ("blob/a", "mirror/0000000001/0000000000000000", "cursor/" + "c" * 32, "devlog/0")
)
RATE = 64 * KIB


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds
        await asyncio.sleep(0)


def paced(store: Store, time: Time, *, up: int = 0, down: int = 0) -> PacedStore:
    made = [Pace(rate, clock=time.clock, sleep=time.sleep) for rate in (up, down)]
    return PacedStore(store, up=made[0], down=made[1])


async def _moved(store: Store, way: str, size: int) -> None:
    if way == "up":
        await store.put_new(BLOB, bytes(size))
    else:
        await (await store.get(BLOB)).read()


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("size", [MIB, 4 * MIB])
async def test_content_takes_as_long_as_its_bytes_at_that_rate(way: str, size: int) -> None:
    below, time = MemoryStore(), Time()
    if way == "down":
        await below.put_new(BLOB, bytes(size))
    await _moved(paced(below, time, up=RATE, down=RATE), way, size)
    assert time.slept == pytest.approx(size / RATE - BURST_SECONDS)


@pytest.mark.parametrize("key", [BLOB, ENTRY, VAULT + "conversations/" + "d" * 32 + "." + "e" * 16 + "/0"])
async def test_many_small_objects_have_the_same_limit_as_one_big_one(key: str) -> None:
    time = Time()
    store = paced(MemoryStore(), time, up=RATE, down=RATE)
    for number in range(512):
        await store.put_new(f"{key}{number}", bytes(2 * KIB))
    assert time.slept == pytest.approx(MIB / RATE - BURST_SECONDS, rel=0.01)
    time.slept, time.now = 0, time.now + 60
    for number in range(512):
        await (await store.get(f"{key}{number}")).read()
    assert time.slept == pytest.approx(MIB / RATE - BURST_SECONDS, rel=0.01)


async def test_a_long_pause_is_not_made_up_for_by_a_burst() -> None:
    time = Time()
    store = paced(MemoryStore(), time, up=RATE)
    time.now += 3600
    await store.put_new(BLOB, bytes(MIB))
    assert time.slept == pytest.approx(MIB / RATE - BURST_SECONDS)


async def test_what_moves_is_what_was_given() -> None:
    below, time = MemoryStore(), Time()
    store = paced(below, time, up=RATE, down=RATE)
    content = secrets.token_bytes(100_001)

    async def pieces() -> AsyncIterator[bytes]:
        yield content[:70_000]
        yield content[70_000:]

    await store.put_new(BLOB, content)
    await store.put_new(ENTRY, Body(len(content), pieces))
    for key in (BLOB, ENTRY):
        assert await (await below.get(key)).read() == content
        assert await (await store.get(key)).read() == content
        part = await store.get(key, start=5, length=50_000)
        assert (await part.read(), part.size, part.start) == (content[5:50_005], len(content), 5)


async def test_cursors_and_the_device_log_never_wait_and_are_counted() -> None:
    below, time = MemoryStore(), Time()
    store = paced(below, time, up=RATE, down=RATE)
    await store.put_new(BLOB, bytes(RATE))
    slept = time.slept
    for number in range(32):
        await store.put(CURSOR, bytes(8 * KIB))
        await store.put_new(f"{LOG}{number}", bytes(8 * KIB))
        await (await store.get(CURSOR)).read()
        await store.list(VAULT)
        await (await store.get(BLOB, length=1)).read()
    assert time.slept == slept
    await store.put_new(ENTRY, b"x")
    assert time.slept - slept == pytest.approx(32 * 16 * KIB / RATE, rel=0.01), (
        "the content behind them waits"
    )


async def test_a_cursor_passes_a_blob_that_is_under_way() -> None:
    """By the real clock: the blob would take half a minute."""
    store = PacedStore(MemoryStore(), up=Pace(RATE_MIN), down=Pace(0))
    blob = asyncio.create_task(store.put_new(BLOB, bytes(MIB // 2)))
    await asyncio.sleep(0.01)
    began = time.monotonic()
    await store.put(CURSOR, b"position")
    assert time.monotonic() - began < 10
    assert not blob.done()
    blob.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blob
    with pytest.raises(NotFound):
        await store.get(BLOB)


async def test_no_limit_is_no_delay() -> None:
    time = Time()
    store = paced(MemoryStore(), time)
    await store.put_new(BLOB, bytes(8 * MIB))
    await (await store.get(BLOB)).read()
    assert time.slept == 0


@pytest.mark.parametrize(("rate", "most"), [(RATE_MIN, 1), (4 * RATE, 4), (100 * MIB, STREAMS_MAX)])
async def test_the_slower_the_fewer_streams_at_once(rate: int, most: int) -> None:
    running = seen = 0

    class Counting(MemoryStore):
        async def put_new(self, key: str, body: bytes | Body) -> None:
            nonlocal running, seen
            running += 1
            seen = max(seen, running)
            await asyncio.sleep(0)
            await super().put_new(key, body)
            running -= 1

    store = paced(Counting(), Time(), up=rate)
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(store.put_new(f"{ENTRY}{number}", bytes(20 * KIB)))
    assert seen == most


async def _read(found: Object) -> None:
    await found.read()


async def _left(found: Object) -> None:
    await found.aclose()


async def _broken(found: Object) -> None:
    async for _ in found:
        break
    await found.aclose()


@pytest.mark.parametrize("end", [_read, _left, _broken])
async def test_a_place_comes_back_however_a_read_ends(end: Callable[[Object], Awaitable[None]]) -> None:
    class Failing(MemoryStore):
        fails = False

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            if self.fails:
                raise StoreUnavailable("away")
            return await super().get(key, start=start, length=length)

    below = Failing()
    await below.put_new(BLOB, bytes(100 * KIB))
    store = paced(below, Time(), down=RATE)
    for _ in range(3):
        await end(await asyncio.wait_for(store.get(BLOB), 5))
        below.fails = True
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.get(BLOB), 5)
        below.fails = False


async def test_a_real_transfer_keeps_to_the_rate_both_ways() -> None:
    """Over loopback and by the real clock: 256 KiB at as many a second, half of which the bucket gives at once."""
    rate, content = 256 * KIB, secrets.token_bytes(256 * KIB)
    async with served(MemoryStore()) as relay:
        member = await enrolled(relay.url)
        client = member.store(relay.url)
        store = PacedStore(client, up=Pace(rate), down=Pace(rate))
        key = f"{member.prefix}blob/a"
        for moved in (_sent, _fetched):
            began = time.monotonic()
            await moved(store, key, content)
            assert 0.45 <= time.monotonic() - began < 20
        await client.aclose()


async def _sent(store: Store, key: str, content: bytes) -> None:
    await store.put_new(key, content)


async def _fetched(store: Store, key: str, content: bytes) -> None:
    assert await (await store.get(key)).read() == content
