"""``crystal show``: a turn whole, or a message with what was said around it, offline."""

from datetime import datetime
from typing import Annotated

import typer
from msgspec import to_builtins

from crystal_node.base.settings import resolve
from crystal_node.base.text_ids import SHOWN_DIGITS
from crystal_node.base.wording import one_line, printable
from crystal_node.search.finding.client import memory_client
from crystal_node.search.finding.documents import ShowDocument, ShowRequest
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.place import working_folder

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id that `crystal search` shows, with its @ part if it has one; or its first 8 digits.",
    ),
]
Context = Annotated[
    int | None,
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
    context: Context = None,
    before: Before = None,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Show a question with its answer, or what was said around it.

    Shows the whole turn of a message: what a person said, and everything up to their next message, without thinking. With
    --context, --before or --after it is the message itself and so many before and after it; `--context 0` shows it alone.
    Also says where it comes from, and shows memories and parts of documents. Of words that were said in several projects, ID
    alone shows those of the project of this folder. Works offline. `crystal open` shows the whole conversation.

    Example:

        crystal show 3f9a2c41 --context 3
    """
    request = ShowRequest(
        id=text.strip(),
        before=before if before is not None else context or 0,
        after=after if after is not None else context or 0,
        turn=context is None and before is None and after is None,
        folder=working_folder(),
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
        shown.project or shown.repository,
        " on ".join(part for part in (shown.source, shown.device_name) if part),
        shown.agent,
        shown.session,
        shown.path,
        shown.title,
        "not shared yet" if shown.provisional else "",
    ]
    said = one_line(", ".join(part for part in head if part), 300)
    asked = next((piece.placed_id for piece in shown.pieces if piece.asked), shown.id[:SHOWN_DIGITS])
    say(f"# {asked}  {said}" if said else f"# {asked}")
    for piece in shown.pieces:
        moment = (
            datetime.fromisoformat(piece.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            if piece.created_at
            else "undated"
        )
        mark = "> " if piece.asked and len(shown.pieces) > 1 else "  "
        speaker = " ".join(one_line(part, 60) for part in (piece.role, piece.model) if part)
        say(f"{mark}{piece.placed_id}  {moment}  {speaker}")
        for line in piece.text.splitlines():
            say(f"    {printable(line)}")
