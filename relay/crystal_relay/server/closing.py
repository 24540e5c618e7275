"""Waits that end when the relay is told to stop, and when their client goes."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive

from crystal_relay.server.requests import ClientGone, gone


class Waits:
    """The long polls that sleep. A stopping relay ends them all, so that it need not wait a minute for them."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Task[str]] = set()
        self._closing = False

    @property
    def sleeping(self) -> int:
        """How many sleep."""
        return len(self._sleeping)

    def close(self) -> None:
        """End all waits, and every later one at once."""
        self._closing = True
        for task in self._sleeping:
            task.cancel()

    async def race(self, wait: Coroutine[object, object, str], receive: Receive) -> str | None:
        """The wait's result; None if the relay is stopping. Raises ClientGone, and what the wait raises."""
        if self._closing:
            wait.close()
            return None
        sleeping = asyncio.create_task(wait)
        leaving = asyncio.create_task(gone(receive))
        self._sleeping.add(sleeping)
        try:
            await asyncio.wait((sleeping, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sleeping.done():
                raise ClientGone
            return None if sleeping.cancelled() else sleeping.result()
        finally:
            self._sleeping.discard(sleeping)
            sleeping.cancel()
            leaving.cancel()
            await asyncio.gather(sleeping, leaving, return_exceptions=True)
