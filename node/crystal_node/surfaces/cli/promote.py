"""``crystal promote``: make this machine the vault's Core."""

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from crystal_crypto.errors import CrystalError
from crystal_mirror.commands.messages import Action
from crystal_mirror.replication.claim import claimant
from crystal_node.agent.commands.client import ask_device
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.kit import KitFile, root_from_kit
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.sync.moving.promotion import ANSWER_SECONDS, GRANT_SECONDS, Promoted, loss_words, promote
from crystal_node.sync.moving.status import core_status

Force = Annotated[
    bool, typer.Option("--force", help="Do not ask the present Core: it is gone, or will not wake up.")
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="With --force: even if another device has applied what would be lost."
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=1.0,
        metavar="SECONDS",
        help="How long the present Core may take to grant and to answer; 30 if not given.",
    ),
]

_FORCED = """\
This machine becomes the Core without asking the present one: from now on it embeds and orders for the vault. Should the other
one come back, it goes on as a Node, and what it had not sent by then is taken in afterwards.
"""


def run(
    force: Force = False,
    accept_loss: AcceptLoss = False,
    kit: KitFile = None,
    wait: Wait = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make this machine the vault's Core.

    The Core embeds and orders for the vault. This also ends a freeze. The present Core is asked: it sends out all it has,
    waits, and goes on as a Node. That takes a few seconds while the background service runs there. When it is gone, --force
    takes its place without it, and first says whether anything would be lost. This machine has to be allowed to lead
    (`crystal devices grant`), to hold the vault's root, or to be given the recovery kit. On a terminal it says which machine
    can allow it, and goes on when that has happened; that machine shows the request in `crystal status` and on its page.

    Exit codes: 0 this machine is the Core; 6 by force, something would be lost; 7 or 3 it may not lead; 9 another machine
    was faster; 11 the present Core did not answer, and nothing has changed.

    Example:

        crystal promote
        crystal promote --force --kit -
    """
    if accept_loss and not force:
        raise UsageError("--accept-loss goes with --force")
    if wait is not None and force:
        raise UsageError("--wait goes without --force, which waits for nobody")
    with opened(resolve()) as device:
        done = promote_here(
            device, force=force, accept_loss=accept_loss, kit=kit, wait=wait, yes=yes, as_json=as_json
        )
        if as_json:
            emit({"way": done.way.value, "epoch": done.epoch, "seconds": round(done.seconds, 3)})
        elif done.way == "already":
            say(f"core: this machine is the Core already (epoch {done.epoch}).")
        else:
            say(f"core: this machine embeds and orders for the vault (epoch {done.epoch}).")


def promote_here(
    device: Device,
    *,
    force: bool,
    accept_loss: bool,
    kit: str | None,
    wait: float | None,
    yes: bool,
    as_json: bool,
) -> Promoted:
    """Confirm, read the kit if one is given, and promote."""
    if force and not yes and not device.member.is_core:
        about = _FORCED + asyncio.run(_would_lose(device))
        if kit is None:
            claimant(device.member, device.root)  # who may not is told before anything is asked
        confirm("\nType promote to go on: ", expect="promote", about=about, as_json=as_json)
    root = None if kit is None else root_from_kit(kit, device.member.vault)
    if root is None and not force:
        asyncio.run(_ask_for_grant(device))
    return asyncio.run(
        promote(
            device,
            root,
            force=force,
            accept_loss=accept_loss,
            wait_seconds=ANSWER_SECONDS if wait is None else wait,
            grant_seconds=(GRANT_SECONDS if is_terminal() and not as_json else 0.0) if wait is None else wait,
            progress=note,
        )
    )


async def _ask_for_grant(device: Device) -> None:
    """Has the Core show its person that this machine asks to lead, if it may not. What fails is told by what comes next."""
    member = device.member
    info, lead = member.log.member(member.device_id), member.log.lead
    if device.holds_root or info is None or info.grant or lead is None or lead.is_freeze or member.is_core:
        return
    with suppress(CrystalError):
        await ask_device(device, None, Action.ASK_GRANT)
        note("The Core was asked: its status and its page show it.")


async def _would_lose(device: Device) -> str:
    status = await core_status(device)
    lines: list[str] = []
    if status.problem:
        lines.append(f"Whether anything would be lost is not known: {status.problem}.")
    elif status.losses:
        lines.append(f"It would lose something: {loss_words(status.losses)}.")
    else:
        lines.append("Nothing would be lost that the relay or this machine has.")
    if status.core_pending:
        lines.append(
            f"The Core last said that {status.core_pending} of its own changes were not sent out yet."
        )
    return "\n".join(lines) + "\n"
