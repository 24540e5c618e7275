"""Lets the Core's jobs leave the catalog closed while a run would find nothing to do.

Opening ``works.db`` and the memory, and closing them again, costs an idle machine more than anything else that it does: SQLite
makes and removes a file of shared memory each time. After a run that left nothing to wait for, a job rests until the
memory, the catalog or the settings change, ``REST_SECONDS`` at most.
"""

import time
from collections.abc import Callable
from pathlib import Path

from crystal_node.base.home import Home
from crystal_node.derive.catalog.database import Catalog
from crystal_node.device.device import Device

REST_SECONDS = 900.0
"""What a run finds without any of the three having changed, such as a made file that a person has put back, waits so long."""

_Stamp = tuple[object, ...]


class CatalogRest:
    """When one job may rest. Belongs to one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._memory: _Stamp = ()
        self._files: _Stamp = ()
        self._until: float | None = None

    def rests(self, device: Device, home: Home) -> bool:
        """Whether nothing changed since a run that left nothing to wait for. If not, a run begins."""
        now, memory = self._clock(), _memory(device)
        if (
            self._until is not None
            and now < self._until
            and (memory, _files(home)) == (self._memory, self._files)
        ):
            return True
        self._memory, self._until = memory, None  # what changes during the run is of the next one
        return False

    def begin(self, home: Home) -> None:
        """The run that began with ``rests`` has ended, its databases are closed, and nothing waits."""
        self._files, self._until = _files(home), self._clock() + REST_SECONDS


def waiting_files(catalog: Catalog) -> bool:
    """Whether any file is to be made now or later."""
    return bool(
        catalog.value(
            "SELECT EXISTS (SELECT 1 FROM conversation WHERE dirty_since > 0) OR EXISTS (SELECT 1 FROM stale_day)"
        )
    )


def _memory(device: Device) -> _Stamp:
    return (device.replica.database.version(), device.member.is_core)


def _files(home: Home) -> _Stamp:
    return tuple(_stamp(path) for path in (home.works_database, home.config_file))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)
