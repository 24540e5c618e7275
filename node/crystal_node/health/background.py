"""What works for this home in the background, as its lock files and databases tell: who runs, which jobs fail, what is put off.

Nothing is started, and no service manager is asked: that takes long, and is the doctor's.
"""

from dataclasses import dataclass
from pathlib import Path

from crystal_node.home import Home
from crystal_node.locking import is_held

_NOTE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock: its id and what it is."""

    pid: int | None
    purpose: str


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """A job whose last run failed, and why."""

    name: str
    text: str
    failures: int
    at: int


@dataclass(frozen=True, slots=True)
class Background:
    """``runner``: who watches this home, None if nobody does."""

    runner: Holder | None
    failing: tuple[JobTrouble, ...]
    paused: tuple[str, ...]
    put_off: tuple[tuple[str, str], ...]


def background(home: Home) -> Background:
    """Gathers it."""
    return Background(runner_of(home.watch_lock), (), (), ())


def runner_of(lock: Path) -> Holder | None:
    """Who holds a lock now. What it says of itself may be cut, or lack: a full disk takes no notes."""
    if not is_held(lock):
        return None
    try:
        with lock.open("rb") as file:
            pid, _, purpose = file.read(_NOTE_BYTES_MAX).decode("utf-8", "replace").partition(" ")
    except OSError:
        return Holder(None, "another process")
    return Holder(int(pid) if pid.isascii() and pid.isdigit() else None, purpose or "another process")
