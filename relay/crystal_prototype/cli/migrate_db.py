"""``crystal migrate-db``: imports what the published prototype recorded."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import note

Recorded = Annotated[
    Path | None,
    typer.Argument(
        metavar="[PATH]",
        help="The prototype's memory/crystal.db, its folder staging, or a folder with both.",
        show_default="all that is on this machine",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would come in.")]


def run(path: Recorded = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Import what the published prototype recorded and remembered.

    Its files are only read. Messages are embedded again on the Core. Without a path it imports all that is on this machine: the
    databases in the copies of takeovers and at the place of earlier versions, and conversations in staging that were never
    taken in. Run again, it continues, and imports nothing twice.

    Example:

        crystal migrate-db --dry-run
        crystal migrate-db ~/.ldm-prototype-20260131-120000/memory/crystal.db
    """
    from crystal_prototype.cli.migrate import migrate

    databases, staging = _recorded(path)
    migrate(databases, staging, dry_run=dry_run, as_json=as_json)


def _recorded(path: Path | None) -> tuple[list[Path], list[Path]]:
    from crystal_node.base.settings.settings import places
    from crystal_prototype.home.staged import staging_of
    from crystal_prototype.home.takeover import known_databases, known_staging

    if path is None:
        where = places()
        found = known_databases(where)
        databases = [each.database for each in found if each.messages is not None]
        for each in found:
            if each.messages is None:
                note(f"{each.database} cannot be read, and is left out.")
        staging = list(known_staging(where))
        if not databases and not staging:
            raise UsageError(
                "nothing that the prototype recorded was found on this machine",
                hint="Give the path of its memory/crystal.db. A home of the prototype's comes first: `crystal takeover`.",
            )
        return databases, staging
    if not path.is_dir():
        return [path], []
    databases = [each for each in (path / "memory" / "crystal.db", path / "crystal.db") if each.is_file()]
    folder = staging_of(path)
    if not databases and folder is None:
        raise UsageError(
            f"{path} holds neither a database of the prototype's nor a folder staging",
            hint="Give the prototype's memory/crystal.db, or the copy of its home that `crystal takeover` made.",
        )
    return databases, [] if folder is None else [folder]
