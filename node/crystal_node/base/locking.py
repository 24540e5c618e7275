"""Locks of the home: one process at a time syncs, one watches, one sets it up.

``flock`` on a file in ``state/``. The kernel releases it when the holder dies, so no lock is ever stale. The file's content
(process id and purpose) is for messages only. Data does not depend on these locks, since databases have their own
transactions; they keep two processes from doing the same work twice.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from crystal_node.base.errors import HomeBusy
from crystal_node.base.home import FILE_MODE

_POLL_SECONDS = 0.05
_NOTE_BYTES_MAX = 200
WAY_SECONDS_MAX = 15.0
"""How long a watcher gives way to a command at a time, at most."""


class FileLock:
    """One lock file. Use as a context manager, or ``acquire`` and ``release``. Not reentrant, not for threads."""

    def __init__(self, path: Path, *, purpose: str, wait_seconds: float = 0.0) -> None:
        self._path = path
        self._purpose = purpose
        self._wait_seconds = wait_seconds
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Takes the lock if it is free; returns whether it did."""
        if self._descriptor is not None:
            raise RuntimeError(f"{self._path.name} is already held by this object")
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        note = f"{os.getpid()} {self._purpose}".encode()[:_NOTE_BYTES_MAX]
        with suppress(OSError):  # for messages only: a full disk must not stop a sync
            if os.pread(descriptor, _NOTE_BYTES_MAX + 1, 0) != note:  # else each round costs the disk a page
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, note, 0)
        return True

    def acquire(self) -> None:
        """Takes the lock, waiting up to ``wait_seconds``.

        Raises:
            HomeBusy: another process held it all that time; the message names it.
        """
        deadline = time.monotonic() + self._wait_seconds
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise self._busy()
            time.sleep(_POLL_SECONDS)

    async def acquire_async(self) -> None:
        """``acquire`` in an event loop. Cancelled while waiting, it holds nothing. Raises HomeBusy."""
        import asyncio

        deadline = time.monotonic() + self._wait_seconds
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise self._busy()
            await asyncio.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Releases the lock; does nothing if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _busy(self) -> HomeBusy:
        holder = self.holder()
        hint = "`crystal agent stop` ends it; nothing was changed." if "(crystal agent)" in holder else None
        return HomeBusy(f"this home is in use by {holder}", hint=hint)

    def holder(self) -> str:
        """The holder, for a message: "process 12 (crystal sync)"."""
        try:
            pid, _, purpose = self._path.read_text(errors="replace")[:_NOTE_BYTES_MAX].partition(" ")
        except OSError:
            return "another process"
        return f"process {pid} ({purpose})" if pid.isdigit() and purpose else "another process"

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def give_way(path: Path) -> None:
    """Waits while some process holds the lock, for ``WAY_SECONDS_MAX`` at most."""
    import asyncio

    for _ in range(round(WAY_SECONDS_MAX / _POLL_SECONDS)):
        if not is_held(path):
            return
        await asyncio.sleep(_POLL_SECONDS)
