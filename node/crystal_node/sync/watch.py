"""Continuous sync: what ``crystal sync --watch`` does until it is told to stop.

Three tasks, each simple by itself, and one event that joins them::

    files      a transcript grew (or a poll, or a nudge) ---> capture ---> wake, if something was accepted
    relay      a long-poll says that something for us arrived ------------> wake
    rounds     wake, or the safety net's time -----------> lock, one round of sync, unlock

A failure of the network, the relay or the disk is told and tried again, later and later, with jitter; capture
goes on meanwhile, so that nothing waits for a network to be recorded. ``again`` ends all pauses and waits: after sleep, or on
another network, what failed before says nothing. An unknown error ends the program:
whoever supervises it sees that, instead of a process that pretends to work. Time is monotonic: a wrong clock
changes nothing here.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from crystal_mirror.files.round import FILES_TABLE
from crystal_node.base.backoff import Backoff
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.device.device import Device
from crystal_node.sync.files.rounds import rules_of, words

if TYPE_CHECKING:
    from crystal_node.sync.syncer import Syncer


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds, unless the name says otherwise."""

    files: ChangeTimes = field(default_factory=ChangeTimes)
    long_poll: float = 50.0
    safety_round: float = 300.0
    """A round is done about this often even if nothing seemed to happen."""
    pause: float = 0.02
    """Between rounds: what comes right after something else goes along with it."""
    idle_pause: float = 2.0
    """The pause grows up to this when round after round found nothing to do, so that a relay that wakes us for nothing
    cannot keep us busy. Local work ends it."""
    idle_rounds: int = 8
    """Rounds without work before the pause grows."""
    stop_grace: float = 5.0
    """A round under way when we are told to stop may take this long to end by itself."""


class WatchTarget(Protocol):
    """What the watcher drives."""

    async def capture(self, paths: frozenset[str] | None) -> str:
        """One capture pass over these transcripts, or over all. Says what was accepted, "" if nothing was."""
        ...

    async def round(self) -> str:
        """One round of sync under the home's lock. Says what moved, "" if nothing did."""
        ...

    def listens(self) -> tuple[str, ...]:
        """The prefixes of keys that others write for this device in its present role.

        What this device writes itself, and what only those in the other role read, must not wake it: each round costs
        whoever runs the relay some requests.
        """
        ...

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        """The store's long-poll."""
        ...

    def due(self) -> float:
        """A round is wanted after this many seconds at the latest, even if nothing happens."""
        ...

    def folders(self) -> list[Path]:
        """Folders to watch, whether they exist already or not."""
        ...

    def concerns(self, path: str) -> bool:
        """Whether a changed file is a transcript or the nudge."""
        ...

    def wakes(self, path: str) -> bool:
        """Whether this changed file asks for a round by itself: another process of this device accepted something."""
        ...


