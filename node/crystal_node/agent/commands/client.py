"""Client of commands: asks another device, and can wait for its answer.

Needs no background service: the flows run under the home's lock, as a round does. A request that could not be sent stays in
commands.db and goes out when the service, or the next such command, reaches the relay.
"""

import asyncio
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from crystal_mirror.commands.asker import ask, withdraw
from crystal_mirror.commands.database import AskedRequest
from crystal_mirror.commands.messages import Action, Arguments, CommandState
from crystal_mirror.commands.reader import read_commands
from crystal_mirror.commands.stream import send
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import Unready
from crystal_mirror.requests import StoreFailure
from crystal_node.agent.commands.database import SqliteCommandDatabase
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode, NoSuchEntry, UsageError
from crystal_node.base.settings import Settings
from crystal_node.base.wording import iso
from crystal_node.device.device import Device, opened
from crystal_node.sync.syncer import Syncer, syncing

LONG_POLL_SECONDS = 25.0
REFRESH_SECONDS_MAX = 4.0
SILENT_SECONDS_MAX = 2.0
"""After this long a waiting person is told for what, and how to stop waiting."""
ID_DIGITS_MIN = 4
RESULT_DEPTH_MAX = 32
"""Nesting of lists and objects in a result. None of ours has five levels."""
_PURPOSE = "crystal run"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What this device knows of one of its requests."""

    id: str
    device: str
    action: str
    state: CommandState
    text: str = ""
    result: dict[str, object] = field(default_factory=dict[str, object])
    done: int = 0
    total: int = 0
    asked_at: int = 0

    @property
    def ended(self) -> bool:
        return self.state.ended

    def document(self) -> dict[str, object]:
        return {
            "id": self.id,
            "device": self.device,
            "action": self.action,
            "state": self.state.value,
            "text": self.text or None,
            "progress": {"done": self.done, "total": self.total} if self.total else None,
            "asked_at": iso(self.asked_at),
            "result": self.result or None,
        }


def command_result(row: AskedRequest) -> CommandResult:
    result: object = {}
    if row.result:
        try:
            result = json.loads(row.result, parse_constant=_no_number)
        except (ValueError, RecursionError):  # from another device: shown as far as possible
            result = {}
    if not _is_flat(result, RESULT_DEPTH_MAX):
        result = {}
    return CommandResult(
        id=row.id.hex(),
        device=row.target.hex(),
        action=row.action,
        state=row.state,
        text=row.text,
        result=cast("dict[str, object]", result) if isinstance(result, dict) else {},
        done=row.done,
        total=row.total,
        asked_at=row.asked_at,
    )


@contextmanager
def open_database(settings: Settings) -> Generator[SqliteCommandDatabase]:
    """The home's commands.db, closed on exit."""
    database = SqliteCommandDatabase.open(settings.home.commands_database)
    try:
        yield database
    finally:
        database.close()


async def ask_core(
    settings: Settings,
    action: Action,
    arguments: Arguments | None = None,
    *,
    wait: float | None = None,
    progress: Tell | None = None,
) -> CommandResult:
    """Asks the Core. ``wait``: seconds to wait for the end; returns what is known then.

    Raises:
        Usage: this device is the Core.
        Unready: there is no Core.
        and what ``ask_device`` raises.
    """
    with opened(settings) as device:
        return await ask_device(device, None, action, arguments, wait=wait, progress=progress)


async def ask_device(
    device: Device,
    target: bytes | None,
    action: Action,
    arguments: Arguments | None = None,
    *,
    wait: float | None = None,
    progress: Tell | None = None,
) -> CommandResult:
    """Asks ``target``, or the Core if None, after a round of sync.

    Raises:
        NotAMember, NotAllowed, Revoked: nothing was asked.
        StoreFailure, HomeBusy: the request may be stored and not sent; the hint says so.
    """
    with open_database(device.settings) as database:
        async with syncing(device, _PURPOSE) as syncer:
            away = await _come_up(device, syncer)
            target = core_of(device) if target is None else target
            request = ask(device.member, database, target, action, arguments or Arguments(), now_ms())
            try:
                if away is not None:
                    raise away
                await syncer.run(send(device.member, database, now_ms()))
            except StoreFailure as failure:
                failure.hint = (
                    f"{failure.hint} The request is kept, and goes out with the background service's next look; "
                    f"`crystal commands cancel {request.hex()[:8]}` takes it back."
                )
                raise
            if wait is not None:
                await _wait(device, syncer, database, request, wait, progress)
            return _outcome(database, request)


def core_of(device: Device) -> bytes:
    """The Core's id. Raises Unready if there is none, Usage if it is this device."""
    lead = device.member.log.lead
    if lead is None or lead.is_freeze:
        raise Unready("this vault has no Core that could be asked")
    if lead.device == device.identity.id:
        raise UsageError(
            "this device is the Core itself", hint="Run the command for it here, without asking anybody."
        )
    return lead.device


