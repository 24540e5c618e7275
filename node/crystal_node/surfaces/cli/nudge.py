"""``crystal nudge``, for the help only: ``crystal_node.surfaces.cli`` runs it without loading this module."""

from pathlib import Path
from typing import Annotated

import typer

HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", metavar="PATH", help="The Crystal home whose background service is to wake."),
]


def run(home: HomeFolder = None) -> None:
    """Wake the background service to read all transcripts at once.

    For hooks: it always succeeds, and prints nothing.

    Example:

        crystal nudge --home ~/.ldm
    """
