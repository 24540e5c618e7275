"""Process of the background service: everything of ``crystal sync --watch``, with jobs, commands of other devices and a log.

::

    crystal agent run --> open the device --> lock (one process a home) --> rounds, files, capture   watcher.py
                                                                        +-> schedule, with all jobs
                                                                        +-> heartbeat: sleep, network, settings, requests
                                                                        +-> commands: what other devices ask for
                                                                        +-> server: the API for programs of this machine
    SIGTERM, SIGINT, SIGHUP --> rounds end in 5 s, jobs are cancelled --> whatever does not end is left, after 10 s

It may be killed at any time: everything durable is in transactions of the parts, and its notes about itself may be lost.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from random import SystemRandom
from typing import Any, Protocol

from crystal_node.agent.commands.service import CommandService
from crystal_node.agent.daemon.actions import actions_of
from crystal_node.agent.daemon.command_server import open_when_possible, serve
from crystal_node.agent.daemon.job_requests import JobRun, JobRunner
from crystal_node.agent.daemon.logs import logged, logging_to
from crystal_node.agent.daemon.power import is_metered, on_battery
from crystal_node.agent.daemon.registry import all_jobs
from crystal_node.agent.heartbeat import ConfigStamp, Heartbeat, config_stamp
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import Scheduler
from crystal_node.agent.jobs.status import PURPOSE, ProcessNotes
from crystal_node.agent.watcher import Watcher, run_watcher, watch_lock
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode, describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.home import DIRECTORY_MODE
from crystal_node.base.jobs import Job
from crystal_node.base.settings import Settings, with_current_options
from crystal_node.derive.sessions.service import SessionFollower, SessionService
from crystal_node.device.device import Device, opened
from crystal_node.device.own_relay import on_network
from crystal_node.device.relay_move import drop_own_relay
from crystal_node.sync.job_context import JobContext

END_SECONDS_MAX = 10.0
"""A job's thread may go on for this long after the last round; then the process exits, which loses nothing."""

_log = logging.getLogger("crystal_node.agent.daemon")


class LocalServer(Protocol):
    """The API on the service's socket (``surfaces.gateway.local``)."""

    def start(self) -> str:
        """Serve from now on. Returns why that cannot be, "" if it can."""
        ...

    def stop(self) -> None: ...


MakeServer = Callable[[Callable[[], Settings], JobRunner], LocalServer]


def run_agent(resolve: Callable[[], Settings], report: Report, make_server: MakeServer) -> None:
    """Runs until it is told to stop. ``resolve`` gives the settings as they are; ``report`` is told beside the log;
    ``make_server`` makes the API for programs of this machine.

    Raises:
        HomeBusy: another process watches this home.
        NotSetUp, Revoked, and whatever does not pass by itself.
    """
    begins_anew = True
    while begins_anew:
        home = resolve().home
        mark = config_stamp(home.config_file)  # before reading: later writes are noticed
        settings = resolve()
        with (
            opened(settings) as device,
            watch_lock(home, PURPOSE),  # before the log: two processes would rotate it under each other
            logging_to(home.log_file, settings.agent_process.log_level),
        ):
            drop_own_relay(settings)  # of a vault that moved to another one while this service used it
            agent = _Agent(device, resolve, logged(report), mark, make_server)
            try:
                asyncio.run(agent.run())
            finally:
                agent.has_ended()
            begins_anew = agent.begins_anew


