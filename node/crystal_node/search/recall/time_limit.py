"""The time that a hook has. Then its process ends without a word, whatever it waits for: the program that called it waits, too.

Loads nothing but the standard library's threads, since hooks run at every prompt.
"""

import os
import sys
import threading

SECONDS_MAX = 0.3
"""From the beginning of this program's own work; the start of Python comes on top."""


class TimeLimit:
    """The limit of one hook's process. ``start`` it first; an answer is printed whole, or not at all."""

    def __init__(self) -> None:
        self._once = threading.Lock()
        self._printed = threading.Event()

    def start(self, seconds: float = SECONDS_MAX) -> None:
        """From now on the process has so many seconds. Also what follows an answer ends with them."""
        timer = threading.Timer(seconds, self.end)
        timer.daemon = True
        timer.start()

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
