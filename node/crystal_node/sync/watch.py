"""Continuous sync: what ``crystal sync --watch`` and the background service do until they are told to stop.

``Watch`` drives a ``WatchTarget`` (``device_target.py`` on a real device) and, beside it, a ``FilesLoop`` (``files_loop.py``)::

    transcripts  a transcript grew (or a poll, or a nudge) -------> capture --> wake, if something was accepted
    relay        a long-poll says that something for us arrived -------------> wake
    rounds       wake, or the safety interval -----------> lock, one round of sync, unlock
    files        a file of the home changed (or a poll), or a round moved the tree --> a round of files --offered--> wake

A failure of the network, the relay or the disk is reported and retried with a growing pause and jitter. Capture goes on
meanwhile: recording never waits for a network. ``wake`` ends all pauses and waits; it is called after sleep or on another
network, when earlier failures say nothing any more. An unknown error ends the program, so that its supervisor sees it. All
intervals are monotonic: a wrong clock changes nothing here.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from crystal_node.base.backoff import Backoff, Uniform
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.sync.files_loop import FilesLoop
from crystal_node.sync.interrupt import Interrupt, pause_for, until


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds, unless the name says otherwise."""

    files: ChangeTimes = field(default_factory=ChangeTimes)
    long_poll: float = 50.0
    safety_round: float = 300.0
    """A round runs about this often even if nothing seems to happen."""
    pause: float = 0.02
    """Between rounds, to collect changes that come close together."""
    idle_pause: float = 2.0
    """The pause grows up to this while rounds find nothing to do, so that a relay that wakes us for nothing cannot keep us
    busy. Local work ends it."""
    idle_rounds: int = 8
    """Rounds without work before the pause grows."""
    stop_grace: float = 5.0
    """Time for a round under way to end by itself when the watch is stopped."""


class WatchTarget(Protocol):
    """What a watch drives."""

    async def capture(self, paths: frozenset[str] | None) -> str:
        """Captures from these transcripts, or from all. Returns what was accepted, "" if nothing was."""
        ...

    async def round(self) -> str:
        """Runs one round of sync under the home's lock. Returns what moved, "" if nothing did."""
        ...

    def listens(self) -> tuple[str, ...]:
        """The prefixes of keys that others write for this device in its present role. What it writes itself, or only the other
        role reads, must not wake it: each round costs the relay some requests."""
        ...

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        """The store's long-poll."""
        ...

    def due(self) -> float:
        """Seconds after which a round is wanted even if nothing happens."""
        ...

    def folders(self) -> list[Path]:
        """Folders to watch, whether they exist or not."""
        ...

    def concerns(self, path: str) -> bool:
        """Whether a changed file is a transcript or the nudge."""
        ...

    def wakes(self, path: str) -> bool:
        """Whether this changed file asks for a round by itself: another process of this device accepted something."""
        ...


