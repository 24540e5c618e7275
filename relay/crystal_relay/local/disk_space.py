"""Free disk space, and the reserve that objects cannot use.

Deletions need space too: SQLite writes them to its log first, and a checkpoint can make the database grow. So new objects
cannot use the last `RESERVE_BYTES` of the disk; deletions and the log can. So a full store can always be emptied by its
devices, without an operator.
"""

import shutil
import time
from pathlib import Path
from threading import Lock

import apsw

from crystal_relay.errors import StoreFull
from crystal_relay.limits import KIB, MIB
from crystal_relay.store import DiskStatus

RESERVE_BYTES = 16 * MIB
"""Twice the size of the log at which it is checkpointed."""
_ROW_OVERHEAD_BYTES = 64 * KIB
AMPLE_BYTES = 1024 * MIB
"""With so much beside the reserve, rows are stored for `AMPLE_SECONDS` without another look: nothing fills it so fast.
A look gives the interpreter's lock away during a commit, and has to win it back from the event loop."""
AMPLE_SECONDS = 0.05


class DiskSpace:
    """Disk space of one store. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self._claimed = 0
        """Bytes of arriving files that are not written yet."""
        self._ample_until = 0.0

    def claim(self, size: int) -> "Reservation":
        """Reserve space for a file. Raises StoreFull if it would use the reserve; OSError."""
        free = self._free()
        with self._lock:
            if free < size + self._claimed + RESERVE_BYTES:
                raise StoreFull("the relay's disk is full")
            self._claimed += size
            self._ample_until = 0.0
        return Reservation(self, size)

    def give_back(self, size: int) -> None:
        """Release claimed space: it was written, or never will be."""
        with self._lock:
            self._claimed -= size

    def has_for_rows(self, connection: apsw.Connection, size: int) -> bool:
        """Whether rows of this total size fit on the disk, or into free pages of the database."""
        now = time.monotonic()
        if now < self._ample_until:
            return True
        free = self._free()
        with self._lock:  # else a claim made meanwhile would be overlooked
            spare = free - size - self._claimed - RESERVE_BYTES
            if spare >= AMPLE_BYTES:
                self._ample_until = now + AMPLE_SECONDS
        if spare >= 0:
            return True
        pages: int = connection.pragma("freelist_count")
        page_bytes: int = connection.pragma("page_size")
        return pages * page_bytes >= 2 * size + _ROW_OVERHEAD_BYTES

    def status(self) -> DiskStatus:
        """Of the disk now. Raises OSError."""
        usage = shutil.disk_usage(self._directory)
        return DiskStatus(usage.free, usage.total, usage.free < self._claimed + RESERVE_BYTES)

    def _free(self) -> int:
        return shutil.disk_usage(self._directory).free


class Reservation:
    """Space claimed for one file and not used yet. One thread at a time."""

    def __init__(self, room: DiskSpace, size: int) -> None:
        self._room = room
        self._left = size

    def use(self, size: int) -> None:
        """Note that `size` bytes were written."""
        self._left -= size
        self._room.give_back(size)

    def release(self) -> None:
        """Release the rest. Idempotent."""
        left, self._left = self._left, 0
        self._room.give_back(left)
