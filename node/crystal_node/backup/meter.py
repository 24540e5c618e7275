"""How far a backup has come, told now and then."""

import time
from collections.abc import Callable

from crystal_node.wording import size

TELL_SECONDS = 2.0


class Meter:
    """Counts bytes of one phase, and tells at most every two seconds."""

    def __init__(self, tell: Callable[[str], None] | None, what: str, total: int) -> None:
        self._tell = tell
        self._what = what
        self._total = total
        self._done = 0
        self._last = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._tell is not None and now - self._last >= TELL_SECONDS:
            self._last = now
            self._tell(f"{self._what}: {size(min(self._done, self._total))} of {size(self._total)}")
