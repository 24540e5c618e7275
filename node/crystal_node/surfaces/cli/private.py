"""``crystal private``: record nothing for a while, not even later."""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso
from crystal_node.capture.recorder import Recorder
from crystal_node.device.device import opened
from crystal_node.device.privacy import read_privacy
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say


class Switch(StrEnum):
    """What to do with private mode."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


Wanted = Annotated[Switch, typer.Argument(metavar="on|off|status", help="What to do.")]


def run(switch: Wanted = Switch.STATUS, as_json: Json = False) -> None:
    """Record nothing on this machine while private mode is on.

    What is said meanwhile is not recorded later either. Turning it on first records what was said before. Search, sync and
    forget work as usual.

    Example:

        crystal private on
    """
    with opened(resolve()) as device:
        before = read_privacy(device.journal)
        report = None
        if switch is Switch.ON:
            report = asyncio.run(Recorder(device).go_private())
        elif switch is Switch.OFF:
            report = asyncio.run(Recorder(device).go_public())
        privacy = read_privacy(device.journal)
    since = None if privacy.since is None else iso(privacy.since)
    if as_json:
        emit({"private": privacy.on, "since": since, "changed": privacy.on != before.on})
        return
    if switch is Switch.ON and not before.on and report is not None:
        recorded = f" Recorded before that: {report.words()}." if report.words() else ""
        say(f"Private mode is on: nothing is recorded from now on.{recorded}")
    elif switch is Switch.OFF and before.on and report is not None:
        say(f"Private mode is off. Stepped over what {counted(report.files, 'transcript')} gained meanwhile.")
    else:
        say(f"Private mode is {'on since ' + str(since) if privacy.on else 'off'}.")
    for path, problem in report.problems if report else []:
        note(f"! {path} {problem}")