class _Agent:
    """What runs beside the rounds, with the settings as a person last left them."""

    def __init__(
        self,
        device: Device,
        resolve: Callable[[], Settings],
        report: Report,
        mark: ConfigStamp,
        make_server: MakeServer,
    ) -> None:
        self._device = device
        self._resolve = resolve
        self._report = report
        self._mark = mark
        self._settings = device.settings
        self._battery = self._metered = False
        self._asking: asyncio.Task[None] | None = None
        self._watching: Watcher | None = None
        self._commands: CommandService | None = None
        self._ending: threading.Timer | None = None
        self._make_server = make_server
        self._server: LocalServer | None = None
        self._told = ""
        self.begins_anew = False
        """It ended because the relay's settings changed, and starts again with the new ones."""

    def has_ended(self) -> None:
        """No thread goes on: cancels the forced exit."""
        if self._ending is not None:
            self._ending.cancel()

    async def run(self) -> None:
        home = self._device.settings.home
        home.agent_folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        store = self._store()
        ends = int(ExitCode.OK)
        try:
            async with on_network(self._settings, self._tell_trouble):
                await run_watcher(
                    self._device,
                    self._report,
                    PURPOSE,
                    store,
                    self._beside,
                    latest=lambda: self._settings,
                    put_off=self._put_off,
                )
            if not self.begins_anew:
                _log.info("the background service ends, as it was told to")
        except Exception as error:
            failure = describe(error)
            ends = failure.exit_code
            _log.error(
                "the background service ends: %s", failure.message, exc_info=None if passes(error) else error
            )
            raise
        finally:
            if self._asking is not None:
                self._asking.cancel()
            if self._server is not None:
                await asyncio.to_thread(self._server.stop)
            store.close()
            self._ending = _end_in_time(ends)

    def _tell_trouble(self, text: str) -> None:
        self._report(WatchEvent.FAILED, text)

    def _store(self) -> JobStore:
        """The record of jobs; in memory if jobs.db cannot be used."""
        try:
            return JobStore.open(self._device.settings.home.jobs_database)
        except Exception as error:
            if not passes(error):
                raise
            self._report(
                WatchEvent.FAILED, f"jobs.db cannot be used, nothing is noted: {describe(error).message}"
            )
            return JobStore.in_memory()

    def _beside(self, found: Watcher) -> list[Coroutine[Any, Any, None]]:
        self._watching = found
        schedule = found.schedule
        self._look_around()
        self._start(schedule, all_jobs(found.work))
        self._note(
            schedule,
            pid=str(os.getpid()),
            started=str(now_ms()),
            version=version("memory-crystal"),
            put_off="",
        )
        self._report(WatchEvent.PROGRESS, f"the background service runs as process {os.getpid()}")
        self._server = self._make_server(self._now, _LoopJobs(asyncio.get_running_loop(), schedule))
        if trouble := self._server.start():
            self._report(WatchEvent.PROGRESS, trouble)
        heartbeat = Heartbeat(
            self._device.settings.home.config_file,
            again=self._again,
            settings=self._read_settings,
            asked=self._asked,
            every_minute=self._look_around,
            read=self._mark,
        )
        sessions = SessionFollower(
            SessionService(self._device, self._now), self._report, SystemRandom().uniform
        )
        return [heartbeat.run(), self._serve(found.work), sessions.run()]

    def _start(self, schedule: Scheduler, jobs: list[Job]) -> None:
        """Starts without a record rather than not at all: capture must go on when the disk is full."""
        try:
            schedule.start(jobs)
        except Exception as error:
            if not passes(error):
                raise
            self._report(
                WatchEvent.FAILED, f"jobs.db cannot be written, nothing is noted: {describe(error).message}"
            )
            schedule.store = JobStore.in_memory()
            schedule.start(jobs)

    async def _serve(self, work: JobContext) -> None:
        """Until the commands' database can be opened the service goes on without it: other devices can ask it for nothing."""
        self._commands = await open_when_possible(
            lambda: CommandService(work.device, work.syncer, actions_of(work), self._report, self._now),
            self._report,
        )
        await serve(self._commands, self._report, SystemRandom().uniform)

    def _now(self) -> Settings:
        """The settings of this moment, also between two heartbeats."""
        return with_current_options(self._settings)

    # --- heartbeat ---

    def _again(self, why: str) -> None:
        assert self._watching is not None
        self._watching.reconnect(why)
        if self._commands is not None:
            self._commands.wake()
        self._look_around()

    def _asked(self) -> None:
        assert self._watching is not None
        schedule = self._watching.schedule
        try:
            if schedule.store.changed():
                schedule.look()
        except Exception as error:
            if not passes(error):
                raise
            _log.warning("jobs.db cannot be read: %s", describe(error).message)

    def _read_settings(self) -> None:
        """Applies settings that a person changed. An unusable file changes nothing and is reported."""
        assert self._watching is not None
        try:
            before, self._settings = self._settings, self._resolve()
        except Exception as error:
            if not passes(error):
                raise
            self._report(WatchEvent.FAILED, f"{describe(error).message}; the settings from before hold on")
            return
        if _connection(before) != _connection(self._settings):
            self._report(
                WatchEvent.PROGRESS, "the settings of the relay changed: the background service starts again"
            )
            self.begins_anew = True
            self._watching.stop.set()
            return
        logging.getLogger("crystal_node").setLevel(self._settings.agent_process.log_level.upper())
        try:
            self._watching.schedule.set_jobs(all_jobs(self._watching.work))
        except Exception as error:
            if not passes(error):
                raise
            _log.warning("jobs.db cannot be used: %s", describe(error).message)
        self._report(WatchEvent.PROGRESS, "the settings were read again")
        self._look_around()

    # --- battery and metered networks ---

    def _put_off(self) -> str:
        wanted = self._settings.agent_process
        if wanted.pause_on_battery and self._battery:
            return "on battery"
        return "on a metered network" if wanted.pause_on_metered and self._metered else ""

    def _look_around(self) -> None:
        """Asks for battery and network in a thread, if a person wants heavy jobs to wait for them."""
        wanted = self._settings.agent_process
        if not (wanted.pause_on_battery or wanted.pause_on_metered):
            self._tell_put_off()
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(
                self._ask(wanted.pause_on_battery, wanted.pause_on_metered), name="battery and network"
            )

    async def _ask(self, battery: bool, metered: bool) -> None:
        self._battery = battery and await asyncio.to_thread(on_battery)
        self._metered = metered and await asyncio.to_thread(is_metered)
        self._tell_put_off()

    def _tell_put_off(self) -> None:
        assert self._watching is not None
        reason, schedule = self._put_off(), self._watching.schedule
        if reason != self._told:
            text = f"heavy work waits: {reason}" if reason else "heavy work goes on"
            self._report(WatchEvent.PROGRESS, text)
            self._note(schedule, put_off=reason)
        self._told = reason

    def _note(self, schedule: Scheduler, **values: str) -> None:
        try:
            schedule.store.note(**ProcessNotes.checked(values))
        except Exception as error:
            if not passes(error):
                raise
            _log.warning("jobs.db cannot be written: %s", describe(error).message)


class _LoopJobs:
    """Runs jobs in the service's own loop, for a server that has another one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, schedule: Scheduler) -> None:
        self._loop = loop
        self._schedule = schedule

    async def run(self, name: str, seconds: float) -> JobRun:
        """See ``JobRunner``."""
        running = asyncio.run_coroutine_threadsafe(self._schedule.run_now(name, seconds), self._loop)
        status, finished = await asyncio.wrap_future(running)
        return JobRun(status, "agent", finished)


def _connection(settings: Settings) -> tuple[object, ...]:
    """Settings that are fixed while the device is open."""
    return (
        settings.relay_url,
        settings.service.own_relay_port,
        settings.allow_http,
        settings.relay_timeout,
        settings.bandwidth_up,
        settings.bandwidth_down,
        settings.config.vault,
        settings.config.key_store,
    )


def _end_in_time(code: int) -> threading.Timer:
    """Exits the process in time although a job's thread goes on: the event loop would wait for it for ever."""
    timer = threading.Timer(END_SECONDS_MAX, os._exit, (code,))
    timer.daemon = True
    timer.start()
    return timer
