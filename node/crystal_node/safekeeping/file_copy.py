"""How far a backup has come, told now and then; and the place where it notices that it is to stop."""

import time
from collections.abc import Callable

from crystal_node.base.errors import LocalStorage
from crystal_node.base.wording import size

TELL_SECONDS = 2.0

Tell = Callable[[str], None]


class BackupStopped(LocalStorage):
    """Whoever asked for the backup does not want it any more."""

    hint = "Nothing is left of it; the next one begins anew."


def never() -> bool:
    return False


class Meter:
    """Counts bytes of one phase, and tells at most every two seconds."""

    def __init__(self, tell: Tell | None, what: str, total: int, stopped: Callable[[], bool] = never) -> None:
        self._tell = tell
        self._what = what
        self._total = total
        self._stopped = stopped
        self._done = 0
        self._last = time.monotonic()

    def add(self, count: int) -> None:
        """Raises BackupStopped if that is wanted."""
        if self._stopped():
            raise BackupStopped("the backup was stopped")
        self._done += count
        now = time.monotonic()
        if self._tell is not None and now - self._last >= TELL_SECONDS:
            self._last = now
            self._tell(f"{self._what}: {size(min(self._done, self._total))} of {size(self._total)}")
