"""Waits: they end when the relay stops or their client goes, and are limited for each device and vault.

A sleeping wait costs a connection and its memory. Both are shared, so devices beyond their limit are refused.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from starlette.types import Receive, Scope

from crystal_relay.errors import TooManyRequests
from crystal_relay.server.admission import SCOPE_KEY
from crystal_relay.server.requests import ClientGone, gone
from crystal_relay.server.scopes import Identity

WAITS_OF_DEVICE_MAX = 64
"""Concurrent waits. A device needs one; waits of its lost connections end within a minute."""
WAITS_OF_VAULT_MAX = 512
RETRY_SECONDS = 10.0


class _Connection(Protocol):
    """A connection of our own server."""

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call it if the client leaves while a request is being served. None: call nothing any more."""
        ...


class Waits:
    """The sleeping long polls. A stopping relay ends them all instead of waiting for up to a minute."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Timeout] = set()
        self._closing = False
        self.refused = 0
        self._held: Counter[tuple[str, str]] = Counter()
        """By vault and device; by vault alone under ""."""

    @property
    def sleeping(self) -> int:
        """Number of sleeping waits."""
        return len(self._sleeping)

    @property
    def is_closing(self) -> bool:
        """Whether all waits are ended."""
        return self._closing

    def close(self) -> None:
        """End all waits, and every later one at once."""
        self._closing = True
        for sleeping in self._sleeping:
            self._end(sleeping)

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

    async def race(self, wait: Coroutine[object, object, str], receive: Receive, scope: Scope) -> str | None:
        """The wait's result; None if the relay is stopping. Raises ClientGone, and what the wait raises."""
        if self._closing:
            wait.close()
            return None
        connection: _Connection | None = scope.get(SCOPE_KEY)
        sleeping = asyncio.timeout(None)
        try:
            # A task for the wait and one for the client's leaving would hold twice the memory.
            async with sleeping:
                self._sleeping.add(sleeping)
                end = partial(self._end, sleeping)
                leaving = None if connection is not None else asyncio.create_task(gone(receive))
                if connection is not None:
                    connection.when_gone(end)
                elif leaving is not None:
                    leaving.add_done_callback(lambda _: end())
                try:
                    return await wait
                finally:
                    self._sleeping.discard(sleeping)
                    if connection is not None:
                        connection.when_gone(None)
                    elif leaving is not None:
                        leaving.cancel()
        except TimeoutError:
            if not sleeping.expired():  # the store's own: a network disk raises it, too
                raise
            if self.is_closing:
                return None
            raise ClientGone from None

    def _end(self, sleeping: asyncio.Timeout) -> None:
        if sleeping in self._sleeping and sleeping.when() is None:
            sleeping.reschedule(asyncio.get_running_loop().time())
