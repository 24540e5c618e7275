"""Sending to one other process: all writes since the last message that it heard, and a heartbeat.

    news ──► pending ──► message ──► heard: drop it
                ▲            │
                └── retry ◄──┴ not heard: at growing intervals, with newer writes added

Nothing is lost while the other process cannot be reached. Too many pending writes are dropped and leave a gap in the
numbers, which the other process treats as "any key may have been written". Only one message is in flight at a time.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crystal_relay.server.peers.messages import FORGET_MAX, GROUPS_BYTES_MAX, News
from crystal_relay.server.peers.records import Process
from crystal_relay.server.peers.times import PeerTimes
from crystal_relay.server.peers.transport import AnotherProcess, NotHeard, PeerConnection

PENDING_GROUPS_MAX = 16_384
_GROUP_BYTES = 26
"""Size of a group in JSON without its name: quotes, brackets, commas, the number."""


@dataclass(slots=True)
class _Pending:
    """What is to be sent."""

    groups: dict[str, int] = field(default_factory=dict[str, int])
    forget: set[str] = field(default_factory=set[str])
    forget_all: bool = False
    awaited: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    """Futures to resolve once all of `forget` was heard."""


class Sender:
    """Sends to one process. `run` it in a task; `finish` or cancel it."""

    def __init__(
        self,
        peer: Process,
        *,
        here: Process,
        number: int,
        secret: Callable[[], bytes],
        clock: Callable[[], float],
        times: PeerTimes,
        pause: Callable[[], float],
    ) -> None:
        """`number`: of the last write here. `pause`: minimum seconds between two messages.

        Raises NotHeard for an invalid URL.
        """
        self.peer = peer
        self.failing_since: float | None = None
        self.moved = False
        """Whether another process is at its address now."""
        self.messages = 0
        self.failures = 0
        self.tried = asyncio.Event()
        """Set once the first try is over, successful or not."""
        self._here = here
        self._secret = secret
        self._clock = clock
        self._times = times
        self._pause = pause
        self._line = PeerConnection(peer.url)
        self._pending = _Pending()
        self._last = number
        """The last write that `note` has reported; it may be behind the notifier."""
        self._told = self._last
        self._sequence = 0
        self._news = asyncio.Event()

    @property
    def reached(self) -> bool:
        """Whether the last message was heard."""
        return self.messages > 0 and self.failing_since is None

    def note(self, groups: Mapping[str, int], last: int) -> None:
        """Report writes up to number `last`; `groups` has the number of the last write of each group."""
        self._pending.groups.update(groups)
        self._last = last
        self._check_pending()
        self._news.set()

    def forget(self, vault: str) -> asyncio.Future[None]:
        """Report that the vault's credentials changed. The future resolves when the other process knows."""
        pending = self._pending
        pending.forget.add(vault)
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.awaited.append(heard)
        self._news.set()
        return heard

    async def run(self) -> None:
        """Send until cancelled, or until another process is found at the address."""
        wait = 0.0
        while not self.moved:
            if not await self._tell():
                wait = min(max(2 * wait, self._times.retry_first), self._times.retry_last)
                await asyncio.sleep(wait * random.uniform(0.75, 1.25))  # noqa: S311  (no secret)
                continue
            wait = 0.0
            await asyncio.sleep(self._pause())
            if not self._pending.groups:
                await self._sleep()

    async def finish(self) -> None:
        """Send what is pending, and goodbye. `run` must have ended."""
        while len(self._pending.groups) and await self._tell():
            pass
        if self.failing_since is None:
            await self._tell(goodbye=True)

    async def aclose(self) -> None:
        """Cancel what is pending and close the connection."""
        for heard in self._pending.awaited:
            heard.cancel()
        await self._line.aclose()

    # --- inside ---

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(self._times.heartbeat):
                await self._news.wait()
        except TimeoutError:
            return

    async def _tell(self, *, goodbye: bool = False) -> bool:
        taken, last = self._take()
        self._sequence += 1
        news = News(
            origin=self._here.name,
            to=self.peer.name,
            sequence=self._sequence,
            first=self._told + 1,
            last=last,
            url=self._here.url,
            groups=list(taken.groups.items()),
            forget=sorted(taken.forget),
            forget_all=taken.forget_all,
            goodbye=goodbye,
        )
        told = self._told
        try:
            await self._line.tell(self._secret(), news)
        except (NotHeard, AnotherProcess) as error:
            self._put_back(taken)
            self.moved = isinstance(error, AnotherProcess)
            self.failures += 1
            if self.failing_since is None:
                self.failing_since = self._clock()
            self.tried.set()
            return False
        except BaseException:
            self._put_back(taken)
            raise
        if self._told == told:  # else pending writes were dropped meanwhile
            self._told = last
        self.messages += 1
        self.failing_since = None
        self.tried.set()
        for heard in taken.awaited:
            if not heard.done():
                heard.set_result(None)
        return True

    def _take(self) -> tuple[_Pending, int]:
        """What fits into one message, the oldest first, and the number of the last write in it."""
        self._news.clear()
        pending, last = self._pending, self._last
        taken = _Pending(forget=pending.forget, forget_all=pending.forget_all, awaited=pending.awaited)
        if len(taken.forget) > FORGET_MAX:
            taken.forget, taken.forget_all = set(), True
        self._pending = _Pending()
        if sum(map(len, pending.groups)) + _GROUP_BYTES * len(pending.groups) <= GROUPS_BYTES_MAX:
            taken.groups = pending.groups
            return taken, last
        size = 0
        for group, number in sorted(pending.groups.items(), key=lambda item: item[1]):
            size += len(group) + _GROUP_BYTES
            if size <= GROUPS_BYTES_MAX:
                taken.groups[group] = last = number
            else:
                self._pending.groups[group] = number
        return taken, last

    def _put_back(self, taken: _Pending) -> None:
        pending = self._pending
        pending.groups = taken.groups | pending.groups
        pending.forget |= taken.forget
        pending.forget_all |= taken.forget_all
        pending.awaited += taken.awaited
        self._check_pending()

    def _check_pending(self) -> None:
        if len(self._pending.groups) > PENDING_GROUPS_MAX:
            self._pending.groups.clear()
            self._told = self._last
