"""Membership and messaging among the relay processes over one store.

    start    r/process/<name> ──► the list ──► greet every process on it, which greets back
    write    number, group ──► each sender, within milliseconds; no process polls the store for them
    5 s      a silent process: its last writes may be unknown, so all waits are woken, once
    5 min    one LIST: is this process on it, which are new; remove those unreachable for 15 minutes
    stop     leave the list, send what is pending, say goodbye

Processes find each other only through the store. Two that cannot reach each other go on serving; their devices find each
other's writes by the round that they make every few minutes anyway.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import RelayError
from crystal_relay.limits import WAIT_TOKEN_ORIGINS_MAX
from crystal_relay.notify import Notifier
from crystal_relay.server.peers.messages import PATH, News
from crystal_relay.server.peers.receiver import Forget, PeerReceiver
from crystal_relay.server.peers.records import Process, ProcessRecords
from crystal_relay.server.peers.sender import Sender
from crystal_relay.server.peers.status import PeersStatus
from crystal_relay.server.peers.times import PeerTimes
from crystal_relay.server.peers.transport import NotHeard
from crystal_relay.server.rates import Rates
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import Store

RELAY_KEYS = "r/"
PEERS_MAX = 128
"""Processes that are tried at once, dead ones included."""

_log = logging.getLogger("crystal_relay.peers")


@dataclass(slots=True)
class _Peer:
    sender: Sender
    task: asyncio.Task[None]
    heard_at: float
    doubted: bool = False


class Peers:
    """One for each process over a shared store. The notifier is the one that the store's `wait` asks."""

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        *,
        url: str,
        times: PeerTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url`: where the others reach this process."""
        self.here = Process(notifier.name, url)
        self._records = ProcessRecords(store)
        self._notifier = notifier
        self._times = times or PeerTimes()
        self._clock = clock
        self._secret: bytes | None = None
        self.hearer = PeerReceiver(notifier, secret=lambda: self._secret, met=self._met)
        self._peers: dict[str, _Peer] = {}
        self._left: dict[str, float] = {}
        """When processes left, by name, as long as their last writes are known."""
        self._batch: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._told = 0
        self._not_told = 0

    # --- for the relay ---

    def routes(self, settings: RelaySettings, rates: Rates, forget: Forget) -> list[Route]:
        """The routes that other processes call. `forget` is given vaults whose credentials may have changed elsewhere."""
        self.hearer.forget = forget

        async def hear_peer(request: Request) -> Response:
            return await self.hearer.answer(request, settings, rates)

        return [Route(PATH, hear_peer, methods=["POST"])]

    async def forget(self, vault: str) -> None:
        """Tell all that the vault's credentials changed. Returns when the reachable ones know, or after 2 s."""
        heard = [peer.sender.forget(vault) for peer in self._peers.values()]
        reached = [
            known
            for known, peer in zip(heard, self._peers.values(), strict=True)
            if peer.sender.failing_since is None
        ]
        if reached:
            await asyncio.wait(reached, timeout=self._times.announcement)

    def status(self) -> PeersStatus:
        """For the metrics."""
        senders = [peer.sender for peer in self._peers.values()]
        return PeersStatus(
            known=len(senders),
            reached=sum(sender.reached for sender in senders),
            told=self._told + sum(sender.messages for sender in senders),
            not_told=self._not_told + sum(sender.failures for sender in senders),
            heard=self.hearer.messages,
            missed=self.hearer.missed,
        )

    # --- start and stop ---

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start, and stop at the end. The socket at `url` must listen already; serve within, so that others get answers."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def start(self) -> None:
        """Enter the list and greet all others on it, before any request is served. Raises what the store raises."""
        self._secret = await self._records.secret()
        self._notifier.on_written = self._written
        self._notifier.in_touch = self._in_touch
        await self.look_at_list()
        self._started = True
        greeted = [asyncio.create_task(peer.sender.tried.wait()) for peer in self._peers.values()]
        if greeted:
            _, late = await asyncio.wait(greeted, timeout=self._times.greeting)
            for task in late:
                task.cancel()
        self._start(self._rounds(), "peer rounds")
        self._start(self._looks(), "peer looks")
        _log.info("%s is reached at %s; %d others", self.here.name, self.here.url, len(self._peers))

    async def stop(self) -> None:
        """Leave the list, send what is pending, say goodbye. No write may follow."""
        self._notifier.on_written = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._records.remove(self.here.name)
        except RelayError as error:
            _log.warning("this process stays on the list of processes for a while: %s", error)
        self._flush()
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.task.cancel()
        await asyncio.gather(*(peer.task for peer in peers.values()), return_exceptions=True)
        try:
            async with asyncio.timeout(self._times.farewell):
                await asyncio.gather(*(peer.sender.finish() for peer in peers.values()))
        except TimeoutError:
            _log.warning("not every other process was told goodbye")
        for peer in peers.values():
            await peer.sender.aclose()
        self._secret = None

    async def look_at_list(self) -> None:
        """Update membership from the list, every five minutes. One LIST, and a GET for each new process."""
        self._secret = await self._records.secret()
        now = self._clock()
        for name, peer in tuple(self._peers.items()):
            since = peer.sender.failing_since
            if since is not None and now - since >= self._times.give_up:
                await self._records.remove(name)
                self._part(name)
        names = await self._records.names()
        if self.here.name not in names:
            await self._records.enter(self.here, since=int(time.time()))
        for name in sorted(names - self._peers.keys() - {self.here.name}):
            process = await self._records.process(name)
            if process is not None:
                self._meet(process)
        if self.status().reached >= WAIT_TOKEN_ORIGINS_MAX:
            _log.error(
                "more than %d processes over one store: waits wake for nothing", WAIT_TOKEN_ORIGINS_MAX
            )

    def look_around(self) -> None:
        """Check for silent, departed and replaced processes, every few seconds."""
        now = self._clock()
        for name, peer in tuple(self._peers.items()):
            if peer.sender.moved:
                self._start(self._remove(name), "peer removal")
                self._part(name)
            elif not peer.doubted and now - peer.heard_at >= self._times.silent:
                peer.doubted = True
                if name in self._notifier.others:
                    _log.warning("nothing was heard of %s (%s) for a while", name, peer.sender.peer.url)
                    self._notifier.everything_written()
        for name, left in tuple(self._left.items()):
            if now - left >= self._times.remember:
                del self._left[name]
                self._notifier.forget(name)

    # --- inside ---

    def _written(self, group: str, number: int) -> None:
        if not self._batch:
            asyncio.get_running_loop().call_soon(self._flush)
        self._batch[group] = number

    def _flush(self) -> None:
        batch, self._batch = self._batch, {}
        if batch:
            for peer in self._peers.values():
                peer.sender.note(batch, self._notifier.number)

    def _in_touch(self) -> bool:
        return not any(peer.doubted or peer.sender.failing_since is not None for peer in self._peers.values())

    def _met(self, news: News) -> None:
        if news.goodbye:
            self._part(news.origin)
            return
        peer = self._peers.get(news.origin)
        if peer is None:
            self._meet(Process(news.origin, news.url))
        else:
            peer.heard_at = self._clock()
            peer.doubted = False

    def _meet(self, process: Process) -> None:
        if process.name in self._peers or not self._room():
            return
        try:
            sender = Sender(
                process,
                here=self.here,
                number=self._notifier.number if self._started else 0,
                secret=lambda: self._secret or b"",
                clock=self._clock,
                times=self._times,
                pause=lambda: self._times.pace * len(self._peers),
            )
        except NotHeard:
            _log.warning("%s is at no address that could be reached", process.name)
            return
        if not self._started:
            # All writes so far were the relay's own: a process that starts must not wake every wait.
            sender.note({RELAY_KEYS: self._notifier.number}, self._notifier.number)
        task = asyncio.create_task(sender.run(), name=f"peer {process.name}")
        task.add_done_callback(_told_if_broken)
        self._left.pop(process.name, None)
        self._peers[process.name] = _Peer(sender, task, self._clock())

    def _room(self) -> bool:
        """Make room for one more by dropping the process that was unreachable for the longest time. False if there is none."""
        if len(self._peers) < PEERS_MAX:
            return True
        failing = [
            (peer.sender.failing_since, name)
            for name, peer in self._peers.items()
            if peer.sender.failing_since is not None
        ]
        if not failing:
            _log.error("more than %d processes are listed: one is left out until the next look", PEERS_MAX)
            return False
        self._part(min(failing)[1])
        return True

    def _part(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        self._left[name] = self._clock()
        if peer is not None:
            self._told += peer.sender.messages
            self._not_told += peer.sender.failures
            self._start(_close(peer), "peer parting")

    async def _remove(self, name: str) -> None:
        try:
            await self._records.remove(name)
        except RelayError as error:
            _log.warning("the record of %s could not be removed: %s", name, error)

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(self._times.round * random.uniform(0.75, 1.25))  # noqa: S311  (no secret)
            try:
                await self.look_at_list()
            except RelayError as error:
                _log.warning("the list of processes could not be read: %s", error)

    async def _looks(self) -> None:
        while True:
            await asyncio.sleep(self._times.heartbeat)
            self.look_around()

    def _start(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_told_if_broken)


async def _close(peer: _Peer) -> None:
    peer.task.cancel()
    await asyncio.gather(peer.task, return_exceptions=True)
    await peer.sender.aclose()


def _told_if_broken(task: asyncio.Task[None]) -> None:
    """Log a task's exception, which is never awaited."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("%s has ended", task.get_name(), exc_info=error)
