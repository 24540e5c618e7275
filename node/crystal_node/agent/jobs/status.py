"""Status of the background service as other processes see it: whether it runs, which process, since when, what it puts off.

The watch lock says whether one runs. jobs.db holds what that process noted about itself, and counts only for its own pid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_crypto.errors import CrystalError
from crystal_node.agent.jobs.database import JobStore
from crystal_node.base.home import Home
from crystal_node.base.jobs import JobStatus
from crystal_node.base.locking import is_held

PURPOSE = "crystal agent"
"""The lock's note of the background service; ``crystal sync --watch`` holds the same lock with its own note."""
_NOTE_BYTES_MAX = 200
_LOCKS = Path("/proc/locks")


class ProcessNotes:
    """Names of what the service notes about its process."""

    NAMES = frozenset({"pid", "started", "version", "put_off"})

    @classmethod
    def checked(cls, values: Mapping[str, str]) -> dict[str, str]:
        assert values.keys() <= cls.NAMES, values
        return dict(values)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that watches this home. ``pid``: None if it is not known for certain."""

    pid: int | None
    purpose: str

    @property
    def is_agent(self) -> bool:
        return self.purpose == PURPOSE


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """``holder``: None if no process watches this home. ``started``: in milliseconds, 0 if unknown. ``put_off``: why heavy jobs
    wait."""

    holder: LockHolder | None
    started: int
    version: str
    put_off: str

    @property
    def running(self) -> bool:
        return self.holder is not None and self.holder.is_agent


def agent_status(home: Home) -> AgentStatus:
    """The status now. Without a readable jobs.db it is still known whether the service runs."""
    holder = lock_holder(home)
    noted = _noted(home) if holder is not None and holder.is_agent else {}
    if holder is None or noted.get("pid") != str(holder.pid):
        return AgentStatus(holder, 0, "", "")
    return AgentStatus(holder, int(noted["started"]), noted.get("version", ""), noted.get("put_off", ""))


def job_statuses(home: Home) -> list[JobStatus]:
    """All jobs; none where no background service has run yet."""
    if not home.jobs_database.exists():
        return []
    with JobStore.open(home.jobs_database) as store:
        return store.all()


def lock_holder(home: Home) -> LockHolder | None:
    """The holder of the watch lock, confirmed by the kernel where it tells: the file's note alone may be old."""
    if not is_held(home.watch_lock):
        return None
    try:
        note = home.watch_lock.read_text(errors="replace")[:_NOTE_BYTES_MAX]
    except OSError:
        note = ""
    written, _, purpose = note.partition(" ")
    pid = int(written) if written.isdigit() else None
    locked = _by_kernel(home.watch_lock)
    if locked is None:
        return LockHolder(pid, purpose)
    return LockHolder(pid if pid in locked else None, purpose if pid in locked else "")


def _by_kernel(path: Path) -> set[int] | None:
    """The pids that hold the lock according to the kernel; None where it does not tell."""
    try:
        info = path.stat()
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found: set[int] = set()
    for line in lines:
        fields = line.split()
        if len(fields) < 6 or fields[1] != "FLOCK" or fields[3] != "WRITE":
            continue
        if fields[5].rpartition(":")[2] == str(info.st_ino) and fields[4].isdigit():
            found.add(int(fields[4]))
    return found or None


def _noted(home: Home) -> dict[str, str]:
    if not home.jobs_database.exists():
        return {}
    try:
        with JobStore.open(home.jobs_database) as store:
            return store.noted()
    except (apsw.Error, CrystalError, OSError):
        return {}
