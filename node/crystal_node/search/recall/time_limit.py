"""The time that a hook has. Then its process ends without a word, whatever it waits for: the program that called it waits, too.

Loads nothing but the standard library's threads, since hooks run at every prompt.
"""

import os
import sys
import threading

SECONDS_MAX = 0.3
"""Of this program's own work; the start of Python comes on top. Without a background service it has as much again to search."""


class TimeLimit:
    """The limit of one hook's process. ``start`` it first; an answer is printed whole, or not at all."""

    def __init__(self) -> None:
        self._once = threading.Lock()
        self._printed = threading.Event()
        self._timer: threading.Timer | None = None

    def start(self, seconds: float | None = None) -> None:
        """From now on the process has so many seconds, ``SECONDS_MAX`` if none are given, also for what follows an answer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(SECONDS_MAX if seconds is None else seconds, self.end)
        self._timer.daemon = True
        self._timer.start()

    def prolong(self) -> None:
        """As much again, if the process has a limit at all."""
        if self._timer is not None:
            self.start()

    def tell(self, answer: bytes) -> bool:
        """Print the answer. False if there was one before, or time is over."""
        if not self._once.acquire(blocking=False):
            self._printed.wait()
            return False
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        finally:
            self._printed.set()
        return True

    def end(self) -> None:
        """End the process: behind an answer that is being printed, else at once and in silence."""
        if not self._once.acquire(blocking=False):
            self._printed.wait()
        os._exit(0)
