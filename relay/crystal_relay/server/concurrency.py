"""Limits the concurrent requests of each vault to the store; further ones queue.

What the store has read is in memory until it is sent, and the store's threads read faster than clients receive. And a vault
that makes a thousand requests at once must not delay the other vaults by a thousand.
"""

import asyncio
from collections import deque

READS_OF_VAULT_AT_ONCE = 32
LISTS_OF_VAULT_AT_ONCE = 4
"""Limit of long lists, which take longest."""


class VaultConcurrency:
    """A limit on one kind of request. One event loop. Each slot that was taken needs a `leave`."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._under_way: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def under_way(self, vault: str) -> int:
        """Number of running requests of the vault."""
        return self._under_way.get(vault, 0)

    def start(self, vault: str) -> bool:
        """Take a slot if one is free. False: `enter`."""
        count = self._under_way.get(vault, 0)
        if count >= self._at_once:
            return False
        self._under_way[vault] = count + 1
        return True

    async def enter(self, vault: str) -> None:
        """Wait for a slot."""
        if self.start(vault):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(vault, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(vault)  # given a slot at the moment of its cancellation
            raise

    def leave(self, vault: str) -> None:
        """Pass the slot on to the next request."""
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
