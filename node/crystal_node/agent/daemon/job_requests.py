"""Requests of a person to the jobs: run one now, pause one. The background service does it; without one, this process."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from crystal_node.agent.daemon.registry import all_jobs
from crystal_node.agent.jobs.database import JobStore
from crystal_node.agent.jobs.scheduler import Scheduler
from crystal_node.agent.jobs.status import agent_status
from crystal_node.base import local_api
from crystal_node.base.errors import ExitCode
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import JobOutcome, JobStatus
from crystal_node.base.local_api import WAIT_SECONDS_MAX, NotUnderstood, ServiceAway
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.device.device import opened
from crystal_node.search.finding.client import decoded_answer
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import syncing

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
"""For the service to answer, beside the job."""
_PURPOSE = "crystal jobs run"


@dataclass(frozen=True, slots=True)
class JobRun:
    """``by``: "agent" or "here"."""

    status: JobStatus
    by: str
    finished: bool

    @property
    def exit_code(self) -> int:
        if self.finished and self.status.outcome.bad:
            broken = self.status.outcome is JobOutcome.BROKEN
            return ExitCode.UNEXPECTED if broken else ExitCode.STORAGE
        return ExitCode.OK


class JobRunner(Protocol):
    """The port by which the background service's API runs a job."""

    async def run(self, name: str, seconds: float) -> JobRun:
        """Have it run, and wait for its end, ``seconds`` at most. Raises NoSuchEntry."""
        ...


def pause_job(settings: Settings, name: str, *, paused: bool) -> JobStatus:
    """Raises NoSuchEntry."""
    with JobStore.open(settings.home.jobs_database) as store:
        store.pause(name, paused=paused)
        return store.one(name)


def run_job(settings: Settings, name: str, *, seconds: float, say: Callable[[str], None]) -> JobRun:
    """Have a job run, and wait for its end.

    Raises:
        NoSuchEntry: there is no such job.
        HomeBusy: `crystal sync --watch` holds this home, which runs no jobs.
    """
    if agent_status(settings.home).running:
        return _by_service(settings, name, seconds)
    return asyncio.run(_here(settings, name, say))


def want_job(settings: Settings, name: str) -> JobStatus:
    """Have the running service begin a job now, without waiting for its end. Raises NoSuchEntry."""
    return _by_service(settings, name, 0.0).status


def _by_service(settings: Settings, name: str, seconds: float) -> JobRun:
    home = settings.home
    deadline = time.monotonic() + seconds
    waited = min(seconds, WAIT_SECONDS_MAX)
    target = f"/api/jobs/{quote(name, safe='')}/run?seconds={waited:g}"
    try:
        answer = local_api.ask(str(home.root), "POST", target, seconds=waited + _ANSWER_SECONDS)
        return decoded_answer(answer, JobRun)
    except (ServiceAway, NotUnderstood):  # of another version, with too many callers, or it ended meanwhile
        return _by_database(settings, name, max(deadline - time.monotonic(), 0.0))
    except OSError:  # no answer in time, or the line broke: the request stands in jobs.db, or nobody has it
        with JobStore.open(home.jobs_database) as store:
            return JobRun(store.one(name), "agent", finished=False)


def _by_database(settings: Settings, name: str, seconds: float) -> JobRun:
    """By a request that stands in jobs.db: where there are no sockets, and for a service of another version."""
    deadline = time.monotonic() + seconds
    with JobStore.open(settings.home.jobs_database) as store:
        number = store.ask_for(name)
        while (found := store.one(name)).served < number:
            if time.monotonic() >= deadline or not agent_status(settings.home).running:
                return JobRun(found, "agent", finished=False)
            time.sleep(_LOOK_SECONDS)
        return JobRun(found, "agent", finished=True)


async def _here(settings: Settings, name: str, say: Callable[[str], None]) -> JobRun:
    """Under the watch lock, so that it does not run twice at once."""

    def report(event: WatchEvent, text: str) -> None:
        if event is WatchEvent.PROGRESS:
            say(text)

    with (
        opened(settings) as device,
        FileLock(settings.home.watch_lock, purpose=_PURPOSE),
        JobStore.open(settings.home.jobs_database) as store,
    ):
        async with syncing(device, _PURPOSE, say) as syncer:
            # Nothing but what was asked for runs: the others wait for the service. The caller tells how it went.
            schedule = Scheduler(store, lambda _event, _text: None, lambda low, high: high, alone=name)
            schedule.start(all_jobs(JobContext(device, syncer, report)))
            try:
                status, finished = await schedule.run_now(name)
            finally:
                await schedule.aclose()
            return JobRun(status, "here", finished)
