"""A device, its relay and its transcripts, driven by ``watch.py``, with signals and words: what ``crystal sync --watch`` does,
and the agent with more beside it."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from crystal_mirror.handover.core import look_for_calls
from crystal_mirror.handover.terms import due_in_ms
from crystal_mirror.membership.changes import shown_slot, vault_changes
from crystal_mirror.store_keys import StoreKeys
from crystal_node.agent.heartbeat import Pulse
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import Schedule
from crystal_node.base.clock import now_ms
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.base.wording import clock_time, iso, printable
from crystal_node.capture.recorder import Recorder
from crystal_node.device.device import Device
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.members.news import line_of
from crystal_node.sync.syncer import Syncer
from crystal_node.sync.watch import FilesLoop, Watch, WatchTimes
from crystal_relay.store import renew

if TYPE_CHECKING:
    from crystal_relay.store import Store

_WATCH_LOCK_SECONDS = 1.0
TURN_SECONDS = 0.2
"""Between two rounds of which the first left something to do: longer than whoever waits for the home looks away."""
POSITION_SECONDS = 900.0
"""A watcher tells the others how far it is at most this often: with ten devices each message would else cost ten writes."""


class DeviceTarget:
    """What the watcher drives, on a real device."""

    def __init__(
        self,
        device: Device,
        store: "Store",
        syncer: Syncer,
        report: Report,
        rounded: Callable[[], None] = lambda: None,
    ) -> None:
        """``report`` is told what is beside the work: news of the vault, and what could not be done for it. ``rounded`` is
        called after each round."""
        self._rounded = rounded
        self._device = device
        self._report = report
        self._told_slot = shown_slot(device.member)
        self._told_problem = ""
        self._told_strange: Path | None = None
        self._syncer = syncer
        self._recorder = Recorder(device)
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
        # Whoever asks for a look knows no path: a hook may come before the file system's event, or where there are none.
        chosen = None if changed is None or self._look in changed else sorted(changed)
        report = await self._recorder.record(chosen)
        spots = report.counts.spots
        # A tool may write such lines all day: each file is told once, as long as no other one is met.
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
        self._more = result.report.more
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
        # Most cursors are reports that ask nothing of this device: they are looked at, and wake no round.
        looked = self._looked.get(prefix)
        fresh = await self._syncer.wait(prefix, looked, seconds)
        if fresh != looked:
            called = await self._syncer.run(look_for_calls(self._device.member))
            self._looked[prefix] = fresh
            self._cursor_written |= called
            if called:
                return fresh
        return token if token is not None else fresh

    def due(self) -> float:
        if self._more:
            return 0.0
        left = due_in_ms(self._device.member, now_ms())
        return min(inf if left is None else left / 1000, self._syncer.vectors_due())

    def folders(self) -> list[Path]:
        return [*self._recorder.folders(), self._nudge.parent]

    def concerns(self, path: str) -> bool:
        return self.wakes(path) or Path(path) == self._look or self._recorder.concerns(Path(path))

    def wakes(self, path: str) -> bool:
        return Path(path) == self._nudge

    def _tell_news(self) -> None:
        """Says it as it happens. It stays news for the person: nobody may be reading along."""
        member = self._device.member
        for piece in vault_changes(member, self._told_slot):
            self._report(WatchEvent.NEWS, line_of(piece, member.device_id))
        self._told_slot = max(self._told_slot, member.log.next_slot - 1)


@dataclass(frozen=True, slots=True)
class Watcher:
    """What runs, for those beside it."""

    work: JobContext
    watch: Watch
    files: FilesLoop
    store: "Store"
    schedule: Schedule
    stop: asyncio.Event

    def again(self, why: str) -> None:
        """Tries everything anew, without connections from before: after sleep, or on another network."""
        self.work.report(WatchEvent.PROGRESS, f"{why}: connecting anew")
        self.schedule.wake()
        self.watch.again()
        self.files.again()
        renewing = asyncio.create_task(renew(self.store), name="renewing")
        self.renewals.add(renewing)
        renewing.add_done_callback(self.renewals.discard)

    renewals: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])


Beside = Callable[[Watcher], list[Coroutine[Any, Any, None]]]
"""What goes on beside the rounds until it is cancelled. If one of them ends, by an error, that ends the program."""


async def watch_device(device: Device, *, as_json: bool, times: WatchTimes | None = None) -> None:
    """Watches until SIGTERM, SIGINT or SIGHUP. Raises as ``run_watcher``, and HomeBusy if another process watches this home."""
    from crystal_node.agent.jobs import sync_jobs

    def beside(found: Watcher) -> list[Coroutine[Any, Any, None]]:
        found.schedule.start(sync_jobs.jobs(found.work))
        pulse = Pulse(device.settings.home.config_file, found.again, lambda: None, lambda: None)
        return [pulse.run()]

    purpose = "crystal sync --watch"
    with watch_lock(device.settings.home, purpose):
        await run_watcher(device, reporter(as_json), purpose, JobStore.in_memory(), beside, times)


def watch_lock(home: Home, purpose: str) -> FileLock:
    """Held for as long as a process watches this home: there is one at a time."""
    return FileLock(home.watch_lock, purpose=purpose, wait_seconds=_WATCH_LOCK_SECONDS)


async def run_watcher(
    device: Device,
    report: Report,
    purpose: str,
    jobs: JobStore,
    beside: Beside,
    times: WatchTimes | None = None,
    latest: Callable[[], Settings] | None = None,
    put_off: Callable[[], str] = lambda: "",
) -> None:
    """Captures and syncs until SIGTERM, SIGINT or SIGHUP, with what goes on ``beside``. The caller holds the ``watch_lock``.

    Raises:
        Revoked: this device is out; nothing that it does from here on would count.
    """
    device.member.check_active()
    home = device.settings.home
    home.nudge_folder.mkdir(mode=0o700, exist_ok=True)
    home.nudge_file.touch(0o600)
    home.look_file.touch(0o600)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with device.online() as store:
        syncer = Syncer(
            device,
            store,
            purpose=purpose,
            progress=lambda text: report(WatchEvent.PROGRESS, text),
            position_seconds=POSITION_SECONDS,
            gives_way=True,
        )
        uniform = SystemRandom().uniform
        files = FilesLoop(device, syncer, report, uniform)
        device_work = DeviceTarget(device, store, syncer, report, files.moved)
        watch = Watch(device_work, report=report, stop=stop, uniform=uniform, times=times)
        work = JobContext(device, syncer, report, latest)
        schedule = Schedule(jobs, report, uniform, put_off)
        found = Watcher(work, watch, files, store, schedule, stop)
        tasks = [asyncio.create_task(each) for each in (files.run(), *beside(found))]
        for task in tasks:  # they end by an error only, and that ends the program
            task.add_done_callback(lambda _: stop.set())
        try:
            await watch.run()
        finally:
            await schedule.aclose()
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, *found.renewals, return_exceptions=True)
            syncer.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def _stop_on_signals(stop: asyncio.Event) -> None:
    """What a program was told to ignore (`nohup`) it goes on ignoring."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)


def reporter(as_json: bool) -> Report:
    """Says what happens, a line each; with JSON, a document a line. Failures go to standard error."""

    def report(event: WatchEvent, text: str) -> None:
        stream = sys.stderr if event is WatchEvent.FAILED else sys.stdout
        now = now_ms()
        if as_json:
            line = json.dumps({"at": iso(now) or "", "event": event.value, "text": text})
        else:
            line = f"{clock_time(now)}  {event.value}: {printable(text)}"
        with suppress(BrokenPipeError):  # whoever read our output has gone; the work goes on
            # Names on a disk may be no text: that ends no program.
            stream.write(line.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
            stream.flush()

    return report
