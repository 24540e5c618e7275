"""What all routes share: the current settings, threads for blocking work, and the open memory.

A device is opened for each request that needs one, and closed after it: keys that were moved, a home that was restored or a
lock that another process holds concern that request alone.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from crystal_node.base.settings import Settings
from crystal_node.device.device import Device, opened
from crystal_node.search.finding.client import MemoryClient
from crystal_node.search.finding.keeper import Keeper, OpenMemory
from crystal_node.surfaces.gateway.limits import IDLE_SECONDS, THREADS_MAX

T = TypeVar("T")


class Backend:
    """Close it at the end."""

    def __init__(
        self, resolve: Callable[[], Settings], open_memory: Callable[[Settings], OpenMemory] = MemoryClient
    ) -> None:
        """``resolve`` gives the settings as they are at its call."""
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gateway")
        self._kept = Keeper(resolve, idle_seconds=IDLE_SECONDS, open_memory=open_memory)

    @property
    def settings(self) -> Settings:
        """As they are now. Raises BadConfig."""
        return self._resolve()

    async def thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def find(self, question: Callable[[OpenMemory], T]) -> T:
        """Ask the memory."""
        return await self.thread(lambda: self._kept.ask(question))

    async def with_device(self, work: Callable[[Device], T]) -> T:
        """Run it with this device opened. Raises what ``Device.open`` raises."""

        def inside() -> T:
            with opened(self.settings) as device:
                return work(device)

        return await self.thread(inside)

    async def let_go_when_idle(self) -> None:
        """Close the memory whenever it was not used for a while. Does not return."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 2)
            await self.thread(self._kept.rest)

    def close(self) -> None:
        """Close without waiting: what still runs in a thread ends with the process, and loses nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._kept.close()
