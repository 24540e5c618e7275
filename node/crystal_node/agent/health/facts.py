"""What findings are decided from, beside the device itself: its background service, commands, staging and disks.

Read from lock files and databases. Nothing is started, and no service manager is asked: that takes long, and is the doctor's.
A database that cannot be read is a fault of its own and hides nothing else.
"""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_crypto.errors import CrystalError
from crystal_mirror.commands.database import ReceivedState
from crystal_mirror.commands.messages import Action
from crystal_mirror.membership.status import DeviceEntry, devices
from crystal_node.agent.commands.database import CommandsDamaged, SqliteCommandDatabase
from crystal_node.agent.health.channels import CommandsOpen
from crystal_node.agent.jobs.status import LockHolder, agent_status, job_statuses, lock_holder
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe
from crystal_node.base.home import Home
from crystal_node.base.jobs import JobOutcome, JobStatus
from crystal_node.base.wording import counted, one_line, size
from crystal_node.derive.catalog.agents import staged_agents
from crystal_node.device.device import Device

STAGED_MAX = 3
"""More agents that wait for the same answer are told in one sentence."""
GRANT_ASKED_MS_MAX = 7 * 24 * 3600 * 1000
"""A request for a grant is shown for so long."""
FREE_BYTES_MIN = 256 * 1024 * 1024
"""With less, a batch of the mirror with its index and its write-ahead log may not fit any more."""
FREE_FILES_MIN = 500
"""Files that the file system can still hold."""


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
    """``runner``: the process that watches this home. ``started``: in milliseconds, 0 if unknown. ``put_off``: why heavy jobs
    wait; ``waiting``: their names. ``fault``: why nothing is known of jobs."""

    runner: LockHolder | None
    failing: tuple[FailingJob, ...] = ()
    paused: tuple[str, ...] = ()
    started: int = 0
    put_off: str = ""
    waiting: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class StagedAgent:
    """An agent in staging that waits for a person. ``folder`` names it in commands: ``agent`` is text of other people and may
    hold anything."""

    agent: str
    folder: str
    words: str
    failed: bool
    since: int


@dataclass(frozen=True, slots=True)
class OtherFacts:
    """``faults``: databases by name, and why they cannot be read."""

    commands: CommandsOpen | None = None
    staging: tuple[StagedAgent, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def asking(self) -> tuple[StagedAgent, ...]:
        """The staged agents that wait for the same answer."""
        return tuple(each for each in self.staging if not each.failed)


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Of the disk that holds ``folder``. ``files``: how many more it can hold, None where it does not count them."""

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


def background(home: Home) -> Background:
    """The background service and its jobs. Without a readable jobs.db it is still known who runs."""
    try:
        agent, jobs = agent_status(home), job_statuses(home)
    except (CrystalError, apsw.Error, OSError) as error:
        return Background(lock_holder(home), fault=describe(error).message)
    return Background(
        runner=agent.holder,
        failing=tuple(_failing(job) for job in jobs if job.failing),
        paused=tuple(job.name for job in jobs if job.paused),
        started=agent.started,
        put_off=agent.put_off,
        waiting=tuple(job.name for job in jobs if job.put_off and agent.holder is not None),
    )


def other_facts(home: Home) -> OtherFacts:
    """Commands between devices, and staging. A database that does not exist is not made."""
    faults: list[tuple[str, str]] = []
    commands: CommandsOpen | None = None
    staging: tuple[StagedAgent, ...] = ()
    try:
        commands = _commands(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.commands_database.name, describe(error).message))
    try:
        staging = _staging(home)
    except (CrystalError, apsw.Error, OSError) as error:
        faults.append((home.works_database.name, describe(error).message))
    return OtherFacts(commands, staging, tuple(faults))


def free_space(home: Home) -> tuple[FreeSpace, ...]:
    """Of the home's disk, and of the database's where it is another. A disk that cannot be asked is left out."""
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


def _failing(job: JobStatus) -> FailingJob:
    return FailingJob(job.name, job.said, job.failures, job.ended, job.outcome is JobOutcome.BROKEN)


def _commands(home: Home) -> CommandsOpen | None:
    if not home.commands_database.exists():
        return None
    database = SqliteCommandDatabase.open(home.commands_database)
    try:
        asked = [row for row in database.all_asked() if not row.state.ended]
        received = [row for row in database.all_received() if not row.state.ended]
    finally:
        database.close()
    running = sum(row.state is ReceivedState.STARTED for row in received)
    moments = [row.asked_at for row in asked] + [row.received_at for row in received]
    oldest = max(now_ms() - min(moments), 0) / 1000 if moments else None
    return CommandsOpen(len(asked), running, len(received) - running, oldest)


def _staging(home: Home) -> tuple[StagedAgent, ...]:
    if not home.works_database.exists():
        return ()
    return tuple(
        StagedAgent(one_line(each.agent, 60), each.folder, each.words, bool(each.failure), each.since)
        for each in staged_agents(home)
        if each.waits_for_a_person
    )


def asking_for_grant(device: Device) -> list[DeviceEntry]:
    """Devices that asked this one, lately, for a grant that they do not have, if it can give one."""
    path = device.settings.home.commands_database
    if not (device.holds_root or device.member.is_core) or not path.exists():
        return []
    try:
        with closing(SqliteCommandDatabase.open(path)) as database:
            received = database.all_received()
    except CommandsDamaged:  # the status of commands says so
        return []
    since = now_ms() - GRANT_ASKED_MS_MAX
    askers = {row.sender for row in received if row.action == Action.ASK_GRANT and row.received_at > since}
    return [
        entry
        for entry in devices(device.member)
        if entry.info.device in askers and entry.info.revoked is None and not entry.info.grant
    ]
