"""``crystal memories``: list, show and change memories."""

import sys
from typing import Annotated

import msgspec
import typer

from crystal_core.memories import Category, MemoryScope, MemoryStatus
from crystal_mirror.operations import PIECE_BYTES_MAX
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import one_line, printable
from crystal_node.device.device import opened
from crystal_node.search.finding.documents import StatusFilter
from crystal_node.search.memories.changes import amend_memory, edit_memory, reactivate_memory
from crystal_node.search.memories.documents import MemoryDocument, MemoryEventDocument
from crystal_node.search.memories.queries import find_memory, history_of, list_memories, memory_document
from crystal_node.search.projects import asked_scope, scopes_of
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.place import ProjectOption, ScopeOption, given_place

group = typer.Typer(help="List, show and change memories.", no_args_is_help=True, add_completion=False)

_LIMIT = 20
_LIMIT_MAX = 1000
_TEXT_CHARS = 160


Id = Annotated[str, typer.Argument(metavar="ID", help="A memory's id, or its first 8 digits or more.")]
CategoryFilter = Annotated[Category | None, typer.Option("--category", help="Only those of this kind.")]
ScopeFilter = Annotated[
    MemoryScope | None, typer.Option("--scope", help="Only those for this project, or for everywhere.")
]
ProjectFilter = Annotated[
    str | None, typer.Option("--project", metavar="NAME", help="Only those for that project.")
]
StatusOption = Annotated[StatusFilter, typer.Option("--status", help="Only those with this status.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=_LIMIT_MAX, help="How many at most.")]
Offset = Annotated[int, typer.Option("--offset", min=0, help="Skip the N newest.")]
NewText = Annotated[
    str | None, typer.Option("--text", help="Its new words; - reads them from standard input.")
]
NewCategory = Annotated[Category | None, typer.Option("--category", help="What kind of thing it is.")]
NewConfidence = Annotated[
    int | None, typer.Option("--confidence", min=0, max=100, help="How sure it is, from 0 to 100.")
]


@group.command("list")
def list_(
    category: CategoryFilter = None,
    status: StatusOption = StatusFilter.ACTIVE,
    scope: ScopeFilter = None,
    project: ProjectFilter = None,
    limit: Limit = _LIMIT,
    offset: Offset = 0,
    as_json: Json = False,
) -> None:
    """List memories, the newest first.

    Lists active ones unless --status asks for others. No network.

    Example:

        crystal memories list --category preference
        crystal memories list --status superseded --json
        crystal memories list --scope project
    """
    wanted = None if status is StatusFilter.ANY else MemoryStatus(status.value)
    with opened(resolve()) as device:
        page = list_memories(
            device,
            category=None if category is None else category.value,
            status=wanted,
            scopes=scopes_of(device, *given_place(device, scope, project)),
            limit=limit,
            offset=offset,
        )
    if as_json:
        emit(msgspec.to_builtins(page))
        return
    for each in page.memories:
        say(_line(each))
    if not page.memories:
        note("There are none." if not offset else "There are no more.")
    if page.more:
        note(f"{offset + len(page.memories):,} of {page.total:,}; --offset {offset + limit} shows the next.")


@group.command("show")
def show(identity: Id, as_json: Json = False) -> None:
    """Show one memory whole.

    Example:

        crystal memories show 3f9a0c12d4e5
    """
    with opened(resolve()) as device:
        found = memory_document(device, find_memory(device, identity))
    if as_json:
        emit(msgspec.to_builtins(found))
        return

    say(printable(found.text))
    note(f"{found.id}")
    note(_standing(found))
    note(
        f"remembered {found.created_at[:16].replace('T', ' ') or 'at an unknown moment'} by {found.agent} on {found.device}"
    )
    if found.superseded_by:
        note(f"{found.superseded_by[:12]} took its place")


@group.command("edit")
def edit(
    identity: Id,
    text: NewText = None,
    category: NewCategory = None,
    confidence: NewConfidence = None,
    scope: ScopeOption = None,
    project: ProjectOption = None,
    as_json: Json = False,
) -> None:
    """Change a memory, on every device.

    Other words make a new memory that takes its place; the old one is kept as superseded.

    Example:

        crystal memories edit 3f9a0c12d4e5 --text "The database is restored at three."
        crystal memories edit 3f9a0c12d4e5 --confidence 60
        crystal memories edit 3f9a0c12d4e5 --scope everywhere
    """
    if text is None and category is None and confidence is None and scope is None and project is None:
        raise UsageError("say what to change: --text, --category, --confidence, --scope or --project")
    if text == "-":
        text = sys.stdin.read(PIECE_BYTES_MAX + 1)

    with opened(resolve()) as device:
        changed = edit_memory(
            device,
            identity,
            text=text,
            category=None if category is None else category.value,
            confidence=confidence,
            scope=asked_scope(device, *given_place(device, scope, project)),
        )
        _tell(memory_document(device, changed), "Changed", as_json=as_json)


@group.command("retire")
def retire(identity: Id, as_json: Json = False) -> None:
    """Retire a memory, on every device.

    It is kept, and found only when asked for.

    Example:

        crystal memories retire 3f9a0c12d4e5
    """
    with opened(resolve()) as device:
        changed = amend_memory(device, identity, status="retired")
        _tell(memory_document(device, changed), "Retired", as_json=as_json)


@group.command("revive")
def revive(identity: Id, as_json: Json = False) -> None:
    """Reactivate a retired or superseded memory.

    A memory that took its place stays.

    Example:

        crystal memories revive 3f9a0c12d4e5
    """
    with opened(resolve()) as device:
        changed = reactivate_memory(device, identity)
        _tell(memory_document(device, changed), "Active again", as_json=as_json)


@group.command("history")
def history(identity: Id, as_json: Json = False) -> None:
    """Show how a memory came to be what it is.

    Shows what was remembered, changed and replaced, by whom, when and where.

    Example:

        crystal memories history 3f9a0c12d4e5
    """
    with opened(resolve()) as device:
        found = history_of(device, identity)
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    for event in found.events:
        say(_event_line(event))


def _tell(changed: MemoryDocument, done: str, *, as_json: bool) -> None:
    if as_json:
        emit(msgspec.to_builtins(changed))
        return
    say(f"{done}: {_line(changed)}")


def _line(found: MemoryDocument) -> str:
    text = one_line(found.text, _TEXT_CHARS)
    return f"{found.id[:12]}  {found.created_at[:10] or '          '}  {_standing(found)}  {text}"


def _standing(found: MemoryDocument) -> str:
    said = [one_line(found.category, 40)]
    if found.confidence < 100:
        said.append(f"{found.confidence}%")
    if found.project:
        said.append(f"for {one_line(found.project, 80)}")
    if found.status != StatusFilter.ACTIVE:
        said.append(found.status)
    if found.provisional:
        said.append("not sent yet")
    return ", ".join(said)


def _event_line(event: MemoryEventDocument) -> str:
    who = f"{one_line(event.agent, 80)} on {one_line(event.device, 80)}"
    where = f", for {one_line(event.project, 80)}" if event.project else ""
    how = f"{one_line(event.category, 40)}, {event.confidence}%, {event.status}{where}"
    when = event.at[:16].replace("T", " ") or "unknown         "
    return f"{when}  {event.what}, by {who}: {event.id[:12]} ({how})  {one_line(event.text, _TEXT_CHARS)}"
