"""One process that watches a home: ``crystal sync --watch``, and the background service with more beside it.

Wires ``crystal_node.sync.watch`` to a device, its relay, signals and the jobs on a timetable. One process a home at a time.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from crystal_node.agent.heartbeat import Heartbeat
from crystal_node.agent.jobs import sync_jobs
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import Scheduler
from crystal_node.base.clock import now_ms
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.base.wording import clock_time, iso, printable
from crystal_node.device.device import Device
from crystal_node.sync.device_target import DeviceTarget
from crystal_node.sync.files_loop import FilesLoop
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import Syncer
from crystal_node.sync.watch import Watch, WatchTimes
from crystal_relay.store import renew

if TYPE_CHECKING:
    from crystal_relay.store import Store

_WATCH_LOCK_SECONDS = 1.0
POSITION_SECONDS = 900.0
"""A watcher publishes its position at most this often: with ten devices, each message would otherwise cost ten writes."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """What runs in this process, for the tasks beside it."""

    work: JobContext
    watch: Watch
    store: "Store"
    schedule: Scheduler
    stop: asyncio.Event
    renewals: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    def reconnect(self, why: str) -> None:
        """Retries everything on new connections: after sleep, or on another network."""
        self.work.report(WatchEvent.PROGRESS, f"{why}: connecting again")
        self.schedule.wake()
        self.watch.wake()
        renewing = asyncio.create_task(renew(self.store), name="renewing")
        self.renewals.add(renewing)
        renewing.add_done_callback(self.renewals.discard)


Beside = Callable[[Watcher], list[Coroutine[Any, Any, None]]]
"""Tasks beside the watch, which run until cancelled. An error in one of them ends the program."""


async def watch_device(device: Device, *, as_json: bool, times: WatchTimes | None = None) -> None:
    """Watches until SIGTERM, SIGINT or SIGHUP. Raises as ``run_watcher``, and HomeBusy if another process watches this home."""

    def beside(watcher: Watcher) -> list[Coroutine[Any, Any, None]]:
        watcher.schedule.start(sync_jobs.jobs(watcher.work))
        heartbeat = Heartbeat(device.settings.home.config_file, watcher.reconnect, lambda: None, lambda: None)
        return [heartbeat.run()]

    purpose = "crystal sync --watch"
    with watch_lock(device.settings.home, purpose):
        await run_watcher(device, reporter(as_json), purpose, JobStore.in_memory(), beside, times)


def watch_lock(home: Home, purpose: str) -> FileLock:
    """Held for as long as a process watches this home."""
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
    """Captures and syncs until SIGTERM, SIGINT or SIGHUP, with the tasks of ``beside``. The caller holds the ``watch_lock``.

    Raises:
        Revoked: this device was revoked.
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
            worker=True,
        )
        uniform = SystemRandom().uniform
        files = FilesLoop(device, syncer, report, uniform)
        target = DeviceTarget(device, syncer, report, files.moved)
        watch = Watch(target, report=report, stop=stop, uniform=uniform, times=times, files=files)
        schedule = Scheduler(jobs, report, uniform, put_off)
        watcher = Watcher(JobContext(device, syncer, report, latest), watch, store, schedule, stop)
        tasks = [asyncio.create_task(each) for each in beside(watcher)]
        for task in tasks:  # they end by an error only, and that ends the program
            task.add_done_callback(lambda _: stop.set())
        try:
            await watch.run()
        finally:
            await schedule.aclose()
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, *watcher.renewals, return_exceptions=True)
            syncer.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Signals that the process was started to ignore (``nohup``) stay ignored."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)


def reporter(as_json: bool) -> Report:
    """Writes one line, or one JSON document, for each event. Failures go to standard error."""

    def report(event: WatchEvent, text: str) -> None:
        stream = sys.stderr if event is WatchEvent.FAILED else sys.stdout
        now = now_ms()
        if as_json:
            line = json.dumps({"at": iso(now) or "", "event": event.value, "text": text})
        else:
            line = f"{clock_time(now)}  {event.value}: {printable(text)}"
        with suppress(BrokenPipeError):  # the reader of our output has gone; the work goes on
            # File names need not be valid text: that ends no program.
            stream.write(line.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
            stream.flush()

    return report
