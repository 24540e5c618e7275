"""The day on which a vault was last used: when a device last showed a valid token, in UTC.

    r/vault/<vault>/used/<YYYY-MM-DD>     empty

The day is in the key, so that a listing tells it. Tokens are looked up every few minutes, and only the first look-up of a day
in a process writes: at most one small record a day for each vault and process. It is written in the background; no request
waits for it, and none fails with it.
"""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from crystal_relay.errors import RelayError
from crystal_relay.server.records import Records
from crystal_relay.store import Store

VAULTS_MAX = 65_536
"""Vaults of which is remembered that they were used today."""
WRITES_AT_ONCE = 4
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_log = logging.getLogger("crystal_relay.server")


class LastUsed:
    """The days of last use of the vaults in a store. One for each relay process."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix seconds."""
        self._records = Records(store)
        self._clock = clock
        self._noted: OrderedDict[str, str] = OrderedDict()
        self._places = asyncio.Semaphore(WRITES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, vault: str) -> None:
        """Note that the vault is being used. Writes in the background, once a day."""
        day = day_of_use(self._clock())
        if self._noted.get(vault) == day:
            return
        self._noted[vault] = day
        self._noted.move_to_end(vault)
        if len(self._noted) > VAULTS_MAX:
            self._noted.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._write(vault, day))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, vault: str) -> None:
        """Write the day again at the vault's next use: it may be a new one, under an id that was there before."""
        self._noted.pop(vault, None)

    async def day(self, vault: str) -> str:
        """The day of last use as YYYY-MM-DD; "" if none is known."""
        return last_day(await self._records.names(used_prefix(vault)))

    async def written(self) -> None:
        """Wait until nothing is being written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Cancel the writes. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, vault: str, day: str) -> None:
        prefix = used_prefix(vault)
        try:
            async with self._places:
                await self._records.mark(prefix + day)
                earlier = [name for name in await self._records.names(prefix) if name < day]
                await self._records.delete_all([prefix + name for name in earlier])
        except RelayError as error:
            self._noted.pop(vault, None)  # tried again at the next look-up
            _log.warning("noting that a vault was used failed and will be retried: %s", error)


def used_prefix(vault: str) -> str:
    """Prefix of the records of a vault's use."""
    return f"r/vault/{vault}/used/"


def last_day(names: list[str]) -> str:
    """The newest of the days in names of records; "" if there is none."""
    return max((name for name in names if _DAY.match(name)), default="")


def day_of_use(seconds: float) -> str:
    """The day of a time in Unix seconds, in UTC, as YYYY-MM-DD."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
