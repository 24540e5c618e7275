"""``crystal nudge`` as the help shows it; ``crystal_node.surfaces.cli`` itself runs it, before any of this is loaded."""

from pathlib import Path
from typing import Annotated

import typer

HomeFolder = Annotated[
    Path | None, typer.Option("--home", metavar="PATH", help="The Crystal home whose agent is to wake.")
]


def run(home: HomeFolder = None) -> None:
    """Have a running agent look at all transcripts at once. For hooks: it always succeeds, and says nothing.

    Example:

        crystal nudge --home ~/.ldm
    """
