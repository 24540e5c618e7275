"""What goes on at the store while a flow works: writes that it does not wait for yet, and what it will ask for next."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from crystal_mirror.requests import Flow, GetBlobs, Progress, PutBlobs, StoreFailure
from crystal_node.device.runner import BEHIND_BYTES_MAX, Runner
from crystal_relay import errors
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body, Object

_PREFIX = "v/00000000000000000000000000000000/blob/"
_A, _B, _C = (_PREFIX + name * 64 for name in "abc")


class _Held(MemoryStore):
    """A store that answers reads and writes only once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.fails: BaseException | None = None

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._hold(key)
        await super().put_new(key, body)
        self.ended.append(key)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        await self._hold(key)
        found = await super().get(key, start=start, length=length)
        self.ended.append(key)
        return found

    async def _hold(self, key: str) -> None:
        self.asked.append(key)
        await self.go.wait()
        if self.fails is not None:
            raise self.fails


async def test_a_flow_goes_on_while_blobs_are_written_and_relies_on_them_only_when_they_are_durable() -> None:
    store = _Held()
    seen: list[Sequence[str]] = []

    def flow() -> Flow[None]:
        yield PutBlobs(((_A, b"a"),), behind=True)
        seen.append(list(store.ended))
        yield Progress("sending", 1, 2)
        seen.append(list(store.asked))
        store.go.set()
        yield PutBlobs(())
        seen.append(list(store.ended))

    await Runner(store, None).run(flow())
    assert seen == [[], [_A], [_A]]


async def test_a_write_that_failed_behind_a_flow_is_thrown_into_it_before_it_relies_on_any() -> None:
    store = _Held()
    store.fails = errors.StoreUnavailable("away")
    store.go.set()
    caught: list[str] = []

    def flow() -> Flow[str]:
        yield PutBlobs(((_A, b"a"),), behind=True)
        yield Progress("sending", 1, 2)
        try:
            yield PutBlobs(())
        except StoreFailure as failure:
            caught.append(str(failure))
        return "ended"

    assert await Runner(store, None).run(flow()) == "ended"
    assert caught == ["away"]


async def test_only_so_many_bytes_are_written_behind_a_flow() -> None:
    store = _Held()
    half = bytes(BEHIND_BYTES_MAX // 2)

    def flow() -> Flow[None]:
        yield PutBlobs(((_A, half),), behind=True)
        yield PutBlobs(((_B, half),), behind=True)
        assert store.ended == [], "both are on their way"
        yield PutBlobs(((_C, b"more"),), behind=True)
        assert store.ended[:1] == [_A], "there was no room for a third"
        yield PutBlobs(())

    running = asyncio.create_task(Runner(store, None).run(flow()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.asked == [_A, _B]
    store.go.set()
    await running
    assert sorted(store.ended) == [_A, _B, _C]


@pytest.mark.parametrize("cancelled", [True, False])
async def test_what_nobody_waits_for_any_more_ends_with_the_run(cancelled: bool) -> None:
    store = _Held()
    await MemoryStore.put_new(store, _C, b"c")
    before = asyncio.all_tasks()
    raised = RuntimeError("the flow has a mistake")

    def flow() -> Flow[None]:
        yield PutBlobs(((_A, b"a"),), behind=True)
        yield Progress("sending", 1, 2)
        if not cancelled:
            raise raised
        yield PutBlobs(())

    running = asyncio.create_task(Runner(store, None).run(flow()))
    for _ in range(20):
        await asyncio.sleep(0)
    if cancelled:
        running.cancel()
    outcome = (await asyncio.gather(running, return_exceptions=True))[0]
    assert isinstance(outcome, asyncio.CancelledError) if cancelled else outcome is raised
    assert asyncio.all_tasks() == before
    assert store.ended == []


async def test_what_is_wanted_next_is_fetched_while_the_flow_works_and_only_once() -> None:
    store = _Held()
    for key, body in ((_A, b"a"), (_B, b"b"), (_C, b"c")):
        await MemoryStore.put_new(store, key, body)
    store.go.set()

    def flow() -> Flow[list[Any]]:
        first = yield GetBlobs((_A,), (1,), GetBlobs((_B, _C), (1, 1)))
        for _ in range(5):
            yield Progress("fetching", 1, 2)
        assert store.ended == [_A, _B, _C], "the next ones are here already"
        return [first, (yield GetBlobs((_C, _B, _A), (1, 1, 1)))]

    assert await Runner(store, None).run(flow()) == [[b"a"], [b"c", b"b", b"a"]]
    assert store.asked == [_A, _B, _C, _A]


async def test_a_blob_that_was_fetched_ahead_with_another_limit_is_not_taken_for_the_one_that_is_wanted() -> (
    None
):
    store = _Held()
    await MemoryStore.put_new(store, _A, b"aaa")
    await MemoryStore.put_new(store, _B, b"bbb")
    store.go.set()

    def flow() -> Flow[list[Any]]:
        first = yield GetBlobs((_A,), (3,), GetBlobs((_B,), (1,)))
        return [first, (yield GetBlobs((_B,), (3,)))]

    assert await Runner(store, None).run(flow()) == [[b"aaa"], [b"bbb"]]


async def test_a_failure_of_what_was_fetched_ahead_is_thrown_when_it_is_wanted() -> None:
    store = _Held()
    await MemoryStore.put_new(store, _A, b"a")
    store.go.set()

    def flow() -> Flow[str]:
        yield GetBlobs((_A,), (1,), GetBlobs((_B,), (1,)))
        store.fails = errors.StoreUnavailable("away")
        yield Progress("fetching", 1, 2)
        try:
            yield GetBlobs((_B,), (1,))
        except StoreFailure as failure:
            return str(failure)
        return "none"

    assert await Runner(store, None).run(flow()) == "away"
