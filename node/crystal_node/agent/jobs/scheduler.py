"""Scheduler of the background jobs. APScheduler keeps the times; whether a job runs is decided here.

::

    its time has come, or a person requested it
          |
          +-- running already ------------------> nothing
          +-- paused by the person -------------> nothing   \\
          +-- heavy, on battery or metered -----> a minute   +  a request overrides these
          +-- not due --------------------------> a minute (a request is answered so)
          |
          +-- run, one heavy job at a time --> done: at its interval; failed: after a growing pause

Missed runs are coalesced into one, which is never dropped. Nothing that a job does ends the background service. A record that
cannot be written (a full disk) keeps no job from running.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from crystal_node.agent.jobs.database import JobStore
from crystal_node.base.backoff import Backoff
from crystal_node.base.clock import now_ms as system_now_ms
from crystal_node.base.errors import ExitCode, describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.jobs import Job, JobOutcome, JobStatus

FAILED_SECONDS = 60.0
"""Pause after the first failure; it doubles."""
FAILED_SECONDS_MAX = 600.0
"""Longest pause of a job with a shorter interval; others wait for at most their interval."""
ASK_AGAIN_SECONDS = 60.0
"""Interval of trying a job that is not due or put off when its time has come."""
FIRST_SECONDS = (2.0, 20.0)
"""Delay after the start of jobs that never ran or are overdue, so that not all start at once."""
KILLED_MAX = 3
"""A request that ended with its process this often is dropped."""
STOP_SECONDS_MAX = 5.0
"""How long to wait for a job that was told to stop."""
NOTED_AFTER_SECONDS = 1.0
"""A run that takes longer is recorded as begun."""
NOTED_MS = 600_000
"""Interval of recording runs that found nothing to do; those of all jobs are recorded together."""

_log = logging.getLogger("crystal_node.agent.daemon")


@dataclass
class _Entry:
    job: Job
    status: JobStatus
    backoff: Backoff
    task: "asyncio.Task[None] | None" = None
    noted: int = 0
    served: int = 0
    """The last request that a run served, recorded or not."""
    unnoted: "Callable[[JobStore], None] | None" = None
    """Records the last run, which found nothing to do."""

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def asked(self) -> bool:
        """Whether a request is not served yet."""
        return self.status.wanted > max(self.status.served, self.served)


@dataclass
class Scheduler:
    """The jobs of one process. ``put_off`` says why heavy jobs have to wait, "" if they need not."""

    store: JobStore
    report: Report
    uniform: Callable[[float, float], float]
    put_off: Callable[[], str] = lambda: ""
    now_ms: Callable[[], int] = system_now_ms
    first_seconds: tuple[float, float] = FIRST_SECONDS
    alone: str = ""
    """Only this job runs, and only on request."""
    _entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry], init=False)
    _scheduler: Any = field(default=None, init=False)
    _heavy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), init=False)
    _told: set[str] = field(default_factory=set[str], init=False)
    _waiters: "list[asyncio.Future[None]]" = field(default_factory=list["asyncio.Future[None]"], init=False)
    _closed: bool = field(default=False, init=False)

    def start(self, jobs: Iterable[Job]) -> None:
        """Starts on the running event loop."""
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self.set_jobs(jobs)
        self._scheduler.start()

    def set_jobs(self, jobs: Iterable[Job]) -> None:
        """Replaces the jobs. A running job goes on; times that are set stay."""
        jobs = list(jobs)
        self.store.register(jobs)
        statuses = {status.name: status for status in self.store.all()}
        for name in self._entries.keys() - {job.name for job in jobs}:
            if self._entries[name].running:
                continue
            del self._entries[name]
            self._scheduler.remove_job(name)
        for job in jobs:
            entry = self._entries.get(job.name)
            if entry is None:
                self._enter(job, statuses[job.name])
            else:
                changed = entry.job.every != job.every
                entry.job = job
                if changed:
                    self._reschedule(entry)
        self.look()

    def look(self) -> None:
        """Reads requests and pauses that another process wrote."""
        for status in self.store.all():
            entry = self._entries.get(status.name)
            if entry is None:
                continue
            entry.status = status
            if entry.asked and not entry.running:
                self._fire(entry)

    async def run_now(self, name: str, seconds: float | None = None) -> tuple[JobStatus, bool]:
        """Have a job run for a person, and wait for its end, ``seconds`` at most. Returns its status and whether it has ended.

        Raises:
            NoSuchEntry: there is no such job, or it is gone by now.
        """
        number = self.store.ask_for(name)
        self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closed and not self._has_served(name, number):
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        return self.store.one(name), self._has_served(name, number)

    def _has_served(self, name: str, number: int) -> bool:
        entry = self._entries.get(name)
        noted = self.store.one(name).served
        return max(noted, entry.served if entry is not None else 0) >= number

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake(self) -> None:
        """Runs what is overdue after sleep or a set clock, and lets no job wait longer than its interval."""
        now = self._now()
        for entry in self._entries.values():
            found = self._scheduler.get_job(entry.job.name)
            far = now + timedelta(seconds=max(entry.job.every + entry.job.jitter, self._pause_max(entry.job)))
            if found is not None and (found.next_run_time is None or found.next_run_time > far):
                self._scheduler.modify_job(
                    entry.job.name, next_run_time=now + timedelta(seconds=entry.job.every)
                )
        self._scheduler.wakeup()

    async def aclose(self) -> None:
        """Stops the running jobs and waits for them."""
        self._closed = True
        self._wake_waiters()
        if self._scheduler is None:
            return
        self._scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # it shuts down in the loop's next turn
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
            for task in left:
                _log.warning("%s did not end when it was told to", task.get_name())

    @property
    def running(self) -> list[str]:
        """Names of the running jobs."""
        return sorted(entry.job.name for entry in self._entries.values() if entry.running)

    # --- times ---

    def _enter(self, job: Job, status: JobStatus) -> None:
        from apscheduler.triggers.interval import IntervalTrigger

        most = self._pause_max(job)
        entry = _Entry(job, status, Backoff(self.uniform, first=FAILED_SECONDS, most=most))
        if status.started:  # the process that ran it was killed
            moment = max(status.started, status.ended)
            failures = status.failures + 1
            # A run that kills its process each time is not begun at every start, even on request.
            served = status.wanted if failures >= KILLED_MAX else status.served
            self._write(
                lambda: self.store.ended(
                    job.name,
                    moment,
                    JobOutcome.INTERRUPTED,
                    "the background service was killed while it ran",
                    failures=failures,
                    next_run=0,
                    served=served,
                )
            )
            entry.status = status = self.store.one(job.name)
        pause = 0.0
        for _ in range(min(status.failures, 32)):
            pause = entry.backoff.failed()
        self._entries[job.name] = entry
        trigger = IntervalTrigger(seconds=max(1, round(job.every)), jitter=job.jitter or None, timezone=UTC)
        self._scheduler.add_job(
            self._come,
            trigger,
            args=(job.name,),
            id=job.name,
            next_run_time=self._first(job, status, pause),
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
        )

    def _first(self, job: Job, status: JobStatus, pause: float) -> datetime:
        now = self.now_ms()
        wait = pause if status.failing else job.every
        last = min(status.ended, now)
        due_in = (last - now) / 1000 + wait if status.ended else 0.0
        if status.outcome is JobOutcome.STOPPED:
            due_in = 0.0
        low, high = self.first_seconds
        soon = self.uniform(low, max(low, min(high, job.every)))
        return self._now() + timedelta(seconds=max(due_in, soon))

    def _reschedule(self, entry: _Entry) -> None:
        from apscheduler.triggers.interval import IntervalTrigger

        job = entry.job
        trigger = IntervalTrigger(seconds=max(1, round(job.every)), jitter=job.jitter or None, timezone=UTC)
        self._scheduler.modify_job(
            job.name, trigger=trigger, next_run_time=self._first(job, entry.status, 0.0)
        )

    def _pause_max(self, job: Job) -> float:
        return max(FAILED_SECONDS_MAX, job.every)

    def _again_in(self, entry: _Entry, seconds: float) -> int:
        """Sets the time of the next run and returns it in milliseconds."""
        moment = self._now() + timedelta(seconds=seconds)
        with suppress(LookupError):
            self._scheduler.modify_job(entry.job.name, next_run_time=moment)
        return round(moment.timestamp() * 1000)

    def _now(self) -> datetime:
        return datetime.now(UTC)

    # --- runs ---

    async def _come(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is not None and not entry.running:
            self._fire(entry)

    def _fire(self, entry: _Entry) -> None:
        job, status = entry.job, entry.status
        if not entry.asked and (status.paused or self.alone):
            return
        if self.alone not in ("", job.name):
            return
        reason = self.put_off() if job.heavy and not entry.asked else ""
        if reason:
            due = self._again_in(entry, min(job.every, ASK_AGAIN_SECONDS))
            if entry.status.put_off != reason:
                self._write(lambda: self.store.scheduled(job.name, due, reason))
                self._write(lambda: self._look_at(entry))
            return
        # A task of our own: the scheduler would log a cancelled one as a failure.
        entry.task = asyncio.create_task(self._run(entry, status.wanted), name=f"job {job.name}")

    async def _run(self, entry: _Entry, wanted: int) -> None:
        asked, loop = entry.asked, asyncio.get_running_loop()
        started = loop.time()
        begun = loop.call_later(0 if asked else NOTED_AFTER_SECONDS, self._begun, entry)
        try:
            outcome, said = await self._outcome(entry)
        except asyncio.CancelledError:
            # The request stays: the next start serves it.
            self._ended(entry, JobOutcome.STOPPED, "", wanted=entry.status.served, quick=False)
            raise
        finally:
            begun.cancel()
        if outcome is None:
            self._again_in(entry, min(entry.job.every, ASK_AGAIN_SECONDS))
            if not asked:
                return
            outcome, said = JobOutcome.NOTHING, "it is not due on this device, as it is set up"
        quick = not asked and loop.time() - started < NOTED_AFTER_SECONDS
        self._ended(entry, outcome, said, wanted=wanted, quick=quick)

    async def _outcome(self, entry: _Entry) -> tuple[JobOutcome | None, str]:
        """Outcome of a run; None if the job is not due."""
        job = entry.job
        try:
            if not job.due():
                return None, ""
            if job.heavy:
                async with self._heavy:
                    said = await job.run()
            else:
                said = await job.run()
        except Exception as error:  # noqa: BLE001  a mistake in a job is logged, shown, and retried
            failure = describe(error)
            if failure.exit_code == ExitCode.UNEXPECTED:
                _log.exception("job %s: a mistake in Crystal", job.name)
                return JobOutcome.BROKEN, _text(f"a mistake in Crystal: {failure.message}")
            return JobOutcome.FAILED, _text(f"{failure.message}. {failure.hint}".strip())
        return (JobOutcome.DONE if said else JobOutcome.NOTHING), _text(said)

    def _begun(self, entry: _Entry) -> None:
        entry.unnoted = None  # it would say that this run has ended
        self._write(lambda: self.store.begun(entry.job.name, self.now_ms()))

    def _ended(self, entry: _Entry, outcome: JobOutcome, said: str, *, wanted: int, quick: bool) -> None:
        job, now, before = entry.job, self.now_ms(), entry.status
        due = self._after(entry, outcome, said)
        failures = entry.backoff.failures

        def note(store: JobStore) -> None:
            store.ended(job.name, now, outcome, said, failures=failures, next_run=due, served=wanted)

        same = outcome is JobOutcome.NOTHING and before.outcome in (JobOutcome.NOTHING, JobOutcome.DONE)
        if quick and same and 0 <= now - entry.noted < NOTED_MS:
            entry.unnoted = note
            return
        entry.noted, entry.served, entry.unnoted = now, max(entry.served, wanted), note
        self._write(lambda: self._note_all(now))
        self._write(lambda: self._look_at(entry))
        self._wake_waiters()
        if entry.asked and outcome is not JobOutcome.STOPPED:  # a request that came meanwhile
            asyncio.get_running_loop().call_soon(self._fire_if_idle, entry)

    def _note_all(self, now: int) -> None:
        """Records what the last runs of all jobs left to record: a disk at rest is woken once, not by each job."""
        waiting = [(each, each.unnoted) for each in self._entries.values() if each.unnoted is not None]
        with self.store.together():
            for _, note in waiting:
                note(self.store)
        for each, _ in waiting:
            each.noted, each.unnoted = now, None

    def _after(self, entry: _Entry, outcome: JobOutcome, said: str) -> int:
        """Reports the outcome and returns the time of the next run in milliseconds."""
        job = entry.job
        if outcome.bad:
            pause = entry.backoff.failed()
            if job.name not in self._told:  # once, until it works again; the record has the last failure
                self.report(WatchEvent.FAILED, f"{job.name}: {said} It is tried again in {pause:.0f} s.")
            self._told.add(job.name)
            return self._again_in(entry, pause)
        if outcome is not JobOutcome.STOPPED:
            if entry.backoff.failures:
                self.report(WatchEvent.RECOVERED, f"{job.name}: it works again")
            entry.backoff.succeeded()
            self._told.discard(job.name)
        if outcome is JobOutcome.DONE:
            self.report(WatchEvent.PROGRESS, f"{job.name}: {said}")
            if entry.asked:  # not again by itself in a minute
                return self._again_in(entry, job.every)
        found = self._scheduler.get_job(job.name)
        moment = None if found is None else found.next_run_time
        return 0 if moment is None else round(moment.timestamp() * 1000)

    def _look_at(self, entry: _Entry) -> None:
        entry.status = self.store.one(entry.job.name)

    def _fire_if_idle(self, entry: _Entry) -> None:
        if not entry.running:
            self._fire(entry)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            if not passes(error):
                raise
            _log.warning("a note about a job could not be written: %s", describe(error).message)


def _text(said: str) -> str:
    """``said`` with lone surrogates (of file names) escaped: SQLite could not store them."""
    return said.encode("utf-8", "backslashreplace").decode("utf-8")
