"""Progress of a long operation in words: what, how much, how fast, and the time left."""

import time
from collections.abc import Callable

from crystal_node.base.wording import size

TOLD_SECONDS = 2.0
"""Minimum interval between two lines."""


class ProgressLines:
    """Turns progress of the runner into lines for a person. ``clock`` is monotonic, in seconds; ``unit`` is what is counted, ""
    for bytes."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic, *, unit: str = ""
    ) -> None:
        self._tell = tell
        self._unit = unit
        self._clock = clock
        self._what = ""
        self._began = self._told = 0.0
        self._first = self._done = self._total = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """``total`` 0: not known. Writes a line every ``TOLD_SECONDS`` at most, and one at the end.

        A new ``what`` begins a new measurement, unless it goes on with the same total: a part of one whole.
        """
        now = self._clock()
        goes_on = bool(self._what) and 0 < total == self._total and done >= self._done
        self._done, self._total = done, total
        if (what != self._what and not goes_on) or done < self._first:
            self._what, self._began, self._told, self._first = what, now, now, done
        self._what = what
        finished = total > 0 and done >= total
        if now - self._told < TOLD_SECONDS and not finished:
            return
        if finished and now == self._began:
            return  # over before there was anything to tell
        self._told = now
        if finished:  # the next operation of that name starts a new measurement
            self._what = ""
        self._tell(self._words(what, done, total, now - self._began))

    def _words(self, what: str, done: int, total: int, seconds: float) -> str:
        moved = done - self._first
        rate = moved / seconds if seconds > 0 else 0.0
        text = f"{what}: {self._amount(done)}"
        if total:
            text = f"{what}: {self._amount(done, total)} ({done * 100 // total} %)"
        if rate > 0:
            text += f", {self._rate(rate)}/s"
            if total > done:
                text += f", {_remaining((total - done) / rate)} left"
        return text

    def _amount(self, done: int, total: int | None = None) -> str:
        if not self._unit:
            return size(done) if total is None else f"{size(done)} of {size(total)}"
        return f"{done:,} {self._unit}" if total is None else f"{done:,} of {total:,} {self._unit}"

    def _rate(self, rate: float) -> str:
        if not self._unit:
            return size(int(rate))
        return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _remaining(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
