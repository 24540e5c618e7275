"""One process alone on a bucket that does not honour conditional writes.

Each process writes a claim of its own, `r/sole/<random>`, and renews it. Whoever comes writes its claim first and looks
for others then, so of two that come at once at least one sees the other. A claim that changes while it is watched belongs
to a living process; one that stays the same for `dead` seconds belongs to nobody and is removed. A process that could not
renew its claim for `lapse` seconds, less than `dead`, stops writing before anybody may take it for dead, and starts again
only as a newcomer does.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from crystal_relay.errors import InUse, NotFound, RelayError, StoreUnavailable
from crystal_relay.s3.bucket import Bucket, Content
from crystal_relay.threads import Delivery, Lane

PREFIX = "r/sole/"
_CONTENT_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class ClaimTimes:
    """Seconds. `lapse` + one write has to fit into `dead`."""

    renew: float = 5.0
    lapse: float = 15.0
    dead: float = 20.0
    look: float = 1.0
    """Between two looks at somebody else's claim."""


def boot_time() -> float:
    """Seconds since the machine started, also those in which it slept: a claim ages meanwhile."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class BucketClaim:
    """This process's claim. One event loop. `claimed` makes it, `aclose` gives it up."""

    def __init__(
        self,
        bucket: Bucket,
        times: ClaimTimes,
        *,
        clock: Callable[[], float],
        announce: Callable[[str], None],
    ) -> None:
        self._bucket = bucket
        self._times = times
        self._clock = clock
        self._announce = announce
        self._key = PREFIX + secrets.token_hex(8)
        self._count = 0
        self._owner = False
        self._renewed_at = clock()
        self._watched = Watched(bucket, self._key)
        # A thread of its own: the claim has to be renewed however much there is to do.
        self._lane = Lane("relay-s3-claim", threads=1, pending_max=16)
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raises StoreUnavailable while this process cannot be sure to be alone."""
        if not self._owner or self._clock() - self._renewed_at >= self._times.lapse:
            raise StoreUnavailable(
                "the relay could not renew its claim on the bucket",
                hint="It writes again once the object store has answered and no other relay uses the bucket.",
            )

    async def take(self) -> None:
        """Become the only one. Raises InUse, StoreUnavailable. Takes `dead` seconds when somebody left a claim behind."""
        try:
            await self._become_owner()
        except BaseException:
            with contextlib.suppress(RelayError):
                await self._run(partial(self._bucket.delete, self._key))
            await asyncio.to_thread(self._lane.close)
            raise
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Give it up, once nothing is written any more. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._owner = False
        # If it cannot be removed now, the next process watches it for a while and removes it.
        with contextlib.suppress(RelayError):
            await self._run(partial(self._bucket.delete, self._key))
        await asyncio.to_thread(self._lane.close)

    async def _become_owner(self) -> None:
        self._owner = False
        self._watched = Watched(self._bucket, self._key)
        await self._renew()
        waited = False
        while True:
            others = await self._run(partial(self._watched.look, self._clock, self._times.dead))
            if others.rival:
                raise _in_use()
            if not others.left:
                break
            if not waited:
                waited = True
                self._announce(
                    f"The bucket is claimed. Waiting up to {self._times.dead:.0f} s to see whether that relay still runs."
                )
            await asyncio.sleep(self._times.look)
            if self._clock() - self._renewed_at >= self._times.renew:
                await self._renew()
        if self._clock() - self._renewed_at >= self._times.lapse:
            # Looking took so long that others may have taken this claim for a dead one.
            raise StoreUnavailable("the object store is too slow to claim the bucket")
        self._owner = True

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._times.renew)
            with contextlib.suppress(RelayError):
                if self._lapsed():
                    await self._come_back()
                else:
                    await self._renew()

    async def _come_back(self) -> None:
        try:
            await self._become_owner()
        except RelayError as error:
            if isinstance(error, InUse):
                self._announce(
                    "Another relay uses the bucket. This one goes on reading and refuses to write."
                )
            with contextlib.suppress(RelayError):
                await self._run(partial(self._bucket.delete, self._key))
            raise

    def _lapsed(self) -> bool:
        return not self._owner or self._clock() - self._renewed_at >= self._times.lapse

    async def _renew(self) -> None:
        began = self._clock()
        self._count += 1
        await self._run(partial(self._bucket.put, self._key, Content.of(b"%d" % self._count)))
        if self._clock() - began < self._times.lapse:
            self._renewed_at = began

    async def _run(self, call: Callable[[], Any]) -> Any:
        return await self._lane.run(Delivery(asyncio.get_running_loop()), call, owed=True)


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """`rival`: one of them lives. `left`: some that may."""

    rival: bool
    left: bool


class Watched:
    """The claims of others, and since when each is as it is. Blocks; one thread at a time."""

    def __init__(self, bucket: Bucket, own_key: str) -> None:
        self._bucket = bucket
        self._own_key = own_key
        self._seen: dict[str, tuple[bytes, float]] = {}

    def look(self, clock: Callable[[], float], dead: float) -> OtherProcesses:
        """Look at all of them; remove the dead. Raises StoreUnavailable."""
        entries, _ = self._bucket.list(PREFIX)
        keys = [key for key, _ in entries if key != self._own_key]
        left = False
        for key in keys:
            began = clock()
            try:
                content = self._read(key)
            except NotFound:
                continue
            first, since = self._seen.setdefault(key, (content, clock()))
            if content != first:
                return OtherProcesses(rival=True, left=True)
            if began - since >= dead:
                self._bucket.delete(key)
            else:
                left = True
        return OtherProcesses(rival=False, left=left)

    def _read(self, key: str) -> bytes:
        found = self._bucket.get(key)
        if found is None:
            return b""
        with contextlib.closing(found.stream):
            return found.stream.read(min(found.length, _CONTENT_BYTES_MAX))


async def refuse_if_claimed(
    bucket: Bucket, times: ClaimTimes, *, clock: Callable[[], float], announce: Callable[[str], None]
) -> None:
    """For a process that needs no claim: another one may have found out otherwise. Raises InUse, StoreUnavailable."""
    watched = Watched(bucket, "")
    waited = False
    while True:
        others = await asyncio.to_thread(watched.look, clock, times.dead)
        if others.rival:
            raise _in_use()
        if not others.left:
            return
        if not waited:
            waited = True
            announce(
                f"The bucket is claimed. Waiting up to {times.dead:.0f} s to see whether that relay still runs."
            )
        await asyncio.sleep(times.look)


def _in_use() -> InUse:
    return InUse(
        "another relay uses this bucket, which does not honour conditional writes: only one can",
        hint="Stop the other relay: operators' commands have to wait for that too, here. Or use a bucket that honours "
        "conditional writes (AWS S3, R2, Ceph).",
    )
