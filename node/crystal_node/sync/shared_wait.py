"""The long-polls of one device, which a single one replaces while nothing is written in the vault.

::

    a long-poll of each prefix ──two in a row bring nothing──► one over the whole vault, for all who wait
                 ▲                                                           │
                 └────────────── anything was written anywhere ──────────────┘

No write is missed: the token of the shared wait was issued before the last poll of each prefix began, which found nothing. What
is written after that token ends the shared wait, and each prefix is asked with its own token again. The poll of
each prefix took seconds, so its relay process has heard of what another one wrote before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

EARLY_SECONDS = 1.0
"""A relay that answers a wait at once although nothing was written is asked again only after so long."""
SETTLED_SECONDS = 5.0
"""A poll that found nothing for so long shows that nothing was written before it began, whatever process of the relay it asked:
they hear of each other's writes within milliseconds."""

Wait = Callable[[str, str | None, float], Awaitable[str]]
"""Prefix, token and seconds of a store's long-poll."""


class SharedWait:
    """Waits on one store, from one event loop."""

    def __init__(self, wait: Wait, root: str) -> None:
        """``root``: the prefix of all keys of the vault."""
        self._store_wait = wait
        self._root = root
        self._quiet: set[str] = set()
        """Prefixes whose last poll found nothing."""
        self._vault: str | None = None
        """The token of the shared wait, while nothing is known to have been written since."""
        self._covered: dict[str, str] = {}
        """Prefixes that need no poll of their own while the shared one waits, each with its token."""
        self._poll: asyncio.Task[str] | None = None

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        """Like the store's own wait. Raises what that raises."""
        started = time.monotonic()
        if token is None or self._covered.get(prefix) != token:
            return await self._alone(prefix, token, seconds)
        if await self._nothing_written(seconds):
            return token
        return await self._alone(prefix, token, max(0.0, started + seconds - time.monotonic()))

    async def _wait(self, prefix: str, token: str | None, seconds: float) -> str:
        started = time.monotonic()
        fresh = await self._store_wait(prefix, token, seconds)
        if fresh == token:
            await asyncio.sleep(max(0.0, min(seconds, EARLY_SECONDS) - (time.monotonic() - started)))
        return fresh

    def close(self) -> None:
        """Ends the shared wait."""
        if self._poll is not None:
            self._poll.cancel()

    async def _alone(self, prefix: str, token: str | None, seconds: float) -> str:
        if prefix in self._quiet and self._vault is None:
            await self._begin()
        vault, started = self._vault, time.monotonic()
        fresh = await self._wait(prefix, token, seconds)
        if fresh != token:
            self._written()
        elif time.monotonic() - started >= SETTLED_SECONDS:
            self._quiet.add(prefix)
            if vault is not None and vault == self._vault:
                self._covered[prefix] = fresh
        return fresh

    async def _begin(self) -> None:
        fresh = await self._wait(self._root, None, 0)
        self._vault = self._vault or fresh  # another prefix may have been faster: its token is the older one

    async def _nothing_written(self, seconds: float) -> bool:
        """Waits with all others. False: something was written somewhere."""
        until = time.monotonic() + seconds
        while (vault := self._vault) is not None and (left := until - time.monotonic()) > 0:
            poll = self._poll
            if poll is None or poll.done():
                poll = self._poll = asyncio.create_task(self._shared(vault, seconds), name="shared wait")
            try:
                await asyncio.wait({poll}, timeout=left)
            except asyncio.CancelledError:
                poll.cancel()  # after sleep its connection may be dead: who waits on begins a new one
                raise
            if not poll.done():
                return True
            if not poll.cancelled() and poll.result() != vault:
                self._written()
        return self._vault is not None

    async def _shared(self, vault: str, seconds: float) -> str:
        return await self._wait(self._root, vault, seconds)

    def _written(self) -> None:
        self._quiet.clear()
        self._covered.clear()
        self._vault = None
