"""``crystal migrate-db``: imports the published prototype's database."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.surfaces.cli.console.options import Json

Database = Annotated[Path, typer.Argument(metavar="PATH", help="The prototype's memory/crystal.db.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would come in.")]


def run(path: Database, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Import what the published prototype recorded and remembered.

    Its file is only read. Messages are embedded again on the Core. Run again, it continues, and imports nothing twice.

    Example:

        crystal migrate-db ~/.ldm-prototype-20260131-120000/memory/crystal.db --dry-run
    """
    from crystal_prototype.cli.migrate import migrate

    migrate(path, dry_run=dry_run, as_json=as_json)
