"""``crystal demote``: hand the Core's role to another machine, or to none."""

import asyncio
from typing import Annotated

import typer

from crystal_mirror.membership.status import devices
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.members.names import find_device, name_of
from crystal_node.sync.moving.demotion import freeze_vault, hand_over

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DEVICE",
        help="The machine to become the Core: its name, its id, or the beginning of either.",
    ),
]
Freeze = Annotated[
    bool, typer.Option("--freeze", help="Have no Core until a machine is promoted; all go on recording.")
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=1.0,
        metavar="SECONDS",
        help="How long that machine may take to answer; 60 if not given.",
    ),
]
ANSWER_SECONDS = 60.0

_FREEZE = """\
From now on no machine is the Core. All of them go on recording and sending; nothing new is ordered or embedded, and no machine
sees what another one records, until one is made the Core with `crystal promote`. That takes a machine that may lead by itself
(`crystal devices` shows it), or the recovery kit.
"""


def run(
    to: To = None,
    freeze: Freeze = False,
    wait: Wait = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Hand the Core's role to another machine, or to none.

    With --to, this Core sends out all it has, and signs the role over to that machine, which needs no grant for it. That
    machine has to be awake (its background service runs), or to sync while this waits. This machine goes on as a Node.

    Exit codes: 0 done; 7 this machine is not the Core; 9 another machine was faster; 10 there is no such machine; 11 it did
    not answer, and nothing has changed.

    Example:

        crystal demote --to laptop
        crystal demote --freeze
    """
    if (to is None) != freeze:
        raise UsageError("say who becomes the Core: --to DEVICE, or --freeze for none")
    if freeze and wait is not None:
        raise UsageError("--wait goes with --to")
    with opened(resolve()) as device:
        if to is not None:
            _to(device, to, ANSWER_SECONDS if wait is None else wait, as_json=as_json)
            return
        if not yes:
            confirm("\nType freeze to go on: ", expect="freeze", about=_FREEZE, as_json=as_json)
        epoch = asyncio.run(freeze_vault(device))
        if as_json:
            emit({"way": "frozen", "epoch": epoch, "core": None})
        else:
            say(
                "frozen: no machine is the vault's Core. `crystal promote`, on any machine that may, ends that."
            )


def _to(device: Device, to: str, wait: float, *, as_json: bool) -> None:
    target = find_device(devices(device.member), to)
    if target.info.device == device.member.device_id:
        raise UsageError(
            "that is this machine: name another one, or make this one the Core with `crystal promote`"
        )
    done = asyncio.run(hand_over(device, target.info.device, wait_seconds=wait, progress=note))
    if as_json:
        emit(
            {
                "way": "given",
                "epoch": done.epoch,
                "core": {
                    "id": target.info.device.hex(),
                    "name": target.details.name if target.details else None,
                },
                "begun": done.begun,
                "seconds": round(done.seconds, 3),
            }
        )
        return
    begun = "is the Core now" if done.begun else "is the Core by the device log, and begins when it syncs"
    say(f"node: {name_of(target)} {begun} (epoch {done.epoch}).")
