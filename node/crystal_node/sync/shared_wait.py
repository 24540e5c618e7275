"""The long-polls of one device, which a single one replaces while nothing is written in the vault.

::

    a long-poll of each prefix ──two in a row bring nothing──► one over the whole vault, for all who wait
                 ▲                                                           │
                 └────────────── anything was written anywhere ──────────────┘

No write is missed: the token of the shared wait was issued before the last poll of each prefix began, which found nothing. What
is written after that token ends the shared wait, and each prefix is asked with its own token again. The poll of
each prefix took seconds, so its relay process has heard of what another one wrote before.

The shared wait is *held* where that works: one response that lasts for many minutes, with a blank now and then. Where
it does not (an older relay, a proxy that collects answers or ends connections), it is made of ordinary polls for a while.
While a held wait stands, it also answers whether anything was written since an earlier moment, which a round asks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf

from crystal_node.base.clock import now_ms
from crystal_relay.limits import HELD_WAIT_SECONDS_MAX

EARLY_SECONDS = 1.0
"""A relay that answers a wait at once although nothing was written is asked again only after so long."""
SETTLED_SECONDS = 5.0
"""A poll that found nothing for so long shows that nothing was written before it began, whatever process of the relay it asked:
they hear of each other's writes within milliseconds."""

HELD_SECONDS = HELD_WAIT_SECONDS_MAX
HEARD_SECONDS = 60.0
"""A held wait of which nothing was heard for so long no longer shows that nothing was written."""
POLLS_SECONDS = 3600.0
"""Polls are used for so long where no blank of a held wait arrives in time."""
POLLS_AFTER_BREAK_SECONDS = 300.0
"""And for so long after a held wait broke off: the relay stopped, or the network changed."""
_SILENT_SHARE = 0.9
"""A held wait that was not heard of, and broke off before this share of ``HEARD_SECONDS``, was not ended for its silence."""
_BLANK_SECONDS_MIN = 35.0
"""Before that no blank is due. A relay that holds no waits answers later."""
_CLOCKS_SECONDS = 5.0
"""How much faster than ours a relay's clock may be, over ``HELD_SECONDS``."""

Wait = Callable[[str, str | None, float], Awaitable[str]]
"""Prefix, token and seconds of a store's long-poll."""
Hold = Callable[[str, str, float, Callable[[], None]], Awaitable[str | None]]
"""Prefix, token and seconds of a store's held wait, and what is called when it is heard of; None if it broke off."""


class SharedWait:
    """Waits on one store, from one event loop."""

    def __init__(self, wait: Wait, root: str, hold: Hold | None = None) -> None:
        """``root``: the prefix of all keys of the vault."""
        self._store_wait = wait
        self._store_hold = hold
        self._polls_until = -inf
        self._heard_at = -inf
        """When the held wait that stands was last heard of."""
        self._heard_ms = 0
        self._unwritten: tuple[str, str] | None = None
        """A token of the vault, and that of the held wait that stood when the store said that nothing was written since."""
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

    async def poll(self, prefix: str, token: str, ask: Callable[[], Awaitable[str]]) -> str:
        """Answers ``Poll``: without ``ask``, which asks the store, if a held wait shows that nothing was written."""
        standing = self._standing() if prefix == self._root else None
        if token and standing and self._unwritten == (token, standing):
            return token  # §11.15-2
        fresh = await ask()
        self._unwritten = (token, standing) if standing and fresh == token else None
        return fresh

    def _standing(self) -> str | None:
        """The token of the held wait, if it stands."""
        if self._poll is None or self._poll.done() or time.monotonic() - self._heard_at > HEARD_SECONDS:
            return None
        if abs(now_ms() - self._heard_ms) > HEARD_SECONDS * 1000:
            return None  # this machine slept, and on some systems the other clock stood still meanwhile
        return self._vault

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
        began = time.monotonic()
        if self._store_hold is None or began < self._polls_until:
            return await self._wait(self._root, vault, seconds)
        self._heard_at = -inf
        try:
            fresh = await self._store_hold(self._root, vault, HELD_SECONDS, self._heard)
        finally:
            was_heard, self._heard_at = self._heard_at > began, -inf
        lasted = time.monotonic() - began
        if fresh is None or (
            fresh == vault and lasted < HELD_SECONDS - min(_CLOCKS_SECONDS, HELD_SECONDS / 2)
        ):
            soon = HEARD_SECONDS * _SILENT_SHARE if fresh is None else _BLANK_SECONDS_MIN
            broke = was_heard or lasted < soon
            self._polls_until = began + lasted + (POLLS_AFTER_BREAK_SECONDS if broke else POLLS_SECONDS)
        # Asked at once: a relay that can be reached says whether anything was written, and one that cannot is noticed soon.
        return await self._wait(self._root, vault, 0) if fresh is None else fresh

    def _heard(self) -> None:
        self._heard_at, self._heard_ms = time.monotonic(), now_ms()

    def _written(self) -> None:
        self._quiet.clear()
        self._covered.clear()
        self._vault = None