class Watch:
    """The loops over one target. ``run`` returns when ``stop`` is set."""

    def __init__(
        self,
        target: WatchTarget,
        *,
        report: Report,
        stop: asyncio.Event,
        uniform: Uniform,
        times: WatchTimes | None = None,
        files: FilesLoop | None = None,
    ) -> None:
        self._target = target
        self._report = report
        self._stop = stop
        self._uniform = uniform
        self._times = times or WatchTimes()
        self._files = files
        self._wake = asyncio.Event()
        self._local = asyncio.Event()
        self._rounded = asyncio.Event()
        self._interrupt = Interrupt()
        if files is not None:
            files.offered = self._accepted

    def wake(self) -> None:
        """Scans everything, starts a round and new waits now, and resets all pauses."""
        self._interrupt.fire()
        self._wake.set()
        self._local.set()
        if self._files is not None:
            self._files.wake()

    async def run(self) -> None:
        """Works until ``stop`` is set.

        Raises:
            Exception: what a loop raised that does not pass by itself (``errors.passes``).
        """
        self._wake.set()
        rounds = asyncio.create_task(self._rounds(), name="rounds")
        transcripts = asyncio.create_task(self._transcripts(), name="transcripts")
        relay = asyncio.create_task(self._relay(), name="relay")
        loops = [rounds, transcripts, relay]
        beside: list[asyncio.Task[Any]] = [asyncio.create_task(self._stop.wait(), name="stop")]
        if self._files is not None:
            beside.append(asyncio.create_task(self._files.run(), name="files"))
        try:
            await asyncio.wait([*loops, *beside], return_when=asyncio.FIRST_COMPLETED)
            self._stop.set()
            self._wake.set()
            self._local.set()
            self._interrupt.fire()
            transcripts.cancel()
            relay.cancel()
            await asyncio.wait(loops, timeout=self._times.stop_grace)
        finally:
            for task in (*loops, *beside):
                task.cancel()
            outcomes = await asyncio.gather(*loops, *beside, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _rounds(self) -> None:
        backoff = Backoff(self._uniform)
        idle = 0
        while not self._stop.is_set():
            safety = self._times.safety_round * self._uniform(0.75, 1.25)
            await until(self._wake, min(safety, self._target.due()))
            if self._stop.is_set():
                return
            self._wake.clear()
            interrupt = self._interrupt.event
            try:
                moved = await self._target.round()
                self._rounded.set()
            except Exception as error:
                if not passes(error):
                    raise
                await pause_for(self._tell(error, backoff), backoff, interrupt)
                self._wake.set()
                continue
            if backoff.failures:
                self._report(WatchEvent.RECOVERED, "syncing again")
            backoff.succeeded()
            if moved:
                self._report(WatchEvent.SYNCED, moved)
            idle = 0 if moved or self._target.due() == 0.0 else idle + 1
            await self._rest(idle)

    async def _rest(self, idle: int) -> None:
        doublings = max(idle - self._times.idle_rounds, 0)
        self._local.clear()
        await asyncio.sleep(self._times.pause)
        if doublings:
            await until(self._local, min(self._times.pause * 2.0**doublings, self._times.idle_pause))

    async def _relay(self) -> None:
        """One long-poll for each prefix. A round may change the role, and the prefixes with it."""
        polls: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                wanted = self._target.listens()
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
            interrupt = self._interrupt.event
            try:
                fresh = await self._unless_interrupted(
                    self._target.wait(prefix, token, self._times.long_poll)
                )
            except Exception as error:
                if not passes(error):
                    raise
                # A round meets the same failure and reports it. The first one asks for a round at once, so that a dead relay
                # does not look like a quiet one for minutes.
                if not backoff.failures:
                    self._wake.set()
                await pause_for(backoff.failed(), backoff, interrupt)
                continue
            backoff.succeeded()
            if fresh is not None and fresh != token:
                token = fresh
                self._wake.set()

    async def _transcripts(self) -> None:
        backoff = Backoff(self._uniform)
        while True:
            interrupt = self._interrupt.event
            try:
                async with aclosing(
                    changes(self._target.folders, self._target.concerns, self._times.files)
                ) as stream:
                    told = False
                    async for paths in stream:
                        await self._capture(paths)
                        if told:  # the first look comes even where nothing can be watched
                            backoff.succeeded()
                        told = True
            except Exception as error:
                if not passes(error):
                    raise
                self._accepted()  # perhaps: no report tells of what was recorded before the failure
                await pause_for(self._tell(error, backoff), backoff, interrupt)

    async def _capture(self, paths: frozenset[str] | None) -> None:
        accepted = await self._target.capture(paths)
        if accepted:
            self._report(WatchEvent.CAPTURED, accepted)
        if accepted or (paths and any(map(self._target.wakes, paths))):
            self._accepted()

    def _accepted(self) -> None:
        """Starts a round for what this device has to send."""
        self._local.set()
        self._wake.set()

    async def _unless_interrupted(self, waiting: Coroutine[Any, Any, str]) -> str | None:
        """The result of ``waiting``; None if ``wake`` came first, which cancels it."""
        task = asyncio.create_task(waiting)
        interrupted = asyncio.create_task(self._interrupt.event.wait())
        try:
            await asyncio.wait([task, interrupted], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            interrupted.cancel()
            await asyncio.gather(task, interrupted, return_exceptions=True)

    def _tell(self, error: Exception, backoff: Backoff) -> float:
        """Reports a failure that passes and returns how long to wait."""
        pause = backoff.failed()
        failure = describe(error)
        self._report(
            WatchEvent.FAILED, f"{failure.message}; trying again in {pause:.0f} s. {failure.hint}".strip()
        )
        return pause
