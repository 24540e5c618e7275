"""``crystal run``: ask another device to do something, and show the result."""

import asyncio
import json
from typing import Annotated

import typer

from crystal_mirror.commands.messages import Action, Arguments, CommandState
from crystal_mirror.membership.status import devices
from crystal_node.agent.commands.client import CommandResult, ask_device
from crystal_node.base.errors import CommandFailed, NoAnswer, NoSuchEntry, UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import one_line, printable
from crystal_node.derive.weaving import WeaveMode
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Agent, Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.sync.members.device_list import refresh
from crystal_node.sync.members.names import find_device, name_of

SECONDS = 120.0

ActionName = Annotated[
    str,
    typer.Argument(
        metavar="ACTION",
        help="status, verify, snapshot, backup, backfill or dream-weave.",
        show_default=False,
    ),
]
On = Annotated[
    str, typer.Option("--on", metavar="DEVICE", help="Which device: its name or id; `core` is the Core.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result, or only send it.")]
Seconds = Annotated[
    float, typer.Option("--seconds", metavar="N", min=0, max=86_400, help="Wait so long at most.")
]
Mode = Annotated[
    str,
    typer.Option("--mode", metavar="MODE", help="dream-weave: full or incremental. backfill: a tool's name."),
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="dream-weave: 24h, yesterday, last week, 2026-01-31.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="backfill, dream-weave: count only.")]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", metavar="N", min=0, help="backfill: parts; dream-weave: tokens. 0: as set there."
    ),
]


def run(
    action: ActionName,
    on: On = "core",
    wait: Wait = True,
    seconds: Seconds = SECONDS,
    agent: Agent = None,
    mode: Mode = "",
    since: Since = "",
    dry_run: DryRun = False,
    limit: Limit = 0,
    as_json: Json = False,
) -> None:
    """Ask another device of the vault to do something.

    It must run the background service (`crystal agent`), and does each request once. The request is sealed to that device.
    It may be off: then it acts when it comes back, unless the memory has gone on too far. `crystal commands list` shows
    requests, also after you stopped waiting.

    Example:

        crystal run status --on laptop
        crystal run dream-weave --dry-run
    """
    if action not in set(Action):
        raise UsageError(f"there is no action {action[:40]!r}", hint=f"There are: {', '.join(Action)}.")
    if action == Action.DREAM_WEAVE and mode and mode not in set(WeaveMode):
        raise UsageError(f"there is no mode {mode[:20]!r}", hint=f"There are: {', '.join(WeaveMode)}.")
    arguments = Arguments(agent or "", mode, since, dry_run, limit)
    with opened(resolve()) as device:
        outcome = asyncio.run(
            ask_device(
                device,
                _target(device, on),
                Action(action),
                arguments,
                wait=seconds if wait else None,
                progress=None if as_json else note,
            )
        )
        called = _called(device, outcome)
    if as_json:
        emit(outcome.document())
    else:
        tell(outcome, called)
    if wait:
        _fail_unless_done(outcome)


def tell(outcome: CommandResult, called: str) -> None:
    """Show an outcome to people; `crystal commands show` uses it too."""
    progress = f" ({outcome.done:,} of {outcome.total:,})" if outcome.total and not outcome.ended else ""
    said = f": {one_line(outcome.text, 400)}" if outcome.text else ""
    say(f"{outcome.id[:8]}  {outcome.action} on {called}: {outcome.state.value}{progress}{said}")
    for line in (
        json.dumps(outcome.result, ensure_ascii=False, indent=2).splitlines() if outcome.result else ()
    ):
        say(printable(line))


def _target(device: Device, on: str) -> bytes | None:
    """The device, or None for the Core, which is resolved with the log on the relay. Raises NoSuchEntry, UsageError."""
    if on.strip().lower() == "core":
        return None

    try:
        found = find_device(devices(device.member), on).info.device
    except NoSuchEntry:  # it may have joined a moment ago
        asyncio.run(refresh(device))
        found = find_device(devices(device.member), on).info.device
    if found == device.identity.id:
        raise UsageError("that is this device", hint="Run the command for it here, without asking anybody.")
    return found


def _called(device: Device, outcome: CommandResult) -> str:
    named = {entry.info.device.hex(): name_of(entry) for entry in devices(device.member)}
    return named.get(outcome.device, outcome.device[:8])


def _fail_unless_done(outcome: CommandResult) -> None:
    """Raises CommandFailed, NoAnswer."""
    if outcome.state is CommandState.DONE:
        if outcome.action == Action.VERIFY and (outcome.result or {}).get("ok") is False:
            raise CommandFailed(outcome.text, hint="Run `crystal repair` on that machine.")
        return
    if outcome.ended:
        raise CommandFailed(f"{outcome.action} was not done there: {outcome.text or outcome.state.value}")
    raise NoAnswer(
        f"no result yet: {outcome.state.value}",
        hint=f"`crystal commands show {outcome.id[:8]}` tells later; it runs only while `crystal agent` runs there.",
    )
