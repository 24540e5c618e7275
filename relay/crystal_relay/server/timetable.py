"""When the sweeper runs: every minute or few, at moments that differ between processes, one sweep at a time."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from crystal_relay.server.sweeper import Sweeper, Swept

FIRST_SECONDS_MAX = 5.0
"""A process that has just started looks soon: its predecessor may have been killed in the middle."""
JITTER_SHARE = 10

_log = logging.getLogger("crystal_relay.server")


class Timetable:
    """Of one relay process."""

    def __init__(self, sweeper: Sweeper, *, seconds: float) -> None:
        """`seconds` between two sweeps; 0: none."""
        self._sweeper = sweeper
        self._seconds = seconds
        self._scheduler: Any = None
        self._sweep: asyncio.Task[Swept] | None = None

    def start(self) -> None:
        """Begin, on the running loop. Idempotent."""
        if self._scheduler is not None or not self._seconds:
            return
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
        from apscheduler.triggers.interval import IntervalTrigger

        trigger = IntervalTrigger(
            seconds=max(1, round(self._seconds)), jitter=self._seconds / JITTER_SHARE, timezone=UTC
        )
        first = datetime.now(UTC) + timedelta(seconds=min(FIRST_SECONDS_MAX, self._seconds))
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._scheduler.add_job(
            self._begin, trigger, next_run_time=first, misfire_grace_time=None, coalesce=True, max_instances=1
        )
        self._scheduler.start()

    async def aclose(self) -> None:
        """End a sweep that is under way: the next process takes it up. Idempotent."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return
        scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # it shuts down in the loop's next turn
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.wait({self._sweep})

    async def _begin(self) -> None:
        # A task of our own: the scheduler would log a sweep that is cancelled at the end as a failure.
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._sweeper.run())
            self._sweep.add_done_callback(_log_mistake)


def _log_mistake(sweep: asyncio.Task[Swept]) -> None:
    if not sweep.cancelled() and (error := sweep.exception()) is not None:
        _log.error("the sweeper made a mistake", exc_info=error)
