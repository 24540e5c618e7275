"""The claim of a process to be alone on a bucket that does not honour conditional writes.

Each process writes its own claim, `r/sole/<random>`, and renews it. It writes its claim before it looks for others, so that of
two that start together at least one sees the other. A claim that changes while it is watched belongs to a running process; one
that is unchanged for `dead` seconds is removed. A process that could not renew its claim for `lapse` seconds, less than `dead`,
stops writing before others can consider it dead, and then has to claim the bucket again.
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
    """Seconds. `lapse` and one write have to fit into `dead`."""

    renew: float = 5.0
    lapse: float = 15.0
    dead: float = 20.0
    look: float = 1.0
    """Interval of checking another process's claim."""


def boot_time() -> float:
    """Seconds since the machine started, including sleep, during which a claim ages too."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class BucketClaim:
    """This process's claim. One event loop. `take` makes it, `aclose` removes it."""

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
        """Raise StoreUnavailable unless this process is certainly alone."""
        if not self._owner or self._clock() - self._renewed_at >= self._times.lapse:
            raise StoreUnavailable(
                "the relay could not renew its claim on the bucket",
                hint="It writes again once the object store has answered and no other relay uses the bucket.",
            )

    async def take(self) -> None:
        """Claim the bucket. Raises InUse, StoreUnavailable. Takes `dead` seconds if there is an abandoned claim."""
        try:
            await self._become_owner()
        except BaseException:
            with contextlib.suppress(RelayError):
                await self._run(partial(self._bucket.delete, self._key))
            await asyncio.to_thread(self._lane.close)
            raise
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Remove the claim, after the last write. Idempotent."""
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
    """Other claims. `rival`: one is alive. `left`: some may be."""

    rival: bool
    left: bool


class Watched:
    """The claims of others, and since when each is unchanged. Blocks; one thread at a time."""

    def __init__(self, bucket: Bucket, own_key: str) -> None:
        self._bucket = bucket
        self._own_key = own_key
        self._seen: dict[str, tuple[bytes, float]] = {}

    def look(self, clock: Callable[[], float], dead: float) -> OtherProcesses:
        """Read all claims; remove dead ones. Raises StoreUnavailable."""
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
    """Check for claims although this process needs none. Raises InUse, StoreUnavailable."""
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
