"""``crystal trash``: files that sync removed from this device, kept for 30 days."""

from typing import Annotated

import typer

from crystal_node.base.errors import NoSuchEntry, NotSetUp
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso, one_line, size
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.sync.files.trash import Trash, Trashed

group = typer.Typer(
    help="List, restore and delete files that sync removed here.",
    no_args_is_help=True,
    add_completion=False,
)

Named = Annotated[
    str, typer.Argument(metavar="ID", help="The id that `crystal trash list` shows, or the file's path.")
]


@group.command("list")
def listed(as_json: Json = False) -> None:
    """List the files in the trash, the oldest first.

    Example:

        crystal trash list
    """
    items = list(_trash().items())
    if as_json:
        emit(
            {
                "files": [
                    {
                        "id": item.id,
                        "path": item.record.path,
                        "removed_at": iso(item.record.at),
                        "bytes": item.record.size,
                        "file": str(item.file),
                    }
                    for item in items
                ]
            }
        )
        return
    if not items:
        say("The trash is empty.")
    for item in items:
        say(f"{item.id}  {size(item.record.size)}  {one_line(item.record.path, 300)}")


@group.command("restore")
def restore(named: Named, as_json: Json = False) -> None:
    """Bring a file back from the trash.

    It comes back where it was, or beside it if another file is there now. The next sync shares it again.

    Example:

        crystal trash restore notes/plan.md
    """
    trash = _trash()
    found = [item for item in trash.items() if named in (item.id, item.record.path)]
    if not found:
        raise NoSuchEntry(
            f"nothing in the trash is called {named[:200]!r}",
            hint="`crystal trash list` shows what is there.",
        )
    path = trash.restore(found[-1])
    _nudge()
    if as_json:
        emit({"restored": path, "id": found[-1].id})
    else:
        say(f"Restored {one_line(path, 300)}.")


@group.command("empty")
def empty(yes: Yes = False, as_json: Json = False) -> None:
    """Delete everything in the trash for good.

    Example:

        crystal trash empty --yes
    """
    trash = _trash()
    items: list[Trashed] = list(trash.items())
    if items and not yes:
        about = f"This deletes {counted(len(items), 'file')} for good."
        confirm("Type yes to go on: ", expect="yes", about=about, as_json=as_json)
    for item in items:
        trash.delete(item)
    if as_json:
        emit({"deleted": len(items)})
    else:
        say(f"Deleted {counted(len(items), 'file')} for good.")


def _trash() -> Trash:
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    return Trash(settings.home.root)


def _nudge() -> None:
    resolve().home.nudge()
