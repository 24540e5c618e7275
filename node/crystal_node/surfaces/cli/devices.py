"""``crystal devices``: list the vault's devices, and rename, grant or renew keys."""

import asyncio
from typing import Annotated, Any

import typer

from crystal_mirror.devicelog.records import DETAIL_CHARS_MAX
from crystal_mirror.membership.status import devices
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, counted, iso, one_line, printable
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.surfaces.cli.console.terminal import console
from crystal_node.surfaces.cli.devices_revoke import revoke
from crystal_node.sync.administration.devices import (
    accept_left,
    count_held,
    drop_left,
    grant_device,
    rename_device,
)
from crystal_node.sync.administration.devices import renew_keys as renew
from crystal_node.sync.members.device_list import JoinMethod, MemberRow, Party, refresh, rows_of
from crystal_node.sync.members.names import find_device, name_of
from crystal_node.sync.members.news import lines_of, mark_all_shown

_WIDE_COLUMNS = 100
"""What all columns take without words being cut; on less the system is left out."""

group = typer.Typer(no_args_is_help=False)

Named = Annotated[str, typer.Argument(metavar="DEVICE", help="Its name, its id, or the beginning of either.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="What all devices call it from now on.")]
All = Annotated[bool, typer.Option("--all", help="List revoked devices, too.")]
Offline = Annotated[bool, typer.Option("--offline", help="Do not ask the relay: list what is known here.")]
Accept = Annotated[bool, typer.Option("--accept", help="Take it into the memory.")]
Drop = Annotated[bool, typer.Option("--drop", help="Drop it unread: it counts as done.")]

group.command("revoke")(revoke)


@group.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    show_all: All = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """List and manage the vault's devices.

    Shows how each joined, when it was last heard of, how far it is behind, and what it may do.

    Example:

        crystal devices --all
    """
    if context.invoked_subcommand is not None:
        return

    with opened(resolve()) as device:
        problem = "not asked" if offline else asyncio.run(refresh(device))
        rows = rows_of(device)
        shown = [row for row in rows if show_all or not row.revoked]
        hidden = len(rows) - len(shown)
        if as_json:
            emit(
                {
                    "devices": [_document(row) for row in shown],
                    "revoked_not_listed": hidden,
                    "relay": problem or "read",
                    "generation": device.member.log.generation,
                }
            )
            return
        for line in lines_of(device.member):
            say(f"* {line}")
        mark_all_shown(device.member)
        _table(shown)
        if hidden:
            say(f"{counted(hidden, 'revoked device')} not listed: `crystal devices --all`.")
        if problem and not offline:
            note(f"As far as is known here ({problem}).")


@group.command("rename")
def rename(device: Named, name: NewName, as_json: Json = False) -> None:
    """Rename a device, on all devices.

    For the Core, or a machine that holds the vault's root.

    Example:

        crystal devices rename laptop "old laptop"
    """
    wanted = printable(name).strip()
    if not wanted or len(wanted) > DETAIL_CHARS_MAX:
        raise UsageError(f"a name has 1 to {DETAIL_CHARS_MAX} characters")
    with _opened() as opened_device:
        target, called = _find(opened_device, device)
        fresh = asyncio.run(rename_device(opened_device, target, wanted))
    if as_json:
        emit({"device": target.hex(), "name": wanted, "fresh": fresh})
    else:
        say(f"{called} is called {wanted} from now on." if fresh else f"{called} is called that already.")


@group.command("grant")
def grant(device: Named, as_json: Json = False) -> None:
    """Allow a device to become the Core by itself.

    It can then take over when the Core is gone. It does not get the vault's root.

    Example:

        crystal devices grant laptop
    """
    with _opened() as opened_device:
        target, called = _find(opened_device, device)
        fresh = asyncio.run(grant_device(opened_device, target))
    if as_json:
        emit({"device": target.hex(), "fresh": fresh})
    else:
        say(
            f"{called} may become the Core from now on: `crystal promote` there."
            if fresh
            else f"{called} may become the Core already."
        )


@group.command("renew-keys")
def renew_keys(as_json: Json = False) -> None:
    """Begin a new generation of keys now.

    One also begins with every revocation, and every 30 days.

    Example:

        crystal devices renew-keys
    """
    with _opened() as opened_device:
        generation = asyncio.run(renew(opened_device))
        devices = len(opened_device.member.log.active())
    if as_json:
        emit({"generation": generation, "devices": devices})
    else:
        say(f"Generation {generation} is in force: its keys were sealed to {counted(devices, 'device')}.")


@group.command("held")
def held(
    device: Named,
    accept: Accept = False,
    drop: Drop = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show, accept or drop what a revoked device wrote.

    No device takes it in until it is accepted. Accept it only if you are sure that the device was yours when it wrote that.

    Example:

        crystal devices held laptop
        crystal devices held laptop --drop
    """
    if accept and drop:
        raise UsageError("--accept or --drop, not both")
    with _opened() as opened_device:
        target, called = _find(opened_device, device, revoked=True)
        if drop:
            if not yes:
                confirm(
                    f"What {called} left shall count as done, unread. Type drop to go on: ",
                    expect="drop",
                    as_json=as_json,
                )
            dropped = asyncio.run(drop_left(opened_device, target))
            document: dict[str, object] = {"dropped": dropped}
            text = f"{dropped} of what {called} left count as done."
        elif accept:
            if not yes:
                confirm(
                    f"What {called} left is taken into the memory. Type accept to go on: ",
                    expect="accept",
                    as_json=as_json,
                )
            taken = asyncio.run(accept_left(opened_device, target))
            document = {"accepted": taken.operations, "unreadable": taken.unreadable}
            text = f"{taken.operations} changes were taken." + (
                f" {taken.unreadable} changes stay held: they cannot be read here."
                if taken.unreadable
                else ""
            )
        else:
            relay, here = asyncio.run(count_held(opened_device, target))
            document = {"on_relay": relay, "on_this_device": here}
            text = f"{called}: {relay} changes are held on the relay, {here} on this device alone."
    if as_json:
        emit({"device": target.hex(), **document})
    else:
        say(text)


def _opened() -> Any:
    return opened(resolve())


def _find(device: Device, given: str, *, revoked: bool = False) -> tuple[bytes, str]:
    """The device that is meant. The relay is asked first, if it answers, so that a new device is found."""
    asyncio.run(refresh(device))
    entries = [entry for entry in devices(device.member) if (entry.info.revoked is not None) == revoked]
    found = find_device(entries, given, what="revoked device" if revoked else "device")
    return found.info.device, name_of(found)


def _document(row: MemberRow) -> dict[str, object]:
    entry, info = row.entry, row.entry.info
    return {
        "id": info.device.hex(),
        "name": entry.details.name if entry.details else None,
        "system": entry.details.system if entry.details else None,
        "role": "core" if entry.leads else "node",
        "this": entry.is_this,
        "joined_by": "root" if info.by_root else "core",
        "added_at": iso(entry.added.at) if entry.added else None,
        "added": {"way": row.way.value, **_party(row.added_by)},
        "last_seen": iso(row.seen_at),
        "behind": row.behind,
        "pending": row.pending,
        "root": {"by_log": row.root.by_log, "by_own_word": row.root.says},
        "may_lead": info.grant,
        "version": row.version or None,
        "revoked": None
        if row.revoked_by is None
        else {
            "at": iso(entry.revoked_details.at) if entry.revoked_details else None,
            **_party(row.revoked_by),
        },
    }


def _party(party: Party) -> dict[str, object]:
    return {
        "by": party.device.hex() if party.device else None,
        "by_name": party.name,
        "with_root": party.by_root,
    }


def _table(rows: list[MemberRow]) -> None:
    from rich.table import Table

    screen = console()
    wide = screen.width >= _WIDE_COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in (
        "Id",
        "Name",
        "Role",
        *(["System"] if wide else []),
        "Added",
        "Last seen",
        "Behind",
        "Power",
    ):
        # A date is ten characters, and tells nothing when it is cut.
        dated = title in ("Added", "Last seen")
        table.add_column(title, no_wrap=title in ("Id", "Role"), min_width=10 if dated else None)
    now = now_ms()
    for row in rows:
        details = row.entry.details
        table.add_row(
            row.entry.info.device.hex()[:8],
            one_line(details.name if details else "?", 40),
            "revoked" if row.revoked else "core" if row.entry.leads else "node",
            *([one_line(details.system if details else "?", 30)] if wide else []),
            _added(row),
            _revoked(row) if row.revoked else _seen(row, now),
            "" if row.revoked else _behind(row),
            "" if row.revoked else _power(row),
        )
    screen.print(table)


def _added(row: MemberRow) -> str:
    day = (iso(row.entry.added.at) or "?")[:10] if row.entry.added else "?"
    match row.way:
        case JoinMethod.FOUNDER:
            return f"{day} founder"
        case JoinMethod.CODE:
            return f"{day} by code"
        case JoinMethod.INVITE:
            return f"{day} by {_who(row.added_by)}"


def _revoked(row: MemberRow) -> str:
    details = row.entry.revoked_details
    day = (iso(details.at) or "?")[:10] if details else "?"
    return f"revoked {day} by {_who(row.revoked_by)}" if row.revoked_by else f"revoked {day}"


def _who(party: Party) -> str:
    return one_line(party.name, 30) if party.name else party.device.hex()[:8] if party.device else "the root"


def _seen(row: MemberRow, now: int) -> str:
    if row.entry.is_this:
        return "this device"
    if row.entry.cursor is None:
        return "never"
    return f"{ago(max(now - row.seen_at, 0) / 1000)} ago" if row.seen_at else "?"


def _behind(row: MemberRow) -> str:
    if row.behind is None:
        return "?"
    behind = f"{row.behind:,}" if row.behind else "no"
    return behind + (f", {row.pending:,} pending" if row.pending else "")


def _power(row: MemberRow) -> str:
    root = row.root.words
    if row.entry.is_this:
        root = "holds the root" if row.root.says else ""
    parts = [root] if root else []
    if row.entry.info.grant:
        parts.append("may lead")
    return ", ".join(parts)
