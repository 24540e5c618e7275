"""Jobs: what the background service does on a timetable, under names that a person can list, pause and run.

::

                      time has come, due(), nothing in the way
    WAITING  ------------------------------------------------------>  RUNNING
       ^                                                                 |
       +---- done: DONE or NOTHING; failed: FAILED (known) or BROKEN ----+
             (a bug, with its trace in the log); told to stop: STOPPED;
             the process was killed: INTERRUPTED, seen at the next start

A failed job is retried after one minute, then after twice as long each time, up to its own interval or ten minutes, whichever
is longer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Job:
    """A job. ``run`` runs it once and returns a line for people, "" if there was nothing to do."""

    name: str
    """a-z and hyphens."""
    what: str
    """One sentence for people."""
    every: float
    """Seconds between runs. Runs missed during sleep are made up by one."""
    run: Callable[[], Awaitable[str]]
    due: Callable[[], bool] = _always
    """Whether it may run: only on a Core, only when configured."""
    jitter: float = 0.0
    """Seconds."""
    heavy: bool = False
    """Postponed while the service pauses on battery or on a metered network; one heavy job runs at a time."""


class JobOutcome(StrEnum):
    """How a job's last run ended."""

    NEVER = "never"
    DONE = "done"
    NOTHING = "nothing"
    """There was nothing to do."""
    FAILED = "failed"
    """By an error that may go away."""
    BROKEN = "broken"
    """By a bug in Crystal."""
    STOPPED = "stopped"
    """The background service was told to stop."""
    INTERRUPTED = "interrupted"
    """The background service was killed."""

    @property
    def bad(self) -> bool:
        return self in (JobOutcome.FAILED, JobOutcome.BROKEN, JobOutcome.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's status in jobs.db. Times in milliseconds; 0: never."""

    name: str
    what: str
    every: float
    heavy: bool
    paused: bool
    wanted: int
    """Counts a person's requests to run it."""
    served: int
    """The last request that was answered by a run."""
    started: int
    """When the current run began; 0: none is under way."""
    ended: int
    """When the last run ended."""
    worked: int
    """When a run last had something to do."""
    outcome: JobOutcome
    said: str
    """What the last run reported, or why it failed."""
    failures: int
    """In a row."""
    next: int
    """When it runs next, as the background service last knew."""
    put_off: str
    """Why it is postponed now: "", on battery, or on a metered network."""

    @property
    def failing(self) -> bool:
        return self.outcome.bad and self.failures > 0
