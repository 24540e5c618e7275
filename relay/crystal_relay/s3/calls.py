"""Blocking calls from one event loop, and background work that continues when its caller is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from crystal_relay.s3.settings import PENDING_CALLS_MAX, S3Settings
from crystal_relay.threads import Delivery, Lane

Result = TypeVar("Result")


class Calls:
    """The threads of one store: some for small objects, others for large ones. One event loop."""

    def __init__(self, settings: S3Settings) -> None:
        self.small = Lane("relay-s3", threads=settings.threads, pending_max=PENDING_CALLS_MAX)
        self.large = Lane("relay-s3-large", threads=settings.large_threads, pending_max=PENDING_CALLS_MAX)
        self._delivery: Delivery | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, lane: Lane, call: Callable[[], Result]) -> Result:
        """Run a call in a thread; when cancelled, wait for its end. Raises Busy, Closed."""
        return await lane.run(self._deliver(), call)

    async def receive(self, call: Callable[[], Result], unwanted: Callable[[Result], None]) -> Result:
        """Run a call on the large lane; if the caller is cancelled, `unwanted` gets the result."""
        return await self.large.run(self._deliver(), call, unwanted=unwanted)

    async def ask(
        self, lane: Lane, call: Callable[[], Result], unwanted: Callable[[Result], None] | None = None
    ) -> Result:
        """Run a read-only call; when cancelled, return at once. Raises Busy, Closed."""
        return await lane.run(self._deliver(), call, leave=True, unwanted=unwanted)

    async def release(self, call: Callable[[], None]) -> None:
        """Run a call that releases something: never refused as Busy. Raises Closed."""
        await self.large.run(self._deliver(), call, owed=True)

    async def to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work to its end, also if the caller is cancelled."""
        await asyncio.shield(self.start(work))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work in the background."""
        task = self._deliver().loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def drained(self) -> None:
        """Wait for all background work."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Run the queued calls and end the threads. Blocks."""
        self.small.close()
        self.large.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it

    def _deliver(self) -> Delivery:
        loop = asyncio.get_running_loop()
        if self._delivery is None:
            self._delivery = Delivery(loop)
        elif self._delivery.loop is not loop:
            raise RuntimeError("an S3Store belongs to one event loop")
        return self._delivery
