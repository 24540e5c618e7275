"""``crystal role``: what this device is to its vault, and how it becomes the Core when the Core is gone."""

from typing import TYPE_CHECKING, Annotated

import typer

from crystal_node.cli.kitoption import KitFile, root_from_kit
from crystal_node.cli.options import Debug, Json, Yes, confirm
from crystal_node.cli.output import emit, say

if TYPE_CHECKING:
    from crystal_crypto.hierarchy import Root
    from crystal_node.device import Device

Claim = Annotated[
    bool, typer.Option("--claim", help="Make this machine the Core, because the present one is gone.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="With --claim: even if another device has applied more than the relay shows."
    ),
]

_WARNING = """\
This machine becomes the Core: from now on it embeds and orders for the vault. The present Core, should it come back, goes on
as a Node; what it had not sent by then is taken in afterwards.
"""


def run(
    claim: Claim = False,
    force: Force = False,
    kit: KitFile = None,
    yes: Yes = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say whether this machine is the Core or a Node, and who the Core is.

    When the Core is lost, --claim puts this machine in its place: one that was granted the lead, or that holds the vault's
    root, or that is given the recovery kit.

    Example:

        crystal role
        crystal role --claim
    """
    import asyncio

    from crystal_node.device import opened
    from crystal_node.errors import Usage
    from crystal_node.settings import resolve

    if (force or kit is not None) and not claim:
        raise Usage("--force and --kit go with --claim")
    with opened(resolve()) as device:
        if claim and not device.member.is_core:
            if not yes:
                confirm("\nType claim to go on: ", expect="claim", about=_WARNING, as_json=as_json)
            root = None if kit is None else root_from_kit(kit, device.member.vault)
            asyncio.run(_claim(device, root, force=force))
        _show(device, as_json=as_json)


async def _claim(device: "Device", root: "Root | None", *, force: bool) -> None:
    from crystal_node.sync import claim_lead

    await claim_lead(device, root, force=force)


def _show(device: "Device", *, as_json: bool) -> None:
    from crystal_mirror.status import devices
    from crystal_node.wording import one_line

    member = device.member
    lead = member.log.lead
    epoch = lead.epoch if lead else 0
    core = next((entry for entry in devices(member) if entry.leads), None)
    role = "core" if member.is_core else "node"
    name = core.details.name if core is not None and core.details is not None else None
    core_id = core.info.device.hex() if core is not None else None
    if as_json:
        emit(
            {
                "role": role,
                "device": member.device_id.hex(),
                "epoch": epoch,
                "core": {"id": core_id, "name": name} if core_id else None,
            }
        )
    elif role == "core":
        say(f"core: this machine embeds and orders for the vault (epoch {epoch}).")
    elif core_id:
        say(f"node: the Core is {one_line(name or '?', 40)} ({core_id[:8]}).")
    else:
        say("node: the vault has no Core yet.")
