"""Runs the commands of other devices beside the rounds (``crystal_node.agent.commands``).

Other devices wrote these commands. A bug in handling one is logged and reported, and handling begins again after a growing
pause; it never ends the process, else one message could keep a machine from syncing for good.
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
    """The part of ``CommandService`` that is used here."""

    async def run(self) -> None:
        """Run until it is cancelled. Raises what does not pass by itself."""
        ...

    def close(self) -> None: ...


Served = TypeVar("Served", bound=CommandServer)


async def open_when_possible(open_service: Callable[[], Served], report: Report) -> Served:
    """The service, once it can be opened: a damaged file may be moved away meanwhile. Raises what does not pass by itself."""
    told = ""
    while True:
        try:
            return open_service()
        except Exception as error:
            if not passes(error):
                raise
            failure = describe(error)
            if failure.message != told:
                report(WatchEvent.FAILED, f"commands: {failure.message}. {failure.hint}".strip())
            told = failure.message
        await asyncio.sleep(AGAIN_SECONDS)


async def serve(service: CommandServer, report: Report, uniform: Callable[[float, float], float]) -> None:
    """Run it until this is cancelled, then close it."""
    backoff = Backoff(uniform, first=AGAIN_SECONDS, most=AGAIN_SECONDS_MAX)
    try:
        while True:
            try:
                await service.run()
            except Exception as error:  # noqa: BLE001  see above
                _log.exception("commands: what other devices ask for cannot be handled")
                pause = backoff.failed()
                report(
                    WatchEvent.FAILED,
                    f"commands: {describe(error).message}; other devices can ask for nothing for {pause:.0f} s",
                )
                await asyncio.sleep(pause)
    finally:
        service.close()
