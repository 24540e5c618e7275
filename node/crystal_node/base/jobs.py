"""A job: something that the agent does by itself, now and then, under a name that a person can list, pause and ask for.

::

                      time has come, due(), nothing in the way
    WAITING  ------------------------------------------------------>  RUNNING
       ^                                                                 |
       +---- done: DONE or NOTHING; failed: FAILED (known) or BROKEN ----+
             (a bug, with its trace in the log); told to stop: STOPPED;
             the process was killed: INTERRUPTED, seen at the next start

A job that failed is tried again after a minute, then after twice as long each time, up to its own interval or ten minutes,
whichever is more.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Job:
    """``run`` is one run, and returns a line for people, "" if there was nothing to do."""

    name: str
    """a-z and hyphens."""
    what: str
    """One sentence for people."""
    every: float
    """Seconds between runs. What was missed while asleep is run once on waking."""
    run: Callable[[], Awaitable[str]]
    due: Callable[[], bool] = _always
    """Asked first: only on a Core, only when configured."""
    jitter: float = 0.0
    """Seconds."""
    heavy: bool = False
    """Put off, not lost, while pausing on battery or on a metered network; one heavy job runs at a time."""


class JobOutcome(StrEnum):
    """How a job's last run ended."""

    NEVER = "never"
    DONE = "done"
    NOTHING = "nothing"
    """There was nothing to do."""
    FAILED = "failed"
    """By something that may pass."""
    BROKEN = "broken"
    """By a mistake in Crystal."""
    STOPPED = "stopped"
    """The agent was told to stop."""
    INTERRUPTED = "interrupted"
    """The agent was killed."""

    @property
    def bad(self) -> bool:
        return self in (JobOutcome.FAILED, JobOutcome.BROKEN, JobOutcome.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands, as jobs.db has it. Moments in milliseconds, 0: never."""

    name: str
    what: str
    every: float
    heavy: bool
    paused: bool
    wanted: int
    """Counts a person's requests to run it."""
    served: int
    """The last request that was run for."""
    started: int
    """When the run began that is under way, as far as it is known; 0: none is."""
    ended: int
    """When the last run ended."""
    worked: int
    """When a run last did something."""
    outcome: JobOutcome
    said: str
    """What the last run said, or why it failed."""
    failures: int
    """In a row."""
    next: int
    """When it runs next, as the agent last knew."""
    put_off: str
    """Why it is put off now: "", or on battery, or a metered network."""

    @property
    def failing(self) -> bool:
        return self.outcome.bad and self.failures > 0
