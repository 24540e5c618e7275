"""What works for this home in the background, as its lock files and databases tell: who runs, which jobs fail, what is put off.

Nothing is started, and no service manager is asked: that takes long, and is the doctor's.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_crypto.errors import CrystalError
from crystal_mirror.commands.database import ReceivedState, command_notices
from crystal_node.agent.commands.database import SqliteCommandDatabase
from crystal_node.agent.health.channels import CommandsOpen
from crystal_node.agent.jobs.status import LockHolder, agent_status, job_statuses
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe
from crystal_node.base.home import Home
from crystal_node.base.jobs import JobOutcome, JobStatus
from crystal_node.base.wording import counted, one_line, size


@dataclass(frozen=True, slots=True)
class FailingJob:
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

    runner: LockHolder | None
    failing: tuple[FailingJob, ...] = ()
    paused: tuple[str, ...] = ()
    started: int = 0
    put_off: str = ""
    waiting: tuple[str, ...] = ()
    fault: str = ""


def background(home: Home) -> Background:
    """Gathers it. A jobs.db that cannot be read hides nothing else."""
    try:
        agent, jobs = agent_status(home), job_statuses(home)
    except (CrystalError, apsw.Error, OSError) as error:
        from crystal_node.agent.jobs.status import lock_holder

        return Background(lock_holder(home), fault=describe(error).message)
    return Background(
        runner=agent.holder,
        failing=tuple(_trouble(job) for job in jobs if job.failing),
        paused=tuple(job.name for job in jobs if job.paused),
        started=agent.started,
        put_off=agent.put_off,
        waiting=tuple(job.name for job in jobs if job.put_off and agent.holder is not None),
    )


def _trouble(job: JobStatus) -> FailingJob:
    return FailingJob(job.name, job.said, job.failures, job.ended, job.outcome is JobOutcome.BROKEN)


STAGED_MAX = 3
"""More agents that wait for the same answer are told in one sentence."""


@dataclass(frozen=True, slots=True)
class StagedAgent:
    """An agent in staging that moves no further by itself, why, and whether something failed. ``folder`` names it in commands:
    the agent's own text is somebody else's, and may hold anything."""

    agent: str
    folder: str
    words: str
    failed: bool
    since: int


@dataclass(frozen=True, slots=True)
class Others:
    """``faults``: a database by its name, and why it cannot be read."""

    commands: CommandsOpen | None = None
    noticed: tuple[tuple[str, int], ...] = ()
    staging: tuple[StagedAgent, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def asking(self) -> tuple[StagedAgent, ...]:
        """Of those in staging who wait for the same answer."""
        return tuple(each for each in self.staging if not each.failed)


def others(home: Home) -> Others:
    """Gathers it."""
    faults: list[tuple[str, str]] = []
    commands: CommandsOpen | None = None
    noticed: tuple[tuple[str, int], ...] = ()
    staging: tuple[StagedAgent, ...] = ()
    try:
        commands, noticed = _commands(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.commands_database.name, describe(error).message))
    try:
        staging = _staging(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.works_database.name, describe(error).message))
    return Others(commands, noticed, staging, tuple(faults))


def _commands(home: Home) -> tuple[CommandsOpen | None, tuple[tuple[str, int], ...]]:
    if not home.commands_database.exists():
        return None, ()

    found = commands_standing(home)
    if found is None:
        return None, ()
    oldest = None if found.oldest_ms is None else max(now_ms() - found.oldest_ms, 0) / 1000
    return CommandsOpen(found.asked, found.running, found.waiting, oldest), tuple(
        sorted(found.noticed.items())
    )


def _staging(home: Home) -> tuple[StagedAgent, ...]:
    if not home.works_database.exists():
        return ()
    from crystal_node.derive.catalog.agents import staged_agents

    return tuple(
        StagedAgent(one_line(each.agent, 60), each.folder, each.words, bool(each.failure), each.since)
        for each in staged_agents(home)
        if each.waits_for_a_person
    )


@dataclass(frozen=True, slots=True)
class CommandsStanding:
    """``asked`` of others and not over; ``running`` here; ``waiting`` here to run; ``oldest_ms``: when the oldest of these was
    written down here, by this machine's clock. ``noticed``: what was wrong in the channel, by name, and how often."""

    asked: int
    running: int
    waiting: int
    oldest_ms: int | None
    noticed: dict[str, int]


def commands_standing(home: Home) -> CommandsStanding | None:
    """None if this device has never asked or been asked. Raises BookDamaged."""
    if not home.commands_database.exists():
        return None
    book = SqliteCommandDatabase.open(home.commands_database)
    try:
        asked = [row for row in book.all_asked() if not row.state.ended]
        received = [row for row in book.all_received() if not row.state.ended]
        noticed = {name: noted.count for name, noted in command_notices(book).items()}
    finally:
        book.close()
    running = sum(row.state is ReceivedState.STARTED for row in received)
    moments = [row.asked_at for row in asked] + [row.received_at for row in received]
    return CommandsStanding(len(asked), running, len(received) - running, min(moments, default=None), noticed)


FREE_BYTES_MIN = 256 * 1024 * 1024
"""With less, a batch of the mirror with its index and its write-ahead log may not fit any more."""
FREE_FILES_MIN = 500
"""Names of files that the file system has left."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """``files``: how many more it can hold, None where it does not count them."""

    folder: Path
    free: int
    files: int | None
    read_only: bool

    @property
    def low(self) -> bool:
        return self.free < FREE_BYTES_MIN or (self.files is not None and self.files < FREE_FILES_MIN)

    @property
    def words(self) -> str:
        if self.free >= FREE_BYTES_MIN and self.files is not None:
            return counted(self.files, "name") + " of files are"
        return f"{size(self.free)} are"


def free_space(home: Home) -> tuple[FreeSpace, ...]:
    """That of the home, and that of the database where it is another one. What cannot be asked is left out."""
    found: dict[int, FreeSpace] = {}
    for folder in (home.root, home.database.parent):
        try:
            device, about = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        files = about.f_favail if about.f_files else None
        read_only = bool(about.f_flag & os.ST_RDONLY)
        found.setdefault(device, FreeSpace(folder, about.f_bavail * about.f_frsize, files, read_only))
    return tuple(found.values())
