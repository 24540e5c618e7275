"""``crystal projects``: list projects, and link those that belong together."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line
from crystal_node.device.device import opened
from crystal_node.search.projects import (
    ProjectDocument,
    claims_of,
    find_project,
    link_projects,
    list_projects,
    unlink_projects,
)
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

group = typer.Typer(
    help="List projects, and link those that belong together.", no_args_is_help=True, add_completion=False
)

_NAME_CHARS = 120

One = Annotated[
    str, typer.Argument(metavar="ONE", help="A project's repository or folder, or the end of it.")
]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="The other project, named the same way.")]


@group.command("list")
def list_(as_json: Json = False) -> None:
    """List projects, those last used first.

    A project is the repository, or the folder, in which something was recorded on any device. No network.

    Example:

        crystal projects list
    """
    with opened(resolve()) as device:
        page = list_projects(device)
    if as_json:
        emit(msgspec.to_builtins(page))
        return
    for each in page.projects:
        say(_line(each))
    if not page.projects:
        note("There are none yet.")


@group.command("link")
def link(one: One, other: Other, as_json: Json = False) -> None:
    """Link two projects, on every device.

    What was said in one of them, and memories that are for it, are recalled in the other as well. Link a project that was
    moved or renamed: its old name to its new one. A folder may be named by its path, such as . for this one.

    Example:

        crystal projects link old-name new-name
        crystal projects link example.org/me/library .
    """
    with opened(resolve()) as device:
        here = Path.cwd()
        claims = [*claims_of(device, one, here), *claims_of(device, other, here)]
        first, second = (find_project(device, name, here=here) for name in (one, other))
        done = link_projects(device, first, second, claims)
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    say(f"{_name(done.one)} and {_name(done.other)} are linked. Other devices follow with their next sync.")


@group.command("unlink")
def unlink(one: One, other: Other, as_json: Json = False) -> None:
    """Remove the link of two projects, on every device.

    Example:

        crystal projects unlink old-name new-name
    """
    with opened(resolve()) as device:
        done = unlink_projects(
            device, find_project(device, one, here=Path.cwd()), find_project(device, other, here=Path.cwd())
        )
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    say(
        f"{_name(done.one)} and {_name(done.other)} are linked no more. Other devices follow with their next sync."
    )


def _line(project: ProjectDocument) -> str:
    said = [
        counted(project.conversations, "conversation"),
        counted(project.messages, "message"),
        counted(project.memories, "memory", "memories"),
    ]
    if project.last_at:
        said.append(f"last used {project.last_at[:10]}")
    if project.linked:
        said.append(f"linked with {', '.join(map(_name, project.linked))}")
    folders = [_name(each) for each in project.folders if each != project.name]
    where = f" ({', '.join(folders)})" if folders else ""
    return f"{_name(project.name)}{where}: {', '.join(said)}"


def _name(name: str) -> str:
    return one_line(name, _NAME_CHARS)
