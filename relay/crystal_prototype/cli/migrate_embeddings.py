"""``crystal migrate-embeddings``: imports OpenClaw's older memory of conversations."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.surfaces.cli.console.options import Json

Database = Annotated[
    Path | None,
    typer.Argument(metavar="[PATH]", help="context-embeddings.sqlite; OpenClaw's own if none is given."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would come in.")]


def run(path: Database = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Import the conversations of OpenClaw's context-embeddings.sqlite.

    The file is only read. Messages are embedded again on the Core. Run again, it continues, and imports nothing twice.

    Example:

        crystal migrate-embeddings --dry-run
    """
    from crystal_node.base.settings import resolve
    from crystal_prototype.cli.migrate import migrate

    folder = resolve().capture.openclaw_folder
    migrate([path or folder / "memory" / "context-embeddings.sqlite"], dry_run=dry_run, as_json=as_json)
