"""What others see of the agent: whether one runs on this home, which process, since when, and what it puts off.

The lock says whether; jobs.db only says what that process noted about itself, and is believed for its own number alone.
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
"""What the lock's note says of the agent; ``crystal sync --watch`` holds the same lock under its own name."""
_NOTE_BYTES_MAX = 200
_LOCKS = Path("/proc/locks")


class ProcessNotes:
    """The names of what the agent notes about its process."""

    NAMES = frozenset({"pid", "started", "version", "put_off"})

    @classmethod
    def checked(cls, values: Mapping[str, str]) -> dict[str, str]:
        assert values.keys() <= cls.NAMES, values
        return dict(values)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who watches this home: the process, if it is known for certain, and what it calls itself."""

    pid: int | None
    purpose: str

    @property
    def is_agent(self) -> bool:
        return self.purpose == PURPOSE


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """``holder`` None: nobody watches. ``started``: milliseconds, 0 if not known. ``put_off``: why heavy work waits."""

    holder: LockHolder | None
    started: int
    version: str
    put_off: str

    @property
    def running(self) -> bool:
        return self.holder is not None and self.holder.is_agent


def agent_status(home: Home) -> AgentStatus:
    """How it stands now. Without a jobs.db that can be read, whether it runs is still known."""
    holder = lock_holder(home)
    noted = _noted(home) if holder is not None and holder.is_agent else {}
    if holder is None or noted.get("pid") != str(holder.pid):
        return AgentStatus(holder, 0, "", "")
    return AgentStatus(holder, int(noted["started"]), noted.get("version", ""), noted.get("put_off", ""))


def job_statuses(home: Home) -> list[JobStatus]:
    """The jobs as they stand; none where no agent has run yet."""
    if not home.jobs_database.exists():
        return []
    with JobStore.open(home.jobs_database) as store:
        return store.all()


def lock_holder(home: Home) -> LockHolder | None:
    """Who holds the watch lock. The kernel says who it is where it tells that; the file's note alone may be an old one."""
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
    """The processes that the kernel says hold it; None where it does not say."""
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
