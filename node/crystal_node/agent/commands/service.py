"""Service of commands: listens for requests of other devices, runs them beside the rounds, one at a time, and answers.

::

    long-poll of commands/ --something written--> look: into commands.db --a request--> begin (claim) --> the action --> report
                                                        --a report--> commands.db, for the client

A lock lets one process of a home run actions at a time. If it ends during an action, the next one begins it again where it may
be repeated, and else reports that its outcome is unknown.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import SystemRandom

from crystal_mirror.commands.database import ReceivedRequest, ReceivedState
from crystal_mirror.commands.deletion import expire
from crystal_mirror.commands.messages import RESULT_BYTES_MAX, Action, Arguments
from crystal_mirror.commands.stream import send
from crystal_mirror.commands.target import BeginOutcome, HeldClaims, begin, finish, next_due, progress
from crystal_node.agent.commands.client import exchange
from crystal_node.agent.commands.database import SqliteCommandDatabase
from crystal_node.agent.commands.policy import denial
from crystal_node.base.backoff import Backoff
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device
from crystal_node.sync.syncer import Syncer

LONG_POLL_SECONDS = 50.0
SAFETY_SECONDS = 1800.0
"""Interval of looking although nothing seemed to come."""
PROGRESS_SECONDS = 10.0
"""Shortest interval of progress reports: each is a write and wakes the listeners."""
PROGRESS_SHARE = 20
"""The interval grows to this fraction of the time that the action has run."""
TIDY_SECONDS = 3600.0
AGAIN_SECONDS_MAX = 300.0

_log = logging.getLogger("crystal_node.agent.commands")

Tell = Callable[[str, int, int], None]
"""Progress: a line for people, done, total. Callable from any thread."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of an action that succeeded: a line for people, and a JSON object."""

    text: str
    result: Mapping[str, object] = field(default_factory=dict[str, object])


ActionHandler = Callable[[Arguments, Tell], Awaitable[ActionResult]]


