"""What all routes share: the settings as they are now, threads for what blocks, and the kept memory.

A device is opened for each request that needs one and closed behind it: keys that were moved, a home that was restored or a
lock that another process holds concern that request alone.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from crystal_node.base.settings import Settings
from crystal_node.device.device import Device, opened
from crystal_node.search.finding.finder import MemorySearch
from crystal_node.search.finding.keeper import Keeper
from crystal_node.surfaces.gateway.limits import IDLE_SECONDS, THREADS_MAX

T = TypeVar("T")


class Backend:
    """Close it at the end."""

    def __init__(self, resolve: Callable[[], Settings]) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gateway")
        self._kept = Keeper(resolve, idle_seconds=IDLE_SECONDS)

    @property
    def settings(self) -> Settings:
        """As they are now. Raises BadConfig."""
        return self._resolve()

    async def thread(self, work: Callable[[], T]) -> T:
        """Does it beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def find(self, question: Callable[[MemorySearch], T]) -> T:
        """Asks the memory."""
        return await self.thread(lambda: self._kept.ask(question))

    async def with_device(self, work: Callable[[Device], T]) -> T:
        """Does it with this device opened. Raises what ``Device.open`` raises."""

        def inside() -> T:
            with opened(self.settings) as device:
                return work(device)

        return await self.thread(inside)

    async def let_go_when_idle(self) -> None:
        """For ever: closes what nobody has asked for a while."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 2)
            await self.thread(self._kept.rest)

    def close(self) -> None:
        """Waits for nobody: what still runs in a thread ends with the process, and loses nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._kept.close()
