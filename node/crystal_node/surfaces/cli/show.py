"""``crystal show``: a message whole, with what was said around it, offline."""

from datetime import datetime
from typing import Annotated

import typer
from msgspec import to_builtins

from crystal_node.base.settings import resolve
from crystal_node.base.wording import one_line, printable
from crystal_node.search.finding.client import memory_client
from crystal_node.search.finding.documents import ShowDocument, ShowRequest
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

Id = Annotated[
    str, typer.Argument(metavar="ID", help="The id that `crystal search` shows, or its first 8 digits.")
]
Context = Annotated[
    int,
    typer.Option(
        "-C", "--context", metavar="N", min=0, max=50, help="Show N messages before it and after it."
    ),
]
Before = Annotated[
    int | None, typer.Option("-B", "--before", metavar="N", min=0, max=50, help="Show N messages before it.")
]
After = Annotated[
    int | None, typer.Option("-A", "--after", metavar="N", min=0, max=50, help="Show N messages after it.")
]


def run(
    text: Id,
    context: Context = 0,
    before: Before = None,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Show a message whole, with what was said around it.

    Also says where it comes from, and shows memories and parts of documents. --context adds what stands before and after
    it. Works offline. `crystal open` shows the whole conversation.

    Example:

        crystal show 3f9a2c41 --context 3
    """
    request = ShowRequest(
        id=text.strip(),
        before=context if before is None else before,
        after=context if after is None else after,
    )
    with memory_client(resolve()) as finder:
        shown = finder.show(request)
    if as_json:
        emit(to_builtins(shown))
    else:
        _print(shown)


def _print(shown: ShowDocument) -> None:
    head = [
        f"memory: {shown.memory}" if shown.memory else "",
        shown.agent,
        shown.project or shown.repository,
        shown.session,
        shown.path,
        shown.title,
        "not shared yet" if shown.provisional else "",
    ]
    said = one_line(", ".join(part for part in head if part), 300)
    say(f"# {shown.id[:12]}  {said}" if said else f"# {shown.id[:12]}")
    for piece in shown.pieces:
        moment = (
            datetime.fromisoformat(piece.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            if piece.created_at
            else "undated"
        )
        mark = "> " if piece.asked and len(shown.pieces) > 1 else "  "
        say(f"{mark}{piece.id[:12]}  {moment}  {one_line(piece.role, 60)}")
        for line in piece.text.splitlines():
            say(f"    {printable(line)}")
