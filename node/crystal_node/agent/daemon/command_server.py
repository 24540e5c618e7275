"""The agent at its commands desk: what other devices ask for is run beside the rounds (``crystal_node.agent.commands``).

What arrives there was written by other devices. A mistake in handling it is logged and told, and begun anew after a growing
pause; it never ends the agent, else one message could keep a machine from syncing for good.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from crystal_node.base.backoff import Backoff
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent

AGAIN_SECONDS = 60.0
AGAIN_SECONDS_MAX = 3600.0

_log = logging.getLogger("crystal_node.agent.daemon")


class CommandServer(Protocol):
    """The part of ``CommandDesk`` that is used here."""

    async def run(self) -> None:
        """Goes on until it is cancelled. Raises what does not pass by itself."""
        ...

    def close(self) -> None: ...


Served = TypeVar("Served", bound=CommandServer)


async def when_it_opens(open_desk: Callable[[], Served], report: Report) -> Served:
    """The desk, as soon as it can be opened: a damaged file may be moved away while the agent goes on. Raises what does not
    pass by itself."""
    told = ""
    while True:
        try:
            return open_desk()
        except Exception as error:
            if not passes(error):
                raise
            failure = describe(error)
            if failure.message != told:
                report(WatchEvent.FAILED, f"commands: {failure.message}. {failure.hint}".strip())
            told = failure.message
        await asyncio.sleep(AGAIN_SECONDS)


async def serve(desk: CommandServer, report: Report, uniform: Callable[[float, float], float]) -> None:
    """Goes on until it is cancelled, and closes the desk then."""
    backoff = Backoff(uniform, first=AGAIN_SECONDS, most=AGAIN_SECONDS_MAX)
    try:
        while True:
            try:
                await desk.run()
            except Exception as error:  # noqa: BLE001  see above
                _log.exception("commands: what other devices ask for cannot be handled")
                pause = backoff.failed()
                report(
                    WatchEvent.FAILED,
                    f"commands: {describe(error).message}; other devices can ask for nothing for {pause:.0f} s",
                )
                await asyncio.sleep(pause)
    finally:
        desk.close()
