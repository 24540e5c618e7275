"""``crystal commands``: requests between devices, and which device may ask for what here."""

import asyncio
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from crystal_mirror.commands.database import AskedRequest, command_notices
from crystal_mirror.membership.status import devices
from crystal_node.agent.commands.client import command_result, find_asked, open_database, refresh, take_back
from crystal_node.agent.commands.database import SqliteCommandDatabase
from crystal_node.agent.commands.policy import allow, deny
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, one_line
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.run import tell
from crystal_node.sync.members.names import find_device, name_of

group = typer.Typer(no_args_is_help=False)

SHOWN_MAX = 20

Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, or the first digits.")]
Named = Annotated[str, typer.Argument(metavar="DEVICE", help="A device's name or id; * is every device.")]
ActionName = Annotated[str, typer.Argument(metavar="ACTION", help="An action; * is every one.")]
Offline = Annotated[bool, typer.Option("--offline", help="Do not ask the relay for news first.")]


@group.callback(invoke_without_command=True)
def run(context: typer.Context) -> None:
    """List, show and cancel requests between devices; allow or deny them.

    Example:

        crystal commands list
    """
    if context.invoked_subcommand is None:
        list_commands()


@group.command("list")
def list_commands(offline: Offline = False, as_json: Json = False) -> None:
    """List the latest requests from and to this device.

    Each is shown with its state.

    Example:

        crystal commands list
    """
    with _opened() as device, open_database(device.settings) as database:
        problem = "" if offline else asyncio.run(refresh(device, database))
        names = _names(device)
        asked = [command_result(row) for row in database.all_asked()]
        received = database.all_received()
        noticed = command_notices(database)
    if as_json:
        emit(
            {
                "asked": [outcome.document() for outcome in asked],
                "received": [
                    {
                        "id": row.id.hex(),
                        "device": row.sender.hex(),
                        "action": row.action,
                        "state": row.state.name.lower(),
                        "text": row.text or None,
                    }
                    for row in received
                ],
                "noticed": {name: {"count": n.count, "last": n.detail} for name, n in noticed.items()},
                "fresh": not problem and not offline,
            }
        )
        return
    if problem:
        note(f"As it is known here: {problem}.")
    if not asked and not received:
        say("Nothing was asked of other devices, or by them.")
    for outcome in asked[-SHOWN_MAX:]:
        since = ago(max(_now() - outcome.asked_at, 0) / 1000)
        text = f": {one_line(outcome.text, 100)}" if outcome.text else ""
        to = names.get(outcome.device, outcome.device[:8])
        say(f"{outcome.id[:8]}  to {to}, {since}  {outcome.action}: {outcome.state.value}{text}")
    for row in [row for row in received if row.action][-SHOWN_MAX:]:
        text = f": {one_line(row.text, 100)}" if row.text else ""
        by = names.get(row.sender.hex(), row.sender.hex()[:8])
        say(f"{row.id.hex()[:8]}  by {by}  {row.action}: {row.state.name.lower()}{text}")
    for name, seen in sorted(noticed.items()):
        say(f"! {name}, {seen.count} times; the last: {one_line(seen.detail, 120)}")


@group.command("show")
def show(given: Id, offline: Offline = False, as_json: Json = False) -> None:
    """Show one request of this device, with its result.

    Example:

        crystal commands show 1a2b3c4d
    """
    with _opened() as device, open_database(device.settings) as database:
        request = find_asked(database, given).id
        problem = "" if offline else asyncio.run(refresh(device, database))
        outcome = command_result(_asked(database, request))
        called = _names(device).get(outcome.device, outcome.device[:8])
    if as_json:
        emit(outcome.document() | {"fresh": not problem and not offline})
        return
    if problem:
        note(f"As it is known here: {problem}.")
    tell(outcome, called)


@group.command("cancel")
def cancel(given: Id, as_json: Json = False) -> None:
    """Cancel a request that this device made.

    A request that already runs there is not stopped, and still reports its end.

    Example:

        crystal commands cancel 1a2b3c4d
    """
    with _opened() as device, open_database(device.settings) as database:
        request = find_asked(database, given).id
        was_over = _asked(database, request).state.ended
        problem = asyncio.run(take_back(device, database, request))
        outcome = command_result(_asked(database, request))
    if as_json:
        emit(outcome.document() | {"told": not problem})
        return
    if was_over:
        say(f"{outcome.action} has ended already: {outcome.state.value}.")
    elif problem:
        say(f"Taken back here; the device is told when the relay answers ({problem}).")
    elif outcome.ended:
        say(f"{outcome.action}: {outcome.state.value}. {outcome.text}".strip())
    else:
        say("Taken back: if it has not begun there, it will not.")


@group.command("deny")
def deny_command(device: Named, action: ActionName, as_json: Json = False) -> None:
    """Deny a device an action on this machine.

    It is checked when a request is about to run.

    Example:

        crystal commands deny laptop dream-weave
        crystal commands deny '*' backup
    """
    with _opened() as opened_device:
        rules = deny(opened_device.settings, _digits(opened_device, device), action)
    _say_rules(rules, (), as_json=as_json)


@group.command("allow")
def allow_command(device: Named, action: ActionName, as_json: Json = False) -> None:
    """Allow an action again that was denied.

    Example:

        crystal commands allow laptop dream-weave
    """
    with _opened() as opened_device:
        rules, still = allow(opened_device.settings, _digits(opened_device, device), action)
    _say_rules(rules, still, as_json=as_json)


def _say_rules(rules: tuple[str, ...], still: tuple[str, ...], *, as_json: bool) -> None:
    options = resolve().options["commands_denied"]
    if as_json:
        emit({"denied": list(rules), "still_denied_by": list(still), "origin": options.origin})
        return
    say(f"Denied here: {', '.join(rules)}." if rules else "Nothing is denied here.")
    if still:
        say(f"It is still denied, by {', '.join(still)}.")
    if options.value != ",".join(rules):
        note(f"commands_denied comes from {options.origin}, and is {options.value or 'empty'}.")


def _digits(device: Device, given: str) -> str:
    """The id of a device as a rule holds it. Raises NoSuchEntry, UsageError."""
    if given.strip() == "*":
        return "*"
    return find_device(devices(device.member), given).info.device.hex()


def _asked(database: SqliteCommandDatabase, request: bytes) -> AskedRequest:
    row = database.asked(request)
    assert row is not None, "it was there a moment ago"
    return row


def _names(device: Device) -> dict[str, str]:
    return {entry.info.device.hex(): name_of(entry) for entry in devices(device.member)}


def _opened() -> AbstractContextManager[Device]:
    return opened(resolve())


def _now() -> int:
    return now_ms()
