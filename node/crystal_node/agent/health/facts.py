"""What works for this home in the background, as its lock files and databases tell: who runs, which jobs fail, what is put off.

Nothing is started, and no service manager is asked: that takes long, and is the doctor's.
"""

from dataclasses import dataclass

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.agent.jobs.status import Holder, agent_standing, job_standings
from crystal_node.base.errors import describe
from crystal_node.base.home import Home
from crystal_node.base.jobs import JobStanding, Outcome


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """A job whose last run failed, and why. ``broken``: by a mistake in Crystal."""

    name: str
    text: str
    failures: int
    at: int
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Background:
    """``runner``: who watches this home, None if nobody does. ``started``: milliseconds, 0 if not known. ``put_off``: why heavy
    work waits, and each job that does. ``fault``: why nothing is known of jobs."""

    runner: Holder | None
    failing: tuple[JobTrouble, ...] = ()
    paused: tuple[str, ...] = ()
    started: int = 0
    put_off: str = ""
    waiting: tuple[str, ...] = ()
    fault: str = ""


def background(home: Home) -> Background:
    """Gathers it. A jobs.db that cannot be read hides nothing else."""
    try:
        agent, jobs = agent_standing(home), job_standings(home)
    except (CrystalError, apsw.Error, OSError) as error:
        from crystal_node.agent.jobs.status import holder_of

        return Background(holder_of(home), fault=describe(error).message)
    return Background(
        runner=agent.holder,
        failing=tuple(_trouble(job) for job in jobs if job.failing),
        paused=tuple(job.name for job in jobs if job.paused),
        started=agent.started,
        put_off=agent.put_off,
        waiting=tuple(job.name for job in jobs if job.put_off and agent.holder is not None),
    )


def _trouble(job: JobStanding) -> JobTrouble:
    return JobTrouble(job.name, job.said, job.failures, job.ended, job.outcome is Outcome.BROKEN)
