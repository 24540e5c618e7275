"""Continuous sync: what ``crystal sync --watch`` and the background service do until they are told to stop.

``Watch`` is the only loop. It drives a ``WatchTarget`` (``DeviceTarget`` on a real device) and, beside it, a ``FilesLoop``::

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
import os
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Protocol

from crystal_mirror.files.round import FILES_TABLE
from crystal_mirror.files.shared import FilesReport
from crystal_mirror.handover.core import look_for_calls
from crystal_mirror.handover.terms import due_in_ms
from crystal_mirror.membership.changes import shown_slot, vault_changes
from crystal_mirror.repair.audit import newcomer_is_stuck
from crystal_mirror.store_keys import StoreKeys
from crystal_node.base.backoff import Backoff
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.capture.recorder import Recorder
from crystal_node.device.device import Device
from crystal_node.sync.files.rounds import words
from crystal_node.sync.files.rules import rules_of
from crystal_node.sync.members.news import line_of
from crystal_node.sync.syncer import Syncer

TURN_SECONDS = 0.2
"""Pause between two rounds when the first left something to do; longer than the lock's polling interval."""
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

Uniform = Callable[[float, float], float]


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
        files: "FilesLoop | None" = None,
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
        self._interrupt = _Interrupt()
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
            await _until(self._wake, min(safety, self._target.due()))
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
                await _pause(self._tell(error, backoff), backoff, interrupt)
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
            await _until(self._local, min(self._times.pause * 2.0**doublings, self._times.idle_pause))

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
                await _pause(backoff.failed(), backoff, interrupt)
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
                await _pause(self._tell(error, backoff), backoff, interrupt)

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
        self._interrupt = _Interrupt()
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
                    await _pause(pause, backoff, interrupt)
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


class DeviceTarget:
    """A real device as the target of a watch: its relay, its transcripts, and news of its vault."""

    def __init__(
        self,
        device: Device,
        syncer: Syncer,
        report: Report,
        rounded: Callable[[], None] = lambda: None,
    ) -> None:
        """``report`` is told news of the vault and duties that failed. ``rounded`` is called after each round."""
        self._rounded = rounded
        self._device = device
        self._report = report
        self._told_slot = shown_slot(device.member)
        self._told_problem = ""
        self._told_strange: Path | None = None
        self._syncer = syncer
        self._recorder = Recorder(device, nudges=False)
        self._keys = StoreKeys(device.member.vault)
        self._nudge = device.settings.home.nudge_file
        self._look = device.settings.home.look_file
        self._cursor_written = False
        self._looked: dict[str, str] = {}
        self._more = False

    async def capture(self, paths: frozenset[str] | None) -> str:
        changed = None if paths is None else {Path(path) for path in paths} - {self._nudge}
        if changed == set():
            return ""
        # A process that asks for a look knows no path: a hook may come before the file system's event, or where there are none.
        chosen = None if changed is None or self._look in changed else sorted(changed)
        report = await self._recorder.record(chosen)
        spots = report.counts.spots
        # A tool may write such lines all day: each file is reported once, as long as no other one is met.
        if spots and spots[0].path != self._told_strange:
            self._told_strange = spots[0].path
            self._report(WatchEvent.PROGRESS, f"capture: {report.counts.strange_words()}")
        return report.words()

    async def round(self) -> str:
        heed, self._cursor_written = self._cursor_written, False
        try:
            result = await self._syncer.brief_round(heed_cursors=heed, enough=lambda: self._cursor_written)
        except Exception:
            self._cursor_written |= heed
            raise
        finally:
            self._tell_news()
        if result.problem and result.problem != self._told_problem:
            self._report(WatchEvent.FAILED, f"{result.problem}; it is tried again")
        self._told_problem = result.problem
        self._rounded()
        self._more = result.report.more or result.embedded > 0
        if self._more:
            await asyncio.sleep(TURN_SECONDS)
        return result.words()

    def listens(self) -> tuple[str, ...]:
        keys, member = self._keys, self._device.member
        if member.is_core:
            return keys.log_prefix, keys.conversations_prefix, keys.cursor_prefix
        lead = member.log.lead
        core = () if lead is None or lead.is_freeze else (keys.cursor(lead.device),)
        return keys.log_prefix, keys.mirror_prefix, *core

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        if not prefix.startswith(self._keys.cursor_prefix):
            return await self._syncer.wait(prefix, token, seconds)
        # Most cursors only report a position: they are read, and wake no round unless they ask something of this device.
        looked = self._looked.get(prefix)
        fresh = await self._syncer.wait(prefix, looked, seconds)
        if fresh != looked:
            called = await self._syncer.run(look_for_calls(self._device.member))
            called |= newcomer_is_stuck(self._device.member)
            self._looked[prefix] = fresh
            self._cursor_written |= called
            if called:
                return fresh
        return token if token is not None else fresh

    def due(self) -> float:
        if self._more:
            return 0.0
        left = due_in_ms(self._device.member, now_ms())
        vectors = max(self._syncer.vectors_due(), 1.0)  # the last round made none
        return min(inf if left is None else left / 1000, vectors)

    def folders(self) -> list[Path]:
        return [*self._recorder.folders(), self._nudge.parent]

    def concerns(self, path: str) -> bool:
        return self.wakes(path) or Path(path) == self._look or self._recorder.concerns(Path(path))

    def wakes(self, path: str) -> bool:
        return Path(path) == self._nudge

    def _tell_news(self) -> None:
        """Reports news of the vault as it happens. It stays unread news: perhaps nobody reads along."""
        member = self._device.member
        for change in vault_changes(member, self._told_slot):
            self._report(WatchEvent.NEWS, line_of(change, member.device_id))
        self._told_slot = max(self._told_slot, member.log.next_slot - 1)


class _Interrupt:
    """An event that wakes all who wait now, and nobody who begins to wait later."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def fire(self) -> None:
        fired, self.event = self.event, asyncio.Event()
        fired.set()


async def _pause(seconds: float, backoff: Backoff, interrupt: asyncio.Event) -> None:
    """Sleeps, unless interrupted since the attempt began; an interrupt resets the backoff."""
    await _until(interrupt, seconds)
    if interrupt.is_set():
        backoff.restart()


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # `wait_for` swallows a cancellation that comes with the event
            await event.wait()
