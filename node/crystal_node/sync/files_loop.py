"""Rounds of the home's files for as long as a watch runs."""

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing, suppress
from math import inf
from pathlib import Path

from crystal_mirror.files.round import FILES_TABLE
from crystal_mirror.files.shared import FilesReport
from crystal_node.base.backoff import Backoff, Uniform
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.device.device import Device
from crystal_node.sync.files.rounds import words
from crystal_node.sync.files.rules import rules_of
from crystal_node.sync.interrupt import Interrupt, pause_for
from crystal_node.sync.syncer import Syncer

POLL_SECONDS = 300.0
"""The home's files are scanned this often even if no event comes."""
REST_FACTOR = 5.0
"""A scan is followed by a rest of this many times its length, another round by one of its length: a share of the machine."""
REST_SECONDS_MIN = 0.5
"""The least rest, except after rounds that fetched, and after scans that find nothing in the first moments of new changes: the
first events are often of folders, and their files follow."""
CALM_SECONDS, FIRST_MOMENTS_SECONDS = 2.0, 0.5
SENT_SECONDS = 0.25
"""Interval at which what a round of files has offered is sent while the round goes on."""


class FilesLoop:
    """Rounds of the home's files, beside those of the memory: a large file on its way delays no conversation.

    ``moved`` is called after each round of the memory; ``run`` goes on until cancelled. ``offered`` is called when there is
    something for a round of the memory to send.
    """

    def __init__(self, device: Device, syncer: Syncer, report: Report, uniform: Uniform) -> None:
        self._device = device
        self._syncer = syncer
        self._report = report
        self._uniform = uniform
        self._wake = asyncio.Event()
        self._scan = True
        self._missed = self._unsent = False
        self._mark: object = None
        self._told = ""
        self._interrupt = Interrupt()
        self._scanned_at = self._stirred_at = self._sent_at = -inf
        self.offered: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Retries now what failed; see ``Watch.wake``."""
        self._interrupt.fire()

    def moved(self) -> None:
        """Starts a round if the replicated tree has changed, or offers of this device may have been ordered."""
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
                interrupt = self._interrupt.event
                try:
                    report = await self._round(scan=scan)
                except Exception as error:
                    if not passes(error):
                        raise
                    self._scan |= scan
                    self._wake.set()
                    pause = backoff.failed()
                    self._tell(f"files: {describe(error).message}; trying again in {pause:.0f} s")
                    await pause_for(pause, backoff, interrupt)
                    continue
                backoff.succeeded()
                self._missed = report is None
                self._scan |= scan and report is None
                await asyncio.sleep(self._rest(report, scan=scan))
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _wait(self, looking: "asyncio.Task[None]") -> None:
        """Waits until there is something to do. ``looking`` ends by an error only."""
        waiting = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait([waiting, looking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if looking.done():
            looking.result()

    def _rest(self, report: FilesReport | None, *, scan: bool) -> float:
        """Seconds after a round."""
        if report is None:  # the end of the memory's round starts the next one
            return 0.0
        now = asyncio.get_running_loop().time()
        if scan:
            if now - self._scanned_at > CALM_SECONDS:
                self._stirred_at = now
            self._scanned_at = now
        least = self._syncer.scan_seconds * (REST_FACTOR if scan else 1.0)
        early = scan and now - self._stirred_at < FIRST_MOMENTS_SECONDS
        if report.fetched or (early and not (report.offered or report.busy)):
            return least
        return max(REST_SECONDS_MIN, least)

    def _offered(self) -> None:
        """Has what was offered sent while the round goes on, in a few entries."""
        now = asyncio.get_running_loop().time()
        self._unsent = now - self._sent_at <= SENT_SECONDS
        if not self._unsent:
            self._sent_at = now
            self.offered()

    async def _round(self, *, scan: bool) -> FilesReport | None:
        """Returns None if the memory was not caught up, so that no round of files was made."""
        self._sent_at, self._unsent = asyncio.get_running_loop().time(), False
        try:
            report = await self._syncer.files(scan=scan, offered=self._offered)
        finally:
            if self._unsent:
                self.offered()
        if report is None:
            return None
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
        return report

    async def _look(self) -> None:
        """Notes that something in the tree has changed."""
        root = self._device.settings.home.root
        rules, above = rules_of(self._device), os.path.join(root, "")  # noqa: PTH118  ends with a separator

        def concerns(path: str) -> bool:
            if not path.startswith(above):  # in other words than the folder that is watched was named by
                path = os.path.join(above, os.path.relpath(path, root))  # noqa: PTH118
            relative = path[len(above) :]
            return relative not in ("", ".") and not rules.is_own(relative.replace(os.sep, "/"))

        backoff = Backoff(self._uniform)
        times = ChangeTimes(poll=POLL_SECONDS)
        while True:
            try:
                async with aclosing(changes(lambda: [Path(root)], concerns, times)) as stream:
                    told = False
                    async for _ in stream:
                        self._scan = True
                        self._wake.set()
                        if told:  # the first look comes even where nothing can be watched
                            backoff.succeeded()
                        told = True
            except Exception as error:
                if not passes(error):
                    raise
                await asyncio.sleep(backoff.failed())

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._report(WatchEvent.FAILED, text)
        self._told = text
