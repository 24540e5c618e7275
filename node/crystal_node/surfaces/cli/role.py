"""``crystal role``: which machine is the Core and since when, how far each is, and what a forced promotion would lose."""

import asyncio
from typing import Annotated, Any

import typer

from crystal_mirror.errors import Revoked, Unready
from crystal_mirror.replication.claim import claimant
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, clock_time, counted, iso, one_line
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.kit import KitFile
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.promote import promote_here
from crystal_node.sync.members.device_list import MemberRow
from crystal_node.sync.moving.promotion import loss_words
from crystal_node.sync.moving.status import CoreStatus, EpochInfo, core_status

Claim = Annotated[bool, typer.Option("--claim", help="The older name of `crystal promote --force`.")]
Force = Annotated[
    bool, typer.Option("--force", help="With --claim: `crystal promote --force --accept-loss`.")
]

_NAME_CHARS = 40


def run(
    claim: Claim = False,
    force: Force = False,
    kit: KitFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show which machine is the Core, and how far each is.

    Also shows since when it is the Core, and what would be lost if this machine became the Core by force now. `crystal
    promote` and `crystal demote` change it. What is shown of other machines is what they last reported.

    Example:

        crystal role
        crystal role --json
    """
    if (force or kit is not None) and not claim:
        raise UsageError("--force and --kit go with --claim")
    with opened(resolve()) as device:
        if claim:
            if not as_json:  # then standard error is for one document
                note("`crystal role --claim` is `crystal promote --force` now.")
            promote_here(device, force=True, accept_loss=force, kit=kit, wait=None, yes=yes, as_json=as_json)
        status = asyncio.run(core_status(device))
        if as_json:
            emit(_document(device, status))
        else:
            _print(device, status)


def _document(device: Device, status: CoreStatus) -> dict[str, object]:
    epoch_info = status.epoch_info
    return {
        "role": status.role,
        "device": device.member.device_id.hex(),
        "epoch": epoch_info.epoch if epoch_info else 0,
        "core": {"id": epoch_info.core.hex(), "name": epoch_info.name}
        if epoch_info and epoch_info.core
        else None,
        "frozen": epoch_info is not None and epoch_info.core is None,
        "since": {
            "at": iso(epoch_info.at),
            "slot": epoch_info.slot,
            "by": epoch_info.by.hex() if epoch_info.by else None,
            "by_name": epoch_info.by_name,
            "with_root": epoch_info.by is None,
        }
        if epoch_info
        else None,
        "devices": [_row(row) for row in status.rows],
        "forced_promotion": None if status.role == "core" else _forced(device, status),
        "problem": status.problem or None,
    }


def _row(row: MemberRow) -> dict[str, object]:
    entry = row.entry
    return {
        "id": entry.info.device.hex(),
        "name": entry.details.name if entry.details else None,
        "core": entry.leads,
        "this": entry.is_this,
        "may_lead": entry.info.grant,
        "behind": row.behind,
        "pending": row.pending,
        "heard_at": None if entry.is_this else iso(row.seen_at),
    }


def _forced(device: Device, status: CoreStatus) -> dict[str, Any]:
    losses = status.losses
    return {
        "loses": None
        if losses is None
        else [
            {"id": loss.device.hex(), "name": loss.name, "epoch": loss.epoch, "slot": loss.slot}
            for loss in losses
        ],
        "core_pending": status.core_pending,
        "needs_kit": _needs_kit(device),
    }


def _print(device: Device, status: CoreStatus) -> None:
    epoch_info = status.epoch_info
    if status.role == "core" and epoch_info:
        say(f"core: this machine embeds and orders for the vault (epoch {epoch_info.epoch}).")
    elif epoch_info and epoch_info.core:
        say(
            f"node: the Core is {one_line(epoch_info.name or '?', _NAME_CHARS)} ({epoch_info.core.hex()[:8]})."
        )
    elif epoch_info:
        say("node: the vault is frozen: no machine is its Core. `crystal promote` ends that.")
    else:
        say("node: the vault has no Core yet.")
    if epoch_info:
        say(_since(epoch_info))
    for row in status.rows:
        say(_line(row))
    if status.role != "core":
        say(_would_lose(status))
        if _needs_kit(device):
            say(
                "It needs the recovery kit (`crystal promote --force --kit -`): this machine has no right of its own to lead."
            )
    if status.problem:
        note(f"The relay was not asked: {status.problem}. This is what is known here.")


def _since(epoch_info: EpochInfo) -> str:
    when = clock_time(epoch_info.at)
    by = (
        "the vault's root"
        if epoch_info.by is None
        else one_line(epoch_info.by_name or epoch_info.by.hex()[:8], _NAME_CHARS)
    )
    at = f"since {when}, " if when else ""
    return f"  {at}epoch {epoch_info.epoch}, slot {epoch_info.slot} of the device log, signed by {by}"


def _line(row: MemberRow) -> str:
    entry = row.entry
    name = one_line(entry.details.name if entry.details else "?", _NAME_CHARS)
    if row.behind is None:
        behind = "not known how far"
    else:
        behind = f"{counted(row.behind, 'change')} behind" if row.behind else "up to date"
    pending = f", {row.pending:,} not durable yet" if row.pending else ""
    heard = (
        f", heard {ago(max(now_ms() - row.seen_at, 0) / 1000)} ago"
        if row.seen_at and not entry.is_this
        else ""
    )
    marks = " (this machine)" if entry.is_this else ""
    may = ", may lead" if entry.info.grant and not entry.leads else ""
    return f"  {name} ({entry.info.device.hex()[:8]}){marks}: {behind}{pending}{heard}{may}"


def _needs_kit(device: Device) -> bool:
    try:
        claimant(device.member, device.root)
    except Unready:
        return True
    except Revoked:  # for which no kit helps
        return False
    return False


def _would_lose(status: CoreStatus) -> str:
    pending = (
        f" The Core last said that {status.core_pending} of its own changes are not sent out yet."
        if status.core_pending
        else ""
    )
    if status.losses is None:
        return "Whether a promotion by force would lose anything is not known." + pending
    if status.losses:
        return f"A promotion of this machine by force would lose something now: {loss_words(status.losses)}.{pending}"
    return "Taking the lead here by force would lose nothing that the relay has now." + pending
