"""The agent at its commands desk: it looks when something was written for it, and has what is due run beside the rounds.

::

    woken by the relay --> look (under the home's sync lock) --> due --> run, one at a time
    a minute without   ----------------------------------------> due     (what a killed agent had begun)

What arrives there was written by other devices. A mistake in handling it is logged and told, and never ends the agent: else one
message could keep a machine from syncing for good.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from crystal_node.backoff import Backoff
from crystal_node.errors import describe, passes
from crystal_node.watch import Report, WatchEvent

DUE_SECONDS = 60.0
"""What is due is looked for this often, even if nothing arrives."""

_log = logging.getLogger("crystal_node.agent")


class Serves(Protocol):
    """The part of ``CommandDesk`` that is used here."""

    def prefixes(self) -> tuple[str, ...]: ...

    async def look(self) -> object: ...

    async def run_due(self) -> object: ...


class ServedDesk:
    """A desk as ``DeviceWork`` has it (``Desk``), and what runs beside it."""

    def __init__(self, desk: Serves, report: Report, uniform: Callable[[float, float], float]) -> None:
        self._desk = desk
        self._report = report
        self._uniform = uniform
        self._due = asyncio.Event()

    def prefixes(self) -> tuple[str, ...]:
        return self._desk.prefixes()

    async def look(self) -> None:
        """Raises what passes by itself: the look is made again."""
        await self._carefully(self._desk.look())
        self._due.set()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        backoff = Backoff(self._uniform)
        while True:
            self._due.clear()
            try:
                await self._carefully(self._desk.run_due())
                backoff.succeeded()
            except Exception as error:
                if not passes(error):
                    raise
                pause = backoff.failed()
                self._report(
                    WatchEvent.FAILED,
                    f"commands: {describe(error).message}; trying again in {pause:.0f} s",
                )
                await asyncio.sleep(pause)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(DUE_SECONDS):
                    await self._due.wait()

    async def _carefully(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception as error:
            if passes(error):
                raise
            _log.exception("commands: a mistake in Crystal")
            self._report(WatchEvent.FAILED, f"commands: a mistake in Crystal: {describe(error).message}")
