"""Calls in threads for an event loop: a finished call leaves nothing in memory."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Generator
from functools import partial
from threading import get_ident

import pytest

from crystal_relay.threads import Delivery, Lane


async def test_calls_of_one_turn_that_go_to_a_thread_together_end_each_by_itself() -> None:
    lane = Lane("test", threads=2, pending_max=100, together=4)
    delivery = Delivery(asyncio.get_running_loop())

    def call(number: int) -> tuple[int, int]:
        if number % 5 == 3:
            raise ValueError(number)
        return number, get_ident()

    async def ask(number: int) -> tuple[int, int] | None:
        with contextlib.suppress(ValueError):
            return await lane.run(delivery, partial(call, number), leave=number % 2 == 0)
        return None

    async with asyncio.timeout(10):
        found = await asyncio.gather(*(ask(number) for number in range(11)))
    assert [None if each is None else each[0] for each in found] == [0, 1, 2, None, 4, 5, 6, 7, None, 9, 10]
    for batch in (found[:4], found[4:8], found[8:]):
        assert len({each[1] for each in batch if each is not None}) == 1
    await asyncio.to_thread(lane.close)


class Request:
    """Stands for a request that a call holds."""


@pytest.fixture
def lane() -> Generator[Lane]:
    lane = Lane("test", threads=1, pending_max=2)
    yield lane
    lane.close()


def answered(_: Request) -> int:
    return 1


def refused(_: Request) -> int:
    raise ValueError("no")


@pytest.mark.parametrize("call", [answered, refused])
@pytest.mark.parametrize("leave", [False, True])
async def test_nothing_keeps_the_request_of_a_finished_call(lane: Lane, call: object, leave: bool) -> None:
    """Neither the idle thread nor a cycle of an error, its traceback and its future, which garbage collection frees late."""
    assert callable(call)
    request = Request()
    held = weakref.ref(request)
    delivery = Delivery(asyncio.get_running_loop())
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await lane.run(delivery, partial(call, request), leave=leave)
        del request
        async with asyncio.timeout(5):
            while held() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