class Watch:
    """One watcher over some work. ``run`` returns when ``stop`` is set."""

    def __init__(
        self,
        work: WatchTarget,
        *,
        report: Report,
        stop: asyncio.Event,
        uniform: Callable[[float, float], float],
        times: WatchTimes | None = None,
    ) -> None:
        self._work = work
        self._report = report
        self._stop = stop
        self._uniform = uniform
        self._times = times or WatchTimes()
        self._wake = asyncio.Event()
        self._local = asyncio.Event()
        self._rounded = asyncio.Event()
        self._again = asyncio.Event()

    def again(self) -> None:
        """The world has changed meanwhile: a look at everything, a round and new waits now, and short pauses again."""
        gone, self._again = self._again, asyncio.Event()
        gone.set()
        self._wake.set()
        self._local.set()

    async def run(self) -> None:
        """Works until ``stop`` is set.

        Raises:
            whatever a task raised that does not pass by itself (``errors.passes``).
        """
        self._wake.set()
        rounds = asyncio.create_task(self._rounds(), name="rounds")
        files = asyncio.create_task(self._files(), name="files")
        relay = asyncio.create_task(self._relay(), name="relay")
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([rounds, files, relay, stopped], return_when=asyncio.FIRST_COMPLETED)
            self._stop.set()
            self._wake.set()
            self._local.set()
            self._again.set()
            files.cancel()
            relay.cancel()
            await asyncio.wait([rounds, files, relay], timeout=self._times.stop_grace)
        finally:
            for task in (rounds, files, relay, stopped):
                task.cancel()
            outcomes = await asyncio.gather(rounds, files, relay, stopped, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _rounds(self) -> None:
        backoff = Backoff(self._uniform)
        idle = 0
        while not self._stop.is_set():
            safety = self._times.safety_round * self._uniform(0.75, 1.25)
            await _until(self._wake, min(safety, self._work.due()))
            if self._stop.is_set():
                return
            self._wake.clear()
            again = self._again
            try:
                moved = await self._work.round()
                self._rounded.set()
            except Exception as error:
                if not passes(error):
                    raise
                await self._pause(self._tell(error, backoff), backoff, again)
                self._wake.set()
                continue
            if backoff.failures:
                self._report(WatchEvent.RECOVERED, "syncing again")
            backoff.succeeded()
            if moved:
                self._report(WatchEvent.SYNCED, moved)
            idle = 0 if moved else idle + 1
            await self._rest(idle)

    async def _rest(self, idle: int) -> None:
        doublings = max(idle - self._times.idle_rounds, 0)
        self._local.clear()
        await asyncio.sleep(self._times.pause)
        if doublings:
            await _until(self._local, min(self._times.pause * 2.0**doublings, self._times.idle_pause))

    async def _relay(self) -> None:
        """One long-poll for each prefix. A round may have changed the role, and with it the prefixes."""
        polls: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                wanted = self._work.listens()
                for prefix in polls.keys() - set(wanted):
                    polls.pop(prefix).cancel()
                for prefix in wanted:
                    if prefix not in polls:
                        polls[prefix] = asyncio.create_task(self._poll(prefix), name=f"poll {prefix}")
                self._rounded.clear()
                rounded = asyncio.create_task(self._rounded.wait(), name="rounded")
                try:
                    await asyncio.wait([rounded, *polls.values()], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    rounded.cancel()
                for poll in polls.values():
                    if poll.done():
                        poll.result()  # a poll ends by an error only
        finally:
            for poll in polls.values():
                poll.cancel()
            await asyncio.gather(*polls.values(), return_exceptions=True)

    async def _poll(self, prefix: str) -> None:
        backoff = Backoff(self._uniform)
        token: str | None = None
        while True:
            again = self._again
            try:
                fresh = await self._unless_again(self._work.wait(prefix, token, self._times.long_poll))
            except Exception as error:
                if not passes(error):
                    raise
                # A round meets the same failure and tells it; here it only must not become a busy loop. The first one asks
                # for a round now: somebody who looks should not believe for minutes that a dead relay is a quiet one.
                if not backoff.failures:
                    self._wake.set()
                await self._pause(backoff.failed(), backoff, again)
                continue
            backoff.succeeded()
            if fresh is not None and fresh != token:
                token = fresh
                self._wake.set()

    async def _files(self) -> None:
        backoff = Backoff(self._uniform)
        while True:
            again = self._again
            try:
                async with aclosing(
                    changes(self._work.folders, self._work.concerns, self._times.files)
                ) as stream:
                    async for paths in stream:
                        await self._take(paths)
                        backoff.succeeded()
            except Exception as error:
                if not passes(error):
                    raise
                await self._pause(self._tell(error, backoff), backoff, again)

    async def _unless_again(self, waiting: Coroutine[Any, Any, str]) -> str | None:
        """What it comes to; None if ``again`` came first, which ends it."""
        task, again = asyncio.create_task(waiting), asyncio.create_task(self._again.wait())
        try:
            await asyncio.wait([task, again], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            again.cancel()
            await asyncio.gather(task, again, return_exceptions=True)

    async def _pause(self, seconds: float, backoff: Backoff, again: asyncio.Event) -> None:
        """So long, or until ``again`` comes, or not at all if it came since what failed began."""
        await _until(again, seconds)
        if again.is_set():
            backoff.restart()

    async def _take(self, paths: frozenset[str] | None) -> None:
        accepted = await self._work.capture(paths)
        if accepted:
            self._report(WatchEvent.CAPTURED, accepted)
        if accepted or (paths and any(map(self._work.wakes, paths))):
            self._local.set()
            self._wake.set()

    def _tell(self, error: Exception, backoff: Backoff) -> float:
        """Reports a failure that passes and returns how long to wait."""
        pause = backoff.failed()
        failure = describe(error)
        self._report(
            WatchEvent.FAILED, f"{failure.message}; trying again in {pause:.0f} s. {failure.hint}".strip()
        )
        return pause


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # `wait_for` swallows a cancellation that comes with the event
            await event.wait()


POLL_SECONDS = 300.0
"""The whole tree is looked at this often even if no event comes."""
REST_FACTOR = 5.0
"""A scan is followed by a rest of so many times its length: a large tree under constant change takes a bounded share."""
REST_SECONDS_MIN = 0.5


class FilesLoop:
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
