"""``crystal export``: the memory as plain files."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.settings import resolve
from crystal_node.base.timespans import parse_since
from crystal_node.base.wording import counted
from crystal_node.device.device import opened
from crystal_node.safekeeping.portable.export import export
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.progress import progress_shown

Target = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")]
OfAgent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="Only this agent's conversations.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Only newer conversations: 24h, yesterday, last week, 2026-01-31."
    ),
]
Files = Annotated[bool, typer.Option("--files/--no-files", help="With the files of the memory home.")]


def run(
    folder: Target,
    agent: OfAgent = None,
    since: Since = None,
    files: Files = True,
    as_json: Json = False,
) -> None:
    """Export the memory as JSON lines and files.

    They are readable without Crystal and not encrypted: anybody who has the folder has the memory. What was forgotten is not
    in it, nor is any key.

    Example:

        crystal export ~/crystal-2026-01
    """
    settings = resolve()
    since_ms = None if since is None else parse_since(since, now_ms(), settings.capture.nameless_zone())

    with opened(settings) as device, progress_shown("lines", quiet=as_json) as progress:
        done = export(device, folder, agent=agent, since_ms=since_ms, with_files=files, progress=progress)
    if as_json:
        emit(
            {
                "folder": str(done.folder),
                "lines": done.lines,
                "files": done.files,
                "missing": list(done.missing),
            }
        )
        return
    say(f"Exported to {done.folder}, as plain text:")
    for name, lines in done.lines.items():
        say(f"  {name:20} {counted(lines, 'line')}")
    if files:
        say(f"  {'files':20} {counted(done.files, 'file')}")
    if done.missing:
        note(
            f"{counted(len(done.missing), 'file')} of the vault are not on this device, and not in the export."
        )
