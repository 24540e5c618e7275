"""Overwrites of one key, kept apart: some stores take one write a second for each key and refuse the others."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from crystal_relay.errors import Busy

WAIT_SECONDS_MAX = 10.0
"""Whoever would have to wait for longer is told to come again."""


class KeyPacing:
    """At most one start for each key in `interval` seconds, in the order of the calls. One event loop."""

    def __init__(
        self,
        interval: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._sleep = sleep
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When the next may start, of the keys written in the last interval; the oldest first."""

    async def turn(self, key: str) -> None:
        """Return when it is this call's turn. Raises Busy."""
        if self._interval <= 0:
            return
        now = self._clock()
        while self._free_at and next(iter(self._free_at.values())) <= now:
            self._free_at.popitem(last=False)
        at = max(now, self._free_at.get(key, now))
        if at - now > WAIT_SECONDS_MAX:
            raise Busy("this object is overwritten too often")
        self._free_at[key] = at + self._interval
        self._free_at.move_to_end(key)
        if at > now:
            await self._sleep(at - now)
