"""A coroutine that begins at once, and goes on as a task if it has to wait."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from crystal_relay.server.eager import EagerTask, run_eagerly


def _own(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, tasks: set[Any]) -> None:
    """What Python 3.11 gets, in every Python."""
    eager = EagerTask(coroutine, loop, tasks.discard)
    eager.step()
    if not eager.done:
        tasks.add(eager)


Run = Callable[[Coroutine[Any, Any, None], asyncio.AbstractEventLoop, "set[Any]"], None]


class Runs:
    """Runs coroutines as a protocol does: called by the loop, within no task."""

    def __init__(self, run: Run) -> None:
        self.tasks: set[Any] = set()
        self.log: list[str] = []
        self._run = run

    async def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Returns in the turn after the one in which it began."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self.log.append("before")
            self._run(coroutine, loop, self.tasks)
            self.log.append("after")

        loop.call_soon(begin)
        await asyncio.sleep(0)

    async def ended(self) -> None:
        async with asyncio.timeout(20):
            while self.tasks:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.001)


@pytest.fixture(params=[_own, run_eagerly], ids=["own", "as used"])
def runs(request: pytest.FixtureRequest) -> Runs:
    return Runs(request.param)


async def test_what_need_not_wait_is_done_at_once_and_leaves_no_task(runs: Runs) -> None:
    async def work() -> None:
        runs.log.append("work")

    await runs.start(work())
    assert runs.log == ["before", "work", "after"]
    assert not runs.tasks


async def test_what_waits_goes_on_when_its_future_is_done(runs: Runs) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        runs.log.append(await future)
        await asyncio.sleep(0)
        runs.log.append("end")

    await runs.start(work())
    assert (runs.log, len(runs.tasks)) == (["before", "after"], 1)
    future.set_result("result")
    await runs.ended()
    assert runs.log[2:] == ["result", "end"]


async def test_a_future_s_error_is_raised_where_it_is_awaited(runs: Runs) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await future
        except KeyError as error:
            runs.log.append(repr(error))

    await runs.start(work())
    future.set_exception(KeyError("k"))
    await runs.ended()
    assert runs.log[2:] == ["KeyError('k')"]


async def test_a_stopping_server_cancels_what_waits(runs: Runs) -> None:
    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            runs.log.append("cancelled")
            await asyncio.sleep(0)
            runs.log.append("tidied up")
            raise

    await runs.start(work())
    (task,) = runs.tasks
    assert task.cancel(msg="stopping")
    await runs.ended()
    assert runs.log[2:] == ["cancelled", "tidied up"]
    assert not task.cancel()


async def test_a_cancellation_between_two_turns_is_not_lost(runs: Runs) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            runs.log.append("cancelled")

    loop = asyncio.get_running_loop()
    run = runs.start(work())
    loop.call_soon(lambda: loop.call_soon(lambda: [each.cancel() for each in runs.tasks]))
    await run
    await runs.ended()
    assert runs.log[2:] == ["cancelled"]


async def test_timeouts_work_within(runs: Runs) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(0.01):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            runs.log.append("timeout")
        assert task.cancelling() == 0
        assert asyncio.current_task() is task
        async with asyncio.timeout(20):
            await asyncio.sleep(0.001)
        runs.log.append("end")

    await runs.start(work())
    await runs.ended()
    assert runs.log[2:] == ["timeout", "end"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio's own task reports it when it is forgotten")
async def test_an_error_that_nobody_catches_is_reported(runs: Runs) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def work() -> None:
        raise KeyError("k")

    await runs.start(work())
    assert runs.log == ["before", "after"]
    assert [type(each["exception"]) for each in reported] == [KeyError]
    assert not runs.tasks
