"""Turns at the store: so many requests of one vault at once, its others wait in line.

What the store has read is in memory until it is sent, and the store's threads read faster than clients take. And a vault that
asks for a thousand things at once must not be served a thousand times before the next vault is.
"""

import asyncio
from collections import deque

READS_OF_VAULT_AT_ONCE = 32
LISTS_OF_VAULT_AT_ONCE = 4
"""Of long lists, which take the store and this process longest."""


class VaultConcurrency:
    """Of one kind. Belongs to one event loop. Each `enter` that returned needs a `leave`."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._under_way: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def under_way(self, vault: str) -> int:
        """How many of the vault have their turn."""
        return self._under_way.get(vault, 0)

    async def enter(self, vault: str) -> None:
        """Return when it is this one's turn."""
        count = self._under_way.get(vault, 0)
        if count < self._at_once:
            self._under_way[vault] = count + 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(vault, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(vault)  # it was given its turn in the moment when it was cancelled
            raise

    def leave(self, vault: str) -> None:
        """The turn is over: it is the next one's."""
        line = self._lines.get(vault)
        while line:
            turn = line.popleft()
            if not line:
                del self._lines[vault]
            if not turn.done():
                turn.set_result(None)
                return
        self._under_way[vault] -= 1
        if not self._under_way[vault]:
            del self._under_way[vault]
