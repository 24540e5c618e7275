"""``crystal search``: find messages, memories and documents by words and by meaning, offline."""

from datetime import UTC
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from msgspec import to_builtins

from crystal_core.search.by import By
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.timespans import parse_since
from crystal_node.search.finding.client import memory_client
from crystal_node.search.finding.documents import (
    OFFSET_MAX,
    Depth,
    ResultKind,
    SearchRequest,
    StatusFilter,
)
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit
from crystal_node.surfaces.cli.console.results import show_found
from crystal_node.surfaces.cli.search_plain import without_gaps

if TYPE_CHECKING:
    _Value = TypeVar("_Value", By, ResultKind, StatusFilter)

Query = Annotated[list[str], typer.Argument(metavar="QUERY...", help="What to look for, in your own words.")]
Limit = Annotated[int, typer.Option("-n", "--limit", metavar="N", min=1, max=1000, help="How many results.")]
Page = Annotated[int, typer.Option("--page", metavar="N", min=1, help="The N-th page of so many results.")]
Offset = Annotated[
    int | None, typer.Option("--offset", metavar="N", min=0, max=10_000, help="Leave out the N best results.")
]
OfAgent = Annotated[str, typer.Option("--agent", metavar="ID", help="Only what this agent heard or said.")]
OfProject = Annotated[
    str,
    typer.Option(
        "--project", metavar="NAME", help="Only of this project: its folder or repository, or its end."
    ),
]
OfSession = Annotated[str, typer.Option("--session", metavar="ID", help="Only of this conversation.")]
OfRole = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="Only what this role said: user, assistant.")
]
OfKind = Annotated[
    str,
    typer.Option(
        "--kind", metavar="KIND", help="Only results of one kind: conversation, memory, document, action."
    ),
]
OfSource = Annotated[
    str, typer.Option("--source", metavar="NAME", help="Only from this tool, or this source of documents.")
]
OfDevice = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Only what this device recorded: its name or id.")
]
OfCategory = Annotated[
    str, typer.Option("--category", metavar="NAME", help="Only memories of this category.")
]
OfStatus = Annotated[
    str,
    typer.Option(
        "--status", metavar="STATUS", help="Only memories that are: active, retired, superseded, any."
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only newer: 24h, yesterday, last week, 2026-01-31."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Only older: as --since; a day or week counts in full."),
]
Fast = Annotated[bool, typer.Option("--fast", help="Words and vectors only, whatever the settings say.")]
Deep = Annotated[
    bool, typer.Option("--deep", help="Have a language model expand the query and rank the results.")
]
Intent = Annotated[str, typer.Option("--intent", metavar="TEXT", help="For --deep: what the search is for.")]
Candidates = Annotated[
    int,
    typer.Option(
        "--candidates", metavar="N", min=1, max=200, help="For --deep: how many results are ranked."
    ),
]
Provider = Annotated[
    str, typer.Option("--provider", metavar="NAME", help="For --deep: whose model is asked.")
]
FindsBy = Annotated[
    str, typer.Option("--by", metavar="WHAT", help="Find whole turns, or each message alone: turn, message.")
]
Thinking = Annotated[
    bool, typer.Option("--thinking", help="Also find what agents thought before they answered.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Show how each score came about.")]


def run(
    query: Query,
    limit: Limit = 10,
    page: Page = 1,
    offset: Offset = None,
    agent: OfAgent = "",
    project: OfProject = "",
    session: OfSession = "",
    role: OfRole = "",
    kind: OfKind = "",
    source: OfSource = "",
    device: OfDevice = "",
    since: Since = None,
    until: Until = None,
    category: OfCategory = "",
    status: OfStatus = "",
    by: FindsBy = By.TURN.value,
    thinking: Thinking = False,
    fast: Fast = False,
    deep: Deep = False,
    intent: Intent = "",
    candidates: Candidates = 40,
    provider: Provider = "",
    explain: Explain = False,
    as_json: Json = False,
) -> None:
    """Find what was said, remembered or decided, on any machine.

    A result is a question with its answer: the question in a line, and below it the passage of the answer that fits. Results of
    one conversation stand together. `--by message` finds single messages. Works offline. Words and meaning both count; of
    results that fit equally well, the newer comes first. What this machine recorded a moment ago is found too, marked as not
    yet shared. All filters must match the same place of a conversation or document. `crystal show ID` shows a result whole.
    `--kind action` finds what agents did: commands, with their exit codes and errors, and changed files. The exit code is 0
    whether anything was found or not, 2 for a filter that cannot be used.

    Example:

        crystal search "why did we change the retry budget" --since 30d
    """
    if fast and deep:
        raise UsageError("--fast and --deep exclude each other")
    if offset is not None and page > 1:
        raise UsageError("--offset and --page exclude each other")
    left_out = (page - 1) * limit if offset is None else offset
    if left_out > OFFSET_MAX:
        raise UsageError(
            f"a search leaves out {OFFSET_MAX:,} results at most", hint="Narrow it down with filters."
        )
    request = SearchRequest(
        query=" ".join(query),
        limit=limit,
        offset=left_out,
        agent=agent,
        project=project,
        session=session,
        role=role,
        kind=_one_of(ResultKind, kind, "kind of result"),
        source=source,
        device=device,
        since=_moment(since),
        until=_moment(until),
        category=category,
        status=_one_of(StatusFilter, status, "status of a memory"),
        by=_one_of(By, by, "way to search, --by") or By.TURN,
        thinking=thinking,
        depth=Depth.FAST if fast else Depth.DEEP if deep else Depth.AUTO,
        intent=intent,
        candidates=candidates,
        provider=provider,
        explain=explain,
    )
    with memory_client(resolve()) as finder:
        found = finder.search(request)
    if as_json:
        emit(without_gaps(to_builtins(found)))
    else:
        show_found(found, request)


def _one_of(values: "type[_Value]", given: str, what: str) -> "_Value | None":
    if not given:
        return None
    for value in values:
        if value == given:
            return value
    known = ", ".join(values)
    raise UsageError(f"{given[:60]!r} is no {what}", hint=f"Use one of {known}.")


def _moment(given: str | None) -> str:
    """The time as given. Raises UsageError if it is given and empty, since that would be no filter."""
    if given is not None and not given.strip():
        parse_since(given, 0, UTC)
    return given or ""
