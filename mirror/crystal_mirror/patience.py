"""Patience: how often a flow tries again within one round what an honest store grants soon.

A store that calls every place taken, shows nothing there, or shows other bytes than were put, would otherwise keep a flow busy
for ever, and have it write for ever. Races between honest writers end long before: each lost race is another's entry.
"""

from crystal_mirror.errors import RelayMisbehaves

RETRIES_MAX = 32


class RetryBudget:
    """Counts what went wrong with one thing."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tries = 0

    def lose(self) -> None:
        """Raises RelayMisbehaves when it was tried often enough."""
        self._tries += 1
        if self._tries >= RETRIES_MAX:  # §11.12-1
            raise RelayMisbehaves(
                f"the relay lets nothing be written: {self._what} was tried {self._tries} times"
            )
