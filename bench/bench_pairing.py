"""Pairing by invite: what each side does itself, besides the person and the network.

Both sides run in this process over a real relay on loopback, each with a home on disk, and the digits are typed the moment
they are shown. A side's own work is the processor's time of its tasks, from the command to the newcomer in the vault:
sealing and opening, reading and judging the device log, its HTTP client, its databases and key files. Waiting for the relay,
the other side or the disk is not in it, and neither is the start of the process; the whole pairing, by the clock, has all but
the last.
"""

import asyncio
import contextvars
import statistics
import tempfile
import time
import types
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, cast

from bench.harness import Row, value_at_most
from crystal_crypto.invite_code import decode_invite
from crystal_node.base.settings import Settings, resolve
from crystal_node.device.device import opened
from crystal_node.device.enrolment import found_vault
from crystal_node.device.relay import open_http
from crystal_node.safekeeping.pairing.inviter import invite
from crystal_node.safekeeping.pairing.newcomer import join_by_invite
from crystal_node.safekeeping.pairing.person import Machine, ShownInvite
from tests.support.relay_process import running_relay

OWN_MS_MAX = 50.0


class _Side(Enum):
    INVITER = "the inviting side's own work"
    NEWCOMER = "the newcomer's own work"


_side: contextvars.ContextVar[_Side | None] = contextvars.ContextVar("side", default=None)


@dataclass
class _Times:
    """Seconds of one pairing."""

    own: dict[_Side, float] = field(default_factory=lambda: dict.fromkeys(_Side, 0.0))
    whole: float = 0.0


@dataclass
class _Person:
    """Both people at once: who sees the digits on one machine types them on the other."""

    code: "asyncio.Future[str]"
    read: "asyncio.Future[str]"

    def show(self, invite: ShownInvite) -> None:
        self.code.set_result(invite.text)

    def remind(self, machine: Machine) -> None:
        raise AssertionError("no pairing broke off")

    def waiting(self, seconds_left: float) -> None:
        """Nobody looks."""

    def arrived(self, machine: Machine) -> None:
        """Nobody looks."""

    def wrong(self, tries_left: int) -> None:
        raise AssertionError("the digits were right")

    def unreadable(self) -> None:
        raise AssertionError("they were digits")

    def added(self, machine: Machine) -> None:
        """Nobody looks."""

    def ended(self) -> None:
        """There is no screen."""

    def settling(self, seconds_left: float) -> None:
        """Nobody watches."""

    def away(self, gone: bool) -> None:
        raise AssertionError("the relay is there")

    def withdrawn(self, *, added: bool | None) -> None:
        raise AssertionError("nobody stopped it")


class _Inviter(_Person):
    async def digits(self, machine: Machine, tries_left: int) -> str | None:
        return await self.read


class _Newcomer(_Person):
    def met(self, inviter_name: str, vault: bytes) -> None:
        """Nobody looks."""

    def digits(self, digits: str, machine: Machine, seconds_left: float) -> None:
        self.read.set_result(digits)

    async def confirms(self, machine: Machine, vault: bytes) -> bool:
        return True

    def ended(self) -> None:
        """There is no screen."""

    def away(self, gone: bool) -> None:
        raise AssertionError("the relay is there")

    def left(self, listed: bytes) -> None:
        raise AssertionError("nobody left")


def run(quick: bool) -> list[Row]:
    times = 3 if quick else 15
    with tempfile.TemporaryDirectory() as folder, running_relay(Path(folder) / "relay") as relay:
        core = _settings(Path(folder) / "core", relay.url)
        core = asyncio.run(found_vault(core, relay.enroll_token)).settings
        homes = [_settings(Path(folder) / f"node-{number}", relay.url) for number in range(times + 1)]
        measured = [asyncio.run(_pairing(core, home)) for home in homes][1:]  # the first one warmed up
    rows = [
        Row(
            name=side.value,
            value=statistics.median(one.own[side] for one in measured) * 1000,
            unit="ms",
            target=value_at_most(OWN_MS_MAX),
        )
        for side in _Side
    ]
    whole = statistics.median(one.whole for one in measured) * 1000
    return [*rows, Row(name="a whole pairing on loopback, digits typed at once", value=whole, unit="ms")]


def _settings(home: Path, relay: str) -> Settings:
    home.mkdir()
    return resolve(
        environment={"CRYSTAL_HOME": str(home), "CRYSTAL_KEY_STORE": "file", "CRYSTAL_RELAY_URL": relay}
    )


async def _pairing(core: Settings, home: Settings) -> _Times:
    times = _Times()
    loop = asyncio.get_running_loop()

    def accounted(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        side = _side.get()
        timed = work if side is None else cast(Coroutine[Any, Any, Any], _timed(work, times.own, side))
        return asyncio.Task(timed, loop=loop, **options)

    loop.set_task_factory(accounted)  # type: ignore[arg-type]
    people = loop.create_future(), loop.create_future()
    start = time.perf_counter()
    inviting = _start(_Side.INVITER, _invite(core, _Inviter(*people)))
    joining = _start(_Side.NEWCOMER, _join(home, _Newcomer(*people)))
    await asyncio.gather(inviting, joining)
    times.whole = time.perf_counter() - start
    return times


def _start(side: _Side, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    token = _side.set(side)
    try:
        return asyncio.get_running_loop().create_task(work)
    finally:
        _side.reset(token)


async def _invite(settings: Settings, person: _Inviter) -> None:
    with opened(settings) as device:
        token = device.keys.token(device.identity.id)
        assert token is not None
        async with open_http(settings, vault=device.member.vault, token=token) as http:
            await invite(device, http, person)


async def _join(settings: Settings, person: _Newcomer) -> None:
    code = await person.code
    await join_by_invite(settings, decode_invite(code), person)


@types.coroutine
def _timed(work: Coroutine[Any, Any, Any], own: dict[_Side, float], side: _Side) -> Generator[Any, Any, Any]:
    """Runs a coroutine and counts the time between its waits."""
    error: BaseException | None = None
    while True:
        start = time.thread_time()
        try:
            waited_for = work.send(None) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            own[side] += time.thread_time() - start
        try:
            error = None
            yield waited_for
        except BaseException as thrown:  # noqa: BLE001  handed on to the coroutine
            error = thrown
