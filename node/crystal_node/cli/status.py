"""``crystal status``: how this device stands, without asking anybody."""

from typing import Annotated

import typer

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say

Watching = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Go on, and show each change, until Ctrl-C. With --json: a document a line."
    ),
]


def run(watch: Watching = False, as_json: Json = False, debug: Debug = False) -> None:
    """Show this device's standing: role, devices, what waits and for how long, what is stuck, why, and what to do.

    It asks nobody and waits for nobody: it works without a network, and beside a running agent.

    Example:

        crystal status
        crystal status --watch
    """
    from crystal_node.device import opened
    from crystal_node.health.standing import standing
    from crystal_node.settings import resolve

    with opened(resolve()) as device:
        if watch:
            from crystal_node.cli.status_watch import follow

            follow(device, as_json=as_json)
            return
        found = standing(device)
        if as_json:
            from crystal_node.health.document import status_document

            emit(status_document(device, found))
            return
        from crystal_node.cli.status_lines import news_lines, status_lines
        from crystal_node.members.newsdesk import mark_all_shown

        for line in (*status_lines(device, found), *news_lines(device)):
            say(line)
        mark_all_shown(device.member)
