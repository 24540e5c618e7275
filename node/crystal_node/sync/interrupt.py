"""Pauses of the loops of continuous sync, and what ends all of them at once."""

import asyncio
from contextlib import suppress

from crystal_node.base.backoff import Backoff


class Interrupt:
    """An event that wakes all who wait now, and nobody who begins to wait later."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def fire(self) -> None:
        fired, self.event = self.event, asyncio.Event()
        fired.set()


async def pause_for(seconds: float, backoff: Backoff, interrupt: asyncio.Event) -> None:
    """Sleeps, unless interrupted since the attempt began; an interrupt resets the backoff."""
    await until(interrupt, seconds)
    if interrupt.is_set():
        backoff.restart()


async def until(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # `wait_for` swallows a cancellation that comes with the event
            await event.wait()