class CommandService:
    """``run`` does everything until cancelled; tests call ``look`` and ``run_due`` themselves."""

    def __init__(
        self,
        device: Device,
        syncer: Syncer,
        actions: Mapping[Action, ActionHandler],
        report: Report,
        latest: Callable[[], Settings] | None = None,
    ) -> None:
        """``report`` is told what comes and goes. ``latest`` gives the current settings, so that a denial counts at once.

        Raises CommandsDamaged.
        """
        self._device = device
        self._syncer = syncer
        self._actions = actions
        self._report = report
        self._latest = latest or (lambda: device.settings)
        home = device.settings.home
        self._database = SqliteCommandDatabase.open(home.commands_database)
        self._lock = FileLock(home.commands_database.with_suffix(".lock"), purpose="commands")
        self._claims = HeldClaims()
        self._due = asyncio.Event()
        self._waking = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of the relay to listen to."""
        return (self._device.member.keys.commands_prefix,)

    def close(self) -> None:
        self._database.close()

    def wake(self) -> None:
        """Retry now what failed: the network came back."""
        self._waking.set()

    async def run(self) -> None:
        """Listen, run and tidy until cancelled. Transient failures are reported and retried.

        Raises:
            Revoked, and whatever is not known to be transient.
        """
        loops = (
            (self._listen, "commands cannot be read"),
            (self._work, "a command cannot be begun or answered"),
            (self._tidy, "old commands cannot be deleted"),
        )
        tasks = [asyncio.create_task(self._again_and_again(loop, what)) for loop, what in loops]
        try:
            await asyncio.gather(*tasks)  # they end by an error only
        finally:
            for task in (*tasks, *self._sending):
                task.cancel()
            await asyncio.gather(*tasks, *self._sending, return_exceptions=True)

    async def look(self) -> str:
        """Receives and sends messages. Returns what moved, in words."""
        moved = await exchange(self._device, self._syncer, self._database)
        if next_due(self._database) is not None:
            self._due.set()
            self._waking.set()
        return moved

    async def run_due(self) -> str:
        """Runs the waiting requests one after the other. Returns how many ran, in words.

        Does nothing while another process of this home does. Raises StoreFailure and the like: call it again later.
        """
        if not self._lock.try_acquire():
            return ""
        ran = 0
        try:
            while (row := next_due(self._database)) is not None:
                member = self._device.member
                begun = await self._syncer.run(begin(member, self._database, row, self._claims, self._denied))
                if begun is BeginOutcome.RUN:
                    await self._do(row)
                    ran += 1
                await self._send()
            return f"{ran} done" if ran else ""
        finally:
            self._lock.release()

    async def tidy(self) -> None:
        """On a Core: has the relay delete old messages of the channel, at most once a day."""
        if self._device.member.is_core:
            await self._syncer.run(expire(self._device.member, now_ms()))

    # --- loops ---

    async def _again_and_again(self, loop: Callable[[Backoff], Awaitable[None]], what: str) -> None:
        backoff = Backoff(SystemRandom().uniform, most=AGAIN_SECONDS_MAX)
        while True:
            try:
                await loop(backoff)
            except Exception as error:
                if not passes(error):
                    raise
                failure = describe(error)
                if backoff.failures == 1:  # a relay that is away is told by the rounds already, and at once
                    self._report(WatchEvent.FAILED, f"{what}: {failure.message}; it is tried again")
                self._waking.clear()
                await _until(self._waking, backoff.failed())

    async def _listen(self, backoff: Backoff) -> None:
        token: str | None = None
        looked_at: float | None = None
        (prefix,) = self.prefixes()
        while True:
            fresh = await self._syncer.wait(prefix, token, LONG_POLL_SECONDS)
            now = time.monotonic()
            if (
                fresh != token
                or looked_at is None
                or now - looked_at > SAFETY_SECONDS
                or self._database.outgoing()
            ):
                if moved := await self.look():
                    self._report(WatchEvent.SYNCED, f"commands: {moved}")
                token, looked_at = fresh, now
            backoff.succeeded()

    async def _work(self, backoff: Backoff) -> None:
        while True:
            await self.run_due()
            backoff.succeeded()
            await self._due.wait()
            self._due.clear()

    async def _tidy(self, backoff: Backoff) -> None:
        while True:
            await self.tidy()
            backoff.succeeded()
            await asyncio.sleep(TIDY_SECONDS)

    # --- one action ---

    async def _do(self, row: ReceivedRequest) -> None:
        action = Action(row.action)
        self._report(WatchEvent.PROGRESS, f"{action.value}: begun, as device {row.sender.hex()[:8]} asked")
        teller = _Teller(asyncio.get_running_loop(), partial(self._tell, row))
        try:
            run = self._actions.get(action)
            if run is None:
                done, state = (
                    ActionResult("this version of Crystal cannot do that here"),
                    ReceivedState.FAILED,
                )
            else:
                done, state = await run(row.arguments, teller), ReceivedState.DONE
        except asyncio.CancelledError:
            if not action.repeatable:  # else the next process begins it again
                finish(
                    self._database,
                    row,
                    ReceivedState.UNKNOWN,
                    "the background service was stopped while it ran",
                )
            raise
        except Exception as error:  # noqa: BLE001  logged, and reported to the device that asked
            failure = describe(error)
            if not passes(error):
                _log.error("%s failed: %s", action.value, failure.message, exc_info=error)
            done, state = ActionResult(f"{failure.message}. {failure.hint}".strip()), ReceivedState.FAILED
        finally:
            teller.end()
        finish(self._database, row, state, done.text, _encoded(done.result))
        self._report(WatchEvent.PROGRESS, f"{action.value}: {state.name.lower()}. {done.text}".strip())

    def _tell(self, row: ReceivedRequest, text: str, done: int, total: int) -> None:
        progress(self._database, row, text, done, total)
        task = asyncio.create_task(self._send_if_it_goes(), name="telling progress")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_if_it_goes(self) -> None:
        try:
            await self._send()
        except Exception as error:
            if not passes(error):
                raise
            _log.debug("progress could not be told: %s", describe(error).message)

    async def _send(self) -> None:
        await self._syncer.run(send(self._device.member, self._database, now_ms()))

    def _denied(self, sender: bytes, action: Action) -> str:
        return denial(self._latest().service.commands_denied, sender, action)


class _Teller:
    """Takes progress of an action from any thread and passes it on at growing intervals."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Tell) -> None:
        self._loop = loop
        self._tell = tell
        self._began_at = time.monotonic()
        self._next_at = 0.0
        self._ended = False

    def __call__(self, text: str, done: int, total: int) -> None:
        self._loop.call_soon_threadsafe(self._take, text, done, total)

    def end(self) -> None:
        self._ended = True

    def _take(self, text: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._ended and now >= self._next_at:
            self._next_at = now + max(PROGRESS_SECONDS, (now - self._began_at) / PROGRESS_SHARE)
            self._tell(text, max(done, 0), max(total, 0))


def _encoded(result: Mapping[str, object]) -> bytes:
    data = json.dumps(result, ensure_ascii=False).encode("utf-8", "backslashreplace") if result else b""
    if len(data) <= RESULT_BYTES_MAX:
        return data
    return json.dumps({"left_out": f"the result has {len(data)} bytes, too many to send"}).encode()


async def _until(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
