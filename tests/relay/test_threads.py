"""Calls in threads for an event loop: what a finished call leaves behind."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Generator
from functools import partial

import pytest

from crystal_relay.threads import Delivery, Lane


class Request:
    """What a call holds."""


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
    """Not the idle thread, and no circle of an error, its traceback and its future, which lasts until the next collection."""
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
