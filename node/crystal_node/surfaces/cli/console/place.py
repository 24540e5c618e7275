"""The project that a command is about: the one that was named, or that of the folder it is called in."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_core.memories import MemoryScope
from crystal_core.projects import ProjectKey
from crystal_node.base.errors import UsageError
from crystal_node.device.device import Device
from crystal_node.search.projects import find_project, project_here

ScopeOption = Annotated[
    MemoryScope | None,
    typer.Option("--scope", help="Where it is brought up: in this project alone, or everywhere."),
]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The project that it is for, instead of this one."),
]


def working_folder() -> str:
    """The folder that the command is called in; "" if it is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def given_place(
    device: Device, scope: MemoryScope | None, project: str | None
) -> tuple[MemoryScope | None, str, ProjectKey]:
    """Returns the scope, the name of a project, and the place, as memories take them. A project that is named by its folder is
    the place.

    Raises:
        NoSuchEntry: no project is called that.
        Usage: several are, or everywhere is asked for as well.
    """
    here = Path.cwd()
    if project is None:
        return scope, "", project_here(device, str(here))
    if scope is MemoryScope.EVERYWHERE:
        raise UsageError("--scope everywhere and --project exclude each other")
    return MemoryScope.PROJECT, "", find_project(device, project, here=here)
