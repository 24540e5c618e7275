"""Calls in threads for an event loop: a finished call leaves nothing in memory."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Generator
from functools import partial

import pytest

from crystal_relay.threads import Delivery, Lane


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
