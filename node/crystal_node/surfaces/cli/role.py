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
        standing = asyncio.run(core_status(device))
        if as_json:
            emit(_document(device, standing))
        else:
            _print(device, standing)


def _document(device: Device, standing: CoreStatus) -> dict[str, object]:
    reign = standing.reign
    return {
        "role": standing.role,
        "device": device.member.device_id.hex(),
        "epoch": reign.epoch if reign else 0,
        "core": {"id": reign.core.hex(), "name": reign.name} if reign and reign.core else None,
        "frozen": reign is not None and reign.core is None,
        "since": {
            "at": iso(reign.at),
            "slot": reign.slot,
            "by": reign.by.hex() if reign.by else None,
            "by_name": reign.by_name,
            "with_root": reign.by is None,
        }
        if reign
        else None,
        "devices": [_row(row) for row in standing.rows],
        "forced_promotion": None if standing.role == "core" else _forced(device, standing),
        "problem": standing.problem or None,
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


def _forced(device: Device, standing: CoreStatus) -> dict[str, Any]:
    losses = standing.losses
    return {
        "loses": None
        if losses is None
        else [
            {"id": loss.device.hex(), "name": loss.name, "epoch": loss.epoch, "slot": loss.slot}
            for loss in losses
        ],
        "core_pending": standing.core_pending,
        "needs_kit": _needs_kit(device),
    }


def _print(device: Device, standing: CoreStatus) -> None:
    reign = standing.reign
    if standing.role == "core" and reign:
        say(f"core: this machine embeds and orders for the vault (epoch {reign.epoch}).")
    elif reign and reign.core:
        say(f"node: the Core is {one_line(reign.name or '?', _NAME_CHARS)} ({reign.core.hex()[:8]}).")
    elif reign:
        say("node: the vault is frozen: no machine is its Core. `crystal promote` ends that.")
    else:
        say("node: the vault has no Core yet.")
    if reign:
        say(_since(reign))
    for row in standing.rows:
        say(_line(row))
    if standing.role != "core":
        say(_would_lose(standing))
        if _needs_kit(device):
            say(
                "It needs the recovery kit (`crystal promote --force --kit -`): this machine has no right of its own to lead."
            )
    if standing.problem:
        note(f"The relay was not asked: {standing.problem}. This is what is known here.")


def _since(reign: EpochInfo) -> str:
    when = clock_time(reign.at)
    by = (
        "the vault's root" if reign.by is None else one_line(reign.by_name or reign.by.hex()[:8], _NAME_CHARS)
    )
    at = f"since {when}, " if when else ""
    return f"  {at}epoch {reign.epoch}, slot {reign.slot} of the device log, signed by {by}"


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


def _would_lose(standing: CoreStatus) -> str:
    pending = (
        f" The Core last said that {standing.core_pending} of its own changes are not sent out yet."
        if standing.core_pending
        else ""
    )
    if standing.losses is None:
        return "Whether a promotion by force would lose anything is not known." + pending
    if standing.losses:
        return f"A promotion of this machine by force would lose something now: {loss_words(standing.losses)}.{pending}"
    return "Taking the lead here by force would lose nothing that the relay has now." + pending
