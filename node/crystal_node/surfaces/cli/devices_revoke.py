"""``crystal devices revoke``: explain, confirm and carry out a revocation."""

import asyncio
from typing import Annotated

import typer

from crystal_crypto.hierarchy import Root
from crystal_mirror.membership.status import DeviceEntry, devices
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.kit import KitFile, root_from_kit
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.sync.administration.revocation import (
    RevocationResult,
    check_revocable,
    leads,
    replaces_root,
    revoke_device,
)
from crystal_node.sync.administration.root_rotation import chosen_root
from crystal_node.sync.members.device_list import refresh
from crystal_node.sync.members.names import find_device, name_of

Named = Annotated[str, typer.Argument(metavar="DEVICE", help="Its name, its id, or the beginning of either.")]
Claim = Annotated[
    bool, typer.Option("--claim", help="If it is the Core: make this machine the Core first, then revoke it.")
]

LeaveRoot = Annotated[
    bool,
    typer.Option(
        "--leave-root",
        help="Although it may have the vault's root, and no kit of that root exists: a stopgap, see below.",
    ),
]

_KEEPS = """\
What it keeps: the memory as it is now, and what it recorded itself. Nobody can take that back. If it is in foreign hands, take
what the memory holds as known there.
What it loses: it reads nothing that is recorded from now on. The relay refuses what it writes from now on, and no device takes
it in: what reaches the relay all the same is held until you decide (`crystal devices held`).
"""
_ROOT = """\
It may have the vault's root, so the root is replaced: every recovery kit and every code from before loses its power, and the
other devices that hold the root lose it, too. You need a new kit afterwards.
"""
_LEFT = """\
It may have the vault's root, and the root is nowhere else, so it cannot be replaced. Anybody who has that machine can let
themselves in again, as another device, and read on: you would see it in `crystal devices`. Begin a new vault (`crystal init` in
a new home) as soon as you can.
"""
_LEADS = """\
It is the Core. This machine becomes the Core first, so that its epoch ends.
"""


def revoke(
    device: Named,
    claim: Claim = False,
    kit: KitFile = None,
    leave_root: LeaveRoot = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Revoke a device for good: lost, stolen, sold or given away.

    What it had stored is taken in first. Then all other devices get new keys, and the relay shuts it out. If it was given
    the vault's root, the root is replaced; for that, this machine has to hold the root, or be given the recovery kit.
    Interrupted anywhere, it is finished by running it again. With --leave-root the device is revoked although it may have a
    root that is nowhere else: its holder can then add itself again, so begin a new vault soon.

    Example:

        crystal devices revoke laptop
        crystal devices revoke desktop --claim --kit -
    """
    if kit == "-" and not yes and not is_terminal():
        raise UsageError("the kit comes from standard input, so nobody can confirm there", hint="Add --yes.")
    with opened(resolve()) as opened_device:
        asyncio.run(refresh(opened_device))
        entry = find_device(devices(opened_device.member), device)
        target = entry.info.device
        root = None if kit is None else root_from_kit(kit, opened_device.member.vault)
        if entry.info.revoked is None and not yes:
            claim = _ask(opened_device, entry, root, claim=claim, leave_root=leave_root, as_json=as_json)
        outcome = asyncio.run(
            revoke_device(
                opened_device,
                target,
                kit=root,
                claim=claim and leads(opened_device, target),
                leave_root=leave_root,
                progress=(lambda _: None) if as_json else note,
            )
        )
        others = len(opened_device.member.log.active())
    if as_json:
        emit(_document(outcome, others))
    else:
        _print(outcome, name_of(entry), others)
    if outcome.relay_error is not None:
        raise outcome.relay_error


def _ask(
    device: Device,
    entry: DeviceEntry,
    root: Root | None,
    *,
    claim: bool,
    leave_root: bool,
    as_json: bool,
) -> bool:
    """Explain and confirm the revocation. Returns whether to become the Core first."""
    target = entry.info.device
    takes_lead = leads(device, target) and (claim or is_terminal())
    check_revocable(device, target, root, claim=takes_lead, leave_root=leave_root)
    system = f", {one_line(entry.details.system, 40)}" if entry.details and entry.details.system else ""
    about = f"{name_of(entry)}{system}, is revoked and leaves the vault.\n{_KEEPS}"
    if replaces_root(device, target, root):
        about += _LEFT if leave_root and chosen_root(device, root) is None else _ROOT
    if takes_lead:
        about += _LEADS
    confirm("Type revoke to go on: ", expect="revoke", about=about, as_json=as_json)
    return takes_lead


def _document(outcome: RevocationResult, others: int) -> dict[str, object]:
    report = outcome.report
    return {
        "device": report.device.hex(),
        "name": report.name,
        "fresh": report.fresh,
        "generation": report.generation,
        "keys_sealed_to": others,
        "entries_that_count": report.accepted,
        "root_replaced": outcome.root_replaced,
        "new_kit_needed": outcome.root_replaced,
        "relay_told": outcome.relay_error is None,
    }


def _print(outcome: RevocationResult, name: str, others: int) -> None:
    report = outcome.report
    if report.fresh:
        say(
            f"{name} is revoked. Generation {report.generation} of the keys is in force, sealed to "
            f"{counted(others, 'device')}, not to it."
        )
        say(
            f"It still has what it had: its copy of the memory, and the keys up to generation {report.generation - 1}."
        )
        say("It can no longer read anything new. No device takes in what it writes from now on:")
        say("what reaches the relay all the same is held until you decide (`crystal devices held`).")
        if report.accepted:
            say(f"Of what it had stored, {counted(report.accepted, 'change counts', 'changes count')}.")
    else:
        say(f"{name} was revoked before.")
    if outcome.relay_error is None:
        say("The relay has shut its token out.")
    else:
        say(
            "The relay could not be told yet, so its token still lets it in there: the next `crystal sync` tells it."
        )
    if outcome.root_replaced:
        say(
            "The vault has a new root, which is on this machine alone. The recovery kit that you have is void."
        )
        say("Make a new one now: `crystal recovery show`, then `crystal recovery verify`.")
