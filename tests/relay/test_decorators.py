"""Retrying, around a real store that fails on purpose."""

from collections.abc import AsyncIterator
from enum import Enum

import pytest

from crystal_relay.decorators import REPEATED_READ_BYTES_MAX, RetryingStore, RetryPolicy
from crystal_relay.errors import (
    AlreadyExists,
    BodyTooLarge,
    Busy,
    Closed,
    Forbidden,
    NotFound,
    RelayError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body, Object, Page

KEY = "v/a/mirror/1/1"


class Fault(Enum):
    """What happens to a call: nothing, not done, or done and the reply lost."""

    NONE = "none"
    BEFORE = "before"
    AFTER = "after"
    BUSY = "busy"
    MIDWAY = "midway"


class FaultyStore(MemoryStore):
    """Takes the next fault of its list for each call."""

    def __init__(self, *faults: Fault | RelayError) -> None:
        super().__init__()
        self.faults: list[Fault | RelayError] = list(faults)
        self.calls = 0

    async def put_new(self, key: str, body: bytes | Body) -> None:
        fault = self._next()
        await super().put_new(key, body)
        self._after(fault)

    async def put(self, key: str, body: bytes | Body) -> None:
        fault = self._next()
        await super().put(key, body)
        self._after(fault)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        fault = self._next()
        found = await super().get(key, start=start, length=length)
        if fault is not Fault.MIDWAY:
            return found

        async def breaking() -> AsyncIterator[bytes]:
            yield b"x"
            raise StoreUnavailable("broke off")

        return Object(breaking(), size=found.size, start=found.start, length=found.length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        self._next()
        return await super().list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        fault = self._next()
        await super().delete(key)
        self._after(fault)

    def _next(self) -> Fault:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else Fault.NONE
        if isinstance(fault, RelayError):
            raise fault
        if fault is Fault.BEFORE:
            raise StoreUnavailable("not done")
        if fault is Fault.BUSY:
            raise Busy("not now")
        return fault

    def _after(self, fault: Fault) -> None:
        if fault is Fault.AFTER:
            raise StoreUnavailable("the reply was lost")


def retrying(store: FaultyStore, *, tries: int = 4) -> tuple[RetryingStore, list[float]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    policy = RetryPolicy(tries=tries, first_seconds=1, longest_seconds=4)
    return RetryingStore(store, policy=policy, sleep=sleep, random=lambda: 0.5), slept


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.BUSY])
async def test_everything_is_repeated_after_a_failure_that_may_pass(fault: Fault) -> None:
    store = FaultyStore(*[fault, Fault.NONE] * 5)
    repeated, _ = retrying(store)
    await repeated.put_new(KEY, b"data")
    await repeated.put(KEY, b"other")
    if fault is not Fault.AFTER:
        assert await (await repeated.get(KEY)).read() == b"other"
        assert len((await repeated.list("v/")).entries) == 1
    await repeated.delete(KEY)
    with pytest.raises(NotFound):
        await store.get(KEY)


async def test_a_create_whose_reply_was_lost_is_a_success() -> None:
    store = FaultyStore(Fault.AFTER)
    repeated, _ = retrying(store)
    await repeated.put_new(KEY, b"data" * 100_000)
    assert await (await store.get(KEY)).read() == b"data" * 100_000


@pytest.mark.parametrize("other", [b"", b"datb", b"dat", b"data and more"])
async def test_a_create_that_lost_a_race_is_not_a_success(other: bytes) -> None:
    store = FaultyStore(Fault.NONE, Fault.BEFORE)
    await store.put_new(KEY, other)
    repeated, _ = retrying(store)
    with pytest.raises(AlreadyExists):
        await repeated.put_new(KEY, b"data")
    assert await (await store.get(KEY)).read() == other


async def test_a_first_try_that_finds_the_key_taken_is_not_read_back() -> None:
    store = FaultyStore()
    await store.put_new(KEY, b"data")
    repeated, _ = retrying(store)
    with pytest.raises(AlreadyExists):
        await repeated.put_new(KEY, b"data")
    assert store.calls == 2


async def test_reading_back_compares_streams_of_other_pieces() -> None:
    data = bytes(range(256)) * 4_000

    async def in_odd_pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(data), 777):
            yield data[begin : begin + 777]

    store = FaultyStore(Fault.AFTER)
    repeated, _ = retrying(store)
    await repeated.put_new(KEY, Body(len(data), in_odd_pieces))
    store.faults = [Fault.BEFORE]
    changed = data[:-1] + b"?"
    with pytest.raises(AlreadyExists):
        await repeated.put_new(KEY, changed)


async def test_a_body_that_cannot_be_read_again_is_not_sent_again() -> None:
    async def once() -> AsyncIterator[bytes]:
        yield b"data"

    store = FaultyStore(Fault.BEFORE)
    repeated, slept = retrying(store)
    with pytest.raises(StoreUnavailable):
        await repeated.put_new(KEY, Body(4, once, repeatable=False))
    assert (store.calls, slept) == (1, [])


async def test_a_read_that_breaks_off_is_begun_again() -> None:
    store = FaultyStore(Fault.NONE, Fault.MIDWAY, Fault.MIDWAY)
    await store.put_new(KEY, b"0123456789")
    repeated, _ = retrying(store)
    found = await repeated.get(KEY, start=2, length=5)
    assert (found.size, found.start, found.length) == (10, 2, 5)
    assert await found.read() == b"23456"


async def test_a_long_read_streams_and_its_breaking_off_is_an_error() -> None:
    store = FaultyStore(Fault.NONE, Fault.MIDWAY)
    await store.put_new(KEY, bytes(REPEATED_READ_BYTES_MAX + 1))
    repeated, _ = retrying(store)
    with pytest.raises(StoreUnavailable):
        await (await repeated.get(KEY)).read()


async def test_pauses_double_are_cut_at_random_and_bounded_and_tries_end() -> None:
    store = FaultyStore(*[Fault.BEFORE] * 9)
    repeated, slept = retrying(store, tries=6)
    with pytest.raises(StoreUnavailable):
        await repeated.list("v/")
    assert slept == [0.75, 1.5, 3.0, 3.0, 3.0]
    assert store.calls == 6


@pytest.mark.parametrize(
    "error",
    [Forbidden("x"), NotFound("x"), StoreFull("x"), StoreDamaged("x"), BodyTooLarge("x"), Closed("x")],
)
async def test_what_repeating_cannot_help_is_not_repeated(error: RelayError) -> None:
    store = FaultyStore(error)
    repeated, slept = retrying(store)
    with pytest.raises(type(error)):
        await repeated.put_new(KEY, b"")
    assert (store.calls, slept) == (1, [])
