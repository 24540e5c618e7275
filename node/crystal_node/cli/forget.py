"""``crystal forget``: removes texts from every device, for good."""

from typing import Annotated

import typer

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say

Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="Ids as search shows them; their first 8 digits or more will do."),
]


def run(ids: Ids, as_json: Json = False, debug: Debug = False) -> None:
    """Remove texts everywhere, for good. Nothing finds them any more, and backfill does not bring them back.

    They are hidden here at once and removed from the other devices with their next sync. What a backup or a device that
    never syncs again holds, stays there; sealed copies stay on the relay for now. Only remembering the same text lifts it.

    Example:

        crystal forget 3f9a0c12d4e5
    """
    from crystal_mirror.operations import Forget
    from crystal_node.device import opened
    from crystal_node.lookup import find_text
    from crystal_node.settings import resolve

    with opened(resolve()) as device:
        found = {text.forget_hash: text for text in (find_text(device.replica, given) for given in ids)}
        device.accept([Forget(tuple(found))])
    if as_json:
        emit({"forgotten": [text.id.hex() for text in found.values()]})
        return
    for text in found.values():
        say(f"Forgotten: {text.id.hex()[:12]}. Other devices follow with their next sync.")
