"""Threads for blocking calls of an event loop, and a cheap way to return their results to it.

`asyncio.to_thread` costs a wake-up of the loop for each call. Here finished calls are collected until the loop
runs, so a busy loop is woken once for many.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias, TypeVar

from crystal_relay.errors import Busy, Closed

Result = TypeVar("Result")


class Delivery:
    """Hands results from threads to the futures of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def call(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop soon, in the order of the calls. From any thread."""
        self._finished.append(callback)
        if not self._scheduled:
            self._scheduled = True
            # The loop was closed without closing the store: nothing waits for the result.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # The flag is cleared before the queue is read: what is appended from here on is found below or schedules another run.
        self._scheduled = False
        while self._finished:
            self._finished.popleft()()


class Lane:
    """A fixed number of threads with one bounded queue of calls."""

    def __init__(self, name: str, *, threads: int, pending_max: int) -> None:
        self._pending_max = pending_max
        self._pending = 0
        self._closed = False
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(
        self,
        delivery: Delivery,
        call: Callable[[], Result],
        *,
        owed: bool = False,
        leave: bool = False,
        unwanted: Callable[[Result], None] | None = None,
    ) -> Result:
        """Run `call` in a thread. When cancelled, wait for the call to end, so that no file is closed while it uses it.

        `leave`: when cancelled, return at once; the call ends by itself. `unwanted` is called in the loop with the result of a
        call whose caller was cancelled. Raises Busy if too many calls are queued, unless the call is `owed` (it releases
        something); Closed after `close`.
        """
        future: asyncio.Future[Result] = delivery.loop.create_future()
        try:
            report = partial(_settle, future, unwanted)
            self._queue.put(self._admitted(delivery, partial(_outcome, call), report, owed=owed))
            del report
            if leave:
                return await _while_wanted(future, unwanted)
            return await to_its_end(future, unwanted)
        finally:
            # An error's traceback holds this frame, so both and the request would stay until the next garbage collection.
            del future

    def submit(
        self, delivery: Delivery, call: Callable[[], Result], report: Callable[[Result], None]
    ) -> None:
        """Run `call`, which raises nothing, in a thread, and then `report` in the loop. Raises as `run`."""
        self._queue.put(self._admitted(delivery, call, report, owed=False))

    def close(self) -> None:
        """Run the queued calls, then end the threads. Blocks. No caller of `run` may be waiting any more."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _admitted(
        self, delivery: Delivery, call: Callable[[], Result], report: Callable[[Result], None], *, owed: bool
    ) -> Callable[[], None]:
        if self._closed:
            raise Closed("the store is closed")
        if self._pending >= self._pending_max and not owed:
            raise Busy("the store has too much to do")
        self._pending += 1
        return partial(self._call, delivery, call, report)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # or an idle thread would keep its last result and request in memory

    def _call(self, delivery: Delivery, call: Callable[[], Result], report: Callable[[Result], None]) -> None:
        """In a thread."""
        result = call()
        delivery.call(partial(self._report, report, result))
        # An error in a result has a traceback, from which this frame is reached: as in `run`.
        del report, result

    def _report(self, report: Callable[[Result], None], result: Result) -> None:
        self._pending -= 1
        report(result)


_Outcome: TypeAlias = tuple[Result, None] | tuple[None, BaseException]


def _outcome(call: Callable[[], Result]) -> _Outcome[Result]:
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001  (passed on to the caller)
        return None, error


def _settle(
    future: asyncio.Future[Result], unwanted: Callable[[Result], None] | None, outcome: _Outcome[Result]
) -> None:
    if outcome[1] is not None:
        if not future.done():
            future.set_exception(outcome[1])
    elif not future.done():
        future.set_result(outcome[0])
    elif unwanted is not None:
        unwanted(outcome[0])


async def _while_wanted(future: asyncio.Future[Result], unwanted: Callable[[Result], None] | None) -> Result:
    """Await a future. When cancelled, pass its result to `unwanted`: here if it is done, else in `_settle`."""
    try:
        return await future
    except asyncio.CancelledError:
        done = future.done() and not future.cancelled()
        if done and future.exception() is None and unwanted is not None:
            unwanted(future.result())
        raise
    finally:
        del future


async def to_its_end(
    future: asyncio.Future[Result], unwanted: Callable[[Result], None] | None = None
) -> Result:
    """Await a future to its end also if the caller is cancelled; the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    try:
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            # Retrieve the exception, so that asyncio does not report it.
            if future.exception() is None and unwanted is not None:
                unwanted(future.result())
            raise cancelled
        return future.result()
    finally:
        del future, cancelled  # as in `Lane.run`
