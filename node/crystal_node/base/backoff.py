"""Exponential backoff from seconds to minutes, with jitter.

Jitter keeps several devices from reaching a relay together when it comes back. Randomness is passed in.
"""

from collections.abc import Callable

FIRST_SECONDS = 5.0
MOST_SECONDS = 600.0
_JITTER = 0.25


Uniform = Callable[[float, float], float]


class Backoff:
    """Counts failures in a row. ``uniform(a, b)`` returns a random number between its arguments."""

    def __init__(
        self,
        uniform: Uniform,
        *,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
    ) -> None:
        self._uniform = uniform
        self._first = first
        self._most = most
        self._failures = 0
        self._doublings = 0

    @property
    def failures(self) -> int:
        return self._failures

    def failed(self) -> float:
        """Counts a failure and returns the seconds to wait, at most ``most``."""
        doubled = self._first * 2.0 ** min(self._doublings, 32)
        self._failures += 1
        self._doublings += 1
        return min(doubled * self._uniform(1 - _JITTER, 1 + _JITTER), self._most)

    def succeeded(self) -> None:
        self._failures = self._doublings = 0

    def restart(self) -> None:
        """Begins with the first pause again, because the cause may be gone. The failures still count."""
        self._doublings = 0
