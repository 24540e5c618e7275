"""``crystal restore``: rebuild this machine's memory from the relay or a copy."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago
from crystal_node.safekeeping.memory_restore import restore_memory
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm

From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="A copy of another machine's crystal.db, or of its home, in place of the relay. Only read.",
    ),
]

_ABOUT = """\
This machine's memory is set aside and rebuilt. What is recorded here and not sent yet is kept in any case. The former
database stays beside the new one for a week.
"""


def run(source: From = None, yes: Yes = False, as_json: Json = False) -> None:
    """Rebuild this machine's memory from the relay or a copy.

    For a memory that is damaged beyond what `crystal repair` can repair, or to spare a slow line: a copy of another
    machine's memory is checked completely before it replaces anything. To bring back a machine whose keys are lost, see
    `crystal recovery restore`.

    Example:

        crystal restore
        crystal restore --from /mnt/other/.ldm
    """
    if not yes:
        confirm("\nType restore to go on: ", expect="restore", about=_ABOUT, as_json=as_json)
    done = restore_memory(resolve(), source, None if as_json else note)
    if as_json:
        emit(
            {
                "kept": str(done.kept) if done.kept is not None else None,
                "epoch": done.place[0],
                "seq": done.place[1],
                "digest": done.digest.hex(),
                "seconds": round(done.seconds, 3),
            }
        )
        return
    say(
        f"The memory stands at epoch {done.place[0]}, slot {done.place[1]:,} again, after {ago(done.seconds)}."
    )
    if done.kept is not None:
        say(f"The former one is {done.kept} for a week.")
