"""``crystal repair``: repair what ``crystal verify --deep`` finds."""

import asyncio

from crystal_node.base.settings import resolve
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.verify import deep_document, fail_if_left, say_deep
from crystal_node.sync.maintenance.repair import repair


def run(as_json: Json = False) -> None:
    """Repair this machine's memory and lost parts on the relay.

    Repairs indexes and memory here, and parts of the log, the snapshot and files there. It reads everything on the relay
    once before and once after. Nothing is deleted that is not made again.

    Example:

        crystal repair
    """
    with opened(resolve()) as device:
        found = asyncio.run(repair(device, None if as_json else note))
    if as_json:
        emit(
            {
                "done": found.done,
                "before": deep_document(found.before),
                "after": deep_document(found.after),
            }
        )
    else:
        for line in found.done:
            say(f"* {line}")
        if not found.done:
            say("There was nothing to repair.")
        say_deep(found.after)
    fail_if_left(found.after)
