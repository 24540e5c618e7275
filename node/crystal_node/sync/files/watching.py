"""The home's files in ``crystal sync --watch``: a round when a file changed, when the others' tree did, and now and then.

::

    a file of the tree changed (event, or a poll) --> whole scan    \\
    a round of the memory moved the replicated tree --> no scan      +--> a round of files --offered--> wake the memory's round
    the safety net's time --------------------------> whole scan    /

It runs beside the memory's rounds: a large file on its way keeps no conversation waiting. After a failure it waits, longer and
longer; unknown errors end the program, as everywhere.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_mirror.files.round import FILES_TABLE
from crystal_node.base.backoff import Backoff
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.device.device import Device
from crystal_node.sync.files.rounds import rules_of, words

if TYPE_CHECKING:
    from crystal_node.sync.syncer import Syncer

POLL_SECONDS = 300.0
"""The whole tree is looked at this often even if no event comes."""
REST_FACTOR = 5.0
"""A scan is followed by a rest of so many times its length: a large tree under constant change takes a bounded share."""
REST_SECONDS_MIN = 0.5


class FilesWatch:
    """One watcher's part for files. ``moved`` is told after each round of the memory; ``run`` goes on until cancelled."""

    def __init__(
        self, device: Device, syncer: "Syncer", report: Report, uniform: Callable[[float, float], float]
    ) -> None:
        self._device = device
        self._syncer = syncer
        self._report = report
        self._uniform = uniform
        self._wake = asyncio.Event()
        self._scan = True
        self._missed = False
        self._mark: object = None
        self._told = ""
        self._again = asyncio.Event()

    def again(self) -> None:
        """The world has changed meanwhile, as ``Watch.again``: what failed is tried now."""
        gone, self._again = self._again, asyncio.Event()
        gone.set()

    def moved(self) -> None:
        """The memory's round is over: wakes if the replicated tree is another one, or offers of this device may be ordered."""
        tables = self._device.replica.digest().tables
        rows = [(table.sum, table.count) for table in tables if table.name == FILES_TABLE]
        mark = (rows, self._device.journal.outbox_count())
        if mark != self._mark or self._missed:
            self._mark = mark
            self._wake.set()

    async def run(self) -> None:
        """Raises what does not pass by itself."""
        looking = asyncio.create_task(self._look(), name="files of the home")
        backoff = Backoff(self._uniform)
        try:
            while True:
                await self._wait(looking)
                self._wake.clear()
                scan, self._scan = self._scan, False
                started = time.monotonic()
                again = self._again
                try:
                    done = await self._round(scan=scan)
                except Exception as error:
                    if not passes(error):
                        raise
                    self._scan |= scan
                    self._wake.set()
                    pause = backoff.failed()
                    self._tell(f"files: {describe(error).message}; trying again in {pause:.0f} s")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await again.wait()
                    if again.is_set():
                        backoff.restart()
                    continue
                backoff.succeeded()
                self._missed = not done
                self._scan |= scan and not done
                await asyncio.sleep(max(REST_SECONDS_MIN, (time.monotonic() - started) * REST_FACTOR * scan))
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _wait(self, looking: "asyncio.Task[None]") -> None:
        """Until there is something to do. Whoever looks for changes ends by an error only."""
        waiting = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait([waiting, looking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if looking.done():
            looking.result()

    async def _round(self, *, scan: bool) -> bool:
        """Returns False if the memory was not ready for it."""
        report = await self._syncer.files(scan=scan)
        if report is None:
            return False
        moved = words(report)
        if moved:
            self._report(WatchEvent.SYNCED, f"files: {moved}")
        trouble = report.halted or (
            f"{len(report.withheld)} deletions wait for `crystal files confirm`" if report.withheld else ""
        )
        if trouble:
            self._tell(f"files: {trouble}")
        else:
            self._told = ""
        if report.busy:
            self._scan = True
            self._wake.set()
        if report.offered:
            self._device.settings.home.nudge()
        return True

    async def _look(self) -> None:
        """Notes that something in the tree has changed."""
        root = self._device.settings.home.root
        rules = rules_of(self._device)

        def concerns(path: str) -> bool:
            relative = os.path.relpath(path, root)
            return relative != "." and not rules.is_own(relative.replace(os.sep, "/"))

        backoff = Backoff(self._uniform)
        times = ChangeTimes(poll=POLL_SECONDS)
        while True:
            try:
                async with aclosing(changes(lambda: [Path(root)], concerns, times)) as stream:
                    async for _ in stream:
                        self._scan = True
                        self._wake.set()
                        backoff.succeeded()
            except Exception as error:
                if not passes(error):
                    raise
                await asyncio.sleep(backoff.failed())

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._report(WatchEvent.FAILED, text)
        self._told = text
