"""How much room is left, and how much of it is never given to objects.

Deleting needs room too: SQLite writes what it deletes into its log first, and folding the log into the database can make
that grow. So the last `RESERVE_BYTES` of the disk are refused to new objects; deletions and the log may use them. A store
that is full can thereby always be emptied by those who use it, without an operator at hand.
"""

import shutil
from pathlib import Path
from threading import Lock

import apsw

from crystal_relay.errors import StoreFull
from crystal_relay.limits import KIB, MIB

RESERVE_BYTES = 16 * MIB
"""Twice what the log grows to before it is folded into the database."""
_ROW_OVERHEAD_BYTES = 64 * KIB


class DiskSpace:
    """Of one store's disk. Any thread may ask."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self._claimed = 0
        """Of files that are being received, what is not written yet."""

    def claim(self, size: int) -> "Reservation":
        """Room for a file of that size. Raises StoreFull if it would reach into the reserve; OSError."""
        free = self._free()
        with self._lock:
            if free < size + self._claimed + RESERVE_BYTES:
                raise StoreFull("the relay's disk is full")
            self._claimed += size
        return Reservation(self, size)

    def give_back(self, size: int) -> None:
        """Of a claim: it was written, or never will be."""
        with self._lock:
            self._claimed -= size

    def has_for_rows(self, connection: apsw.Connection, size: int) -> bool:
        """Whether rows of that size together fit: on the disk, or in what deleted rows have left in the database."""
        if self._free() >= size + self._claimed + RESERVE_BYTES:
            return True
        pages: int = connection.pragma("freelist_count")
        page_bytes: int = connection.pragma("page_size")
        return pages * page_bytes >= 2 * size + _ROW_OVERHEAD_BYTES

    def _free(self) -> int:
        return shutil.disk_usage(self._directory).free


class Reservation:
    """Room that one file was promised and has not used yet. One thread at a time."""

    def __init__(self, room: DiskSpace, size: int) -> None:
        self._room = room
        self._left = size

    def use(self, size: int) -> None:
        """So many bytes are on the disk now."""
        self._left -= size
        self._room.give_back(size)

    def release(self) -> None:
        """Give the rest back. Idempotent."""
        left, self._left = self._left, 0
        self._room.give_back(left)