async def refresh(device: Device, database: SqliteCommandDatabase) -> str:
    """Receives and sends messages, for some seconds at most. Returns why it could not, "" if it could."""
    from crystal_crypto.errors import CrystalError
    from crystal_node.base.errors import describe

    try:
        async with asyncio.timeout(REFRESH_SECONDS_MAX), syncing(device, _PURPOSE) as syncer:
            await exchange(device, syncer, database)
    except TimeoutError:
        return "the relay does not answer in time"
    except CrystalError as error:
        return describe(error).message
    return ""


async def exchange(device: Device, syncer: Syncer, database: SqliteCommandDatabase) -> str:
    """Receives and sends messages. Returns what moved, in words."""
    requests = reports = 0
    while True:
        looked = await syncer.run(read_commands(device.member, database, now_ms()))
        requests, reports = requests + looked.requests, reports + looked.reports
        if not looked.more or not looked.read:
            break
    sent = await syncer.run(send(device.member, database, now_ms()))
    counts = ((requests, "asked of this device"), (reports, "answered"), (sent, "sent"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


async def take_back(device: Device, database: SqliteCommandDatabase, request: bytes) -> str:
    """Withdraws a request. Returns why its target could not be told yet, "" if it was or need not be."""
    withdraw(device.member, database, request, now_ms())
    return await refresh(device, database) if database.outgoing() else ""


def find_asked(database: SqliteCommandDatabase, given: str) -> AskedRequest:
    """The request whose id starts with these digits. Raises NoSuchEntry, Usage."""
    digits = given.strip().lower()
    if len(digits) < ID_DIGITS_MIN or not all(digit in "0123456789abcdef" for digit in digits):
        raise UsageError(
            f"{given[:40]!r} is no id", hint=f"Give {ID_DIGITS_MIN} or more of its first digits."
        )
    found = [row for row in database.all_asked() if row.id.hex().startswith(digits)]
    if not found:
        raise NoSuchEntry(
            f"nothing with the id {digits[:16]} was asked here",
            hint="`crystal commands list` shows what was.",
        )
    if len(found) > 1:
        raise UsageError(f"{digits} is the beginning of more than one id", hint="Give more of its digits.")
    return found[0]


async def _come_up(device: Device, syncer: Syncer) -> StoreFailure | None:
    """A round of sync, after which this device knows the Core and is not behind. Returns the relay's failure, if any: a request
    can be stored without it."""
    member = device.member
    try:
        if member.is_core:
            await syncer.run(read_log(member.log, member.journal, member.keys))
        else:
            await syncer.round(enough=lambda: True)
    except StoreFailure as failure:
        return failure
    return None


async def _wait(
    device: Device,
    syncer: Syncer,
    database: SqliteCommandDatabase,
    request: bytes,
    seconds: float,
    progress: Tell | None,
) -> None:
    """Waits until the request has ended or the time is over, also for a relay that is away."""
    deadline = time.monotonic() + seconds
    prefix, token, told = device.member.keys.commands_prefix, None, ""
    pause, patience = 0.5, time.monotonic() + SILENT_SECONDS_MAX
    while (left := deadline - time.monotonic()) > 0:
        try:
            silent = LONG_POLL_SECONDS if told else max(patience - time.monotonic(), 0.1)
            token = await syncer.wait(prefix, token, min(left, silent))
            await exchange(device, syncer, database)
            pause = 0.5
        except StoreFailure as failure:
            if failure.exit_code != ExitCode.RELAY_UNREACHABLE:
                raise
            token = None
            await asyncio.sleep(min(pause, max(left, 0)))
            pause = min(pause * 2, LONG_POLL_SECONDS)
        now = _outcome(database, request)
        if now.ended:
            return
        if not now.text and not told and time.monotonic() >= patience:
            told = (
                f"No answer yet; it is waited for {seconds:.0f} s at most, and Ctrl-C leaves the request as it is: "
                f"`crystal commands show {request.hex()[:8]}` tells later."
            )
            _tell(progress, told)
        elif now.text and now.text != told:
            told = now.text
            _tell(progress, told)


def _tell(progress: Tell | None, text: str) -> None:
    if progress is not None:
        progress(text)


def _outcome(database: SqliteCommandDatabase, request: bytes) -> CommandResult:
    row = database.asked(request)
    assert row is not None, "it was written down a moment ago, and is kept"
    return command_result(row)


def _is_flat(value: object, left: int) -> bool:
    """Whether the value is nested at most ``left`` levels deep, so that it can be printed."""
    if isinstance(value, dict):
        inner = list(cast("dict[str, object]", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return True
    return left > 0 and all(_is_flat(each, left - 1) for each in inner)


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
