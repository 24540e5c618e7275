"""Waits: they end when the relay stops or their client goes, and are limited for each device and vault.

A sleeping wait costs a connection and its memory. Both are shared, so devices beyond their limit are refused.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator
from contextlib import contextmanager

from starlette.types import Receive

from crystal_relay.errors import TooManyRequests
from crystal_relay.server.requests import ClientGone, gone
from crystal_relay.server.scopes import Identity

WAITS_OF_DEVICE_MAX = 64
"""Concurrent waits. A device needs one; waits of its lost connections end within a minute."""
WAITS_OF_VAULT_MAX = 512
RETRY_SECONDS = 10.0


class Waits:
    """The sleeping long polls. A stopping relay ends them all instead of waiting for up to a minute."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Task[str]] = set()
        self._closing = False
        self.refused = 0
        self._held: Counter[tuple[str, str]] = Counter()
        """By vault and device; by vault alone under ""."""

    @property
    def sleeping(self) -> int:
        """Number of sleeping waits."""
        return len(self._sleeping)

    def close(self) -> None:
        """End all waits, and every later one at once."""
        self._closing = True
        for task in self._sleeping:
            task.cancel()

    @contextmanager
    def place(self, identity: Identity) -> Generator[None]:
        """Count a wait of a device. Raises TooManyRequests."""
        mine, all_of_vault = (identity.vault, identity.device), (identity.vault, "")
        if (
            self._held.get(mine, 0) >= WAITS_OF_DEVICE_MAX  # §R9-8
            or self._held.get(all_of_vault, 0) >= WAITS_OF_VAULT_MAX
        ):
            self.refused += 1
            raise TooManyRequests("too many waits at once", retry_after=RETRY_SECONDS)
        self._held.update((mine, all_of_vault))
        try:
            yield
        finally:
            for held in (mine, all_of_vault):
                self._held[held] -= 1
                if not self._held[held]:
                    del self._held[held]

    async def race(self, wait: Coroutine[object, object, str], receive: Receive) -> str | None:
        """The wait's result; None if the relay is stopping. Raises ClientGone, and what the wait raises."""
        if self._closing:
            wait.close()
            return None
        sleeping = asyncio.create_task(wait)
        leaving = asyncio.create_task(gone(receive))
        self._sleeping.add(sleeping)
        try:
            await asyncio.wait((sleeping, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sleeping.done():
                raise ClientGone
            return None if sleeping.cancelled() else sleeping.result()
        finally:
            self._sleeping.discard(sleeping)
            sleeping.cancel()
            leaving.cancel()
            await asyncio.gather(sleeping, leaving, return_exceptions=True)
