"""What a person asks of the jobs: run one now, pause one. A running agent is asked through jobs.db, else it is done here."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from crystal_node.agent.daemon.registry import duties
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import Schedule
from crystal_node.agent.jobs.status import agent_standing
from crystal_node.base.errors import ExitCode
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import JobOutcome, JobStatus
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.device.device import opened
from crystal_node.sync.syncer import syncing
from crystal_node.sync.work import JobContext

_LOOK_SECONDS = 0.1
_PURPOSE = "crystal jobs run"


@dataclass(frozen=True, slots=True)
class JobRun:
    """``by``: "agent" or "here"."""

    standing: JobStatus
    by: str
    finished: bool

    @property
    def exit_code(self) -> int:
        if self.finished and self.standing.outcome.bad:
            broken = self.standing.outcome is JobOutcome.BROKEN
            return ExitCode.UNEXPECTED if broken else ExitCode.STORAGE
        return ExitCode.OK


def pause_job(settings: Settings, name: str, *, paused: bool) -> JobStatus:
    """Raises NoSuchEntry."""
    with JobStore.open(settings.home.jobs_database) as store:
        store.pause(name, paused=paused)
        return store.one(name)


def run_job(settings: Settings, name: str, *, seconds: float, say: Callable[[str], None]) -> JobRun:
    """Has it run, and waits for its end.

    Raises:
        NoSuchEntry: there is no such job.
        HomeBusy: `crystal sync --watch` holds this home, which runs no jobs.
    """
    if agent_standing(settings.home).running:
        return _by_agent(settings, name, seconds)
    return asyncio.run(_here(settings, name, say))


def _by_agent(settings: Settings, name: str, seconds: float) -> JobRun:
    deadline = time.monotonic() + seconds
    with JobStore.open(settings.home.jobs_database) as store:
        number = store.ask_for(name)
        while (found := store.one(name)).served < number:
            if time.monotonic() >= deadline or not agent_standing(settings.home).running:
                return JobRun(found, "agent", finished=False)
            time.sleep(_LOOK_SECONDS)
        return JobRun(found, "agent", finished=True)


async def _here(settings: Settings, name: str, say: Callable[[str], None]) -> JobRun:
    """Under the lock of whoever watches, so that it does not run twice at once."""

    def report(event: WatchEvent, text: str) -> None:
        if event is WatchEvent.PROGRESS:
            say(text)

    with (
        opened(settings) as device,
        FileLock(settings.home.watch_lock, purpose=_PURPOSE),
        JobStore.open(settings.home.jobs_database) as store,
    ):
        async with syncing(device, _PURPOSE, say) as syncer:
            jobs = duties(JobContext(device, syncer, report))
            store.register(jobs)
            number = store.ask_for(name)
            # Nothing but what was asked for runs: the others wait for an agent. How it went is told by who called.
            schedule = Schedule(store, lambda _event, _text: None, lambda low, high: high, alone=name)
            schedule.start(jobs)
            try:
                while store.one(name).served < number:  # noqa: ASYNC110  another process may write it as well
                    await asyncio.sleep(_LOOK_SECONDS)
            finally:
                await schedule.aclose()
            return JobRun(store.one(name), "here", finished=True)
