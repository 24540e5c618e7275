"""``crystal search``: finds texts by words and by meaning, offline."""

from typing import TYPE_CHECKING, Annotated

import typer

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, note, say

if TYPE_CHECKING:
    from crystal_core.search import Hit, SearchResult
    from crystal_node.settings import Settings

Query = Annotated[list[str], typer.Argument(metavar="QUERY...", help="What to look for, in your own words.")]
Limit = Annotated[int, typer.Option("-n", "--limit", metavar="N", min=1, max=1000, help="How many results.")]
OfAgent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="Only what this agent heard or said.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only newer: 24h, 7d, 4w, or a date such as 2026-01-31."),
]
Explain = Annotated[bool, typer.Option("--explain", help="Show how each score came about.")]


def run(
    query: Query,
    limit: Limit = 10,
    agent: OfAgent = None,
    since: Since = None,
    explain: Explain = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Find what was said, remembered or decided, on any of your machines. Works offline.

    Words and meaning both count. What this machine recorded a moment ago is found as well, marked as not yet shared.

    Example:

        crystal search "why did we change the retry budget" --since 30d
    """
    from crystal_node.clock import now_ms
    from crystal_node.settings import resolve
    from crystal_node.timespans import parse_since

    now = now_ms()
    since_ms = None if since is None else parse_since(since, now)
    words = " ".join(query)
    result = _search(resolve(), words, limit=limit, agent=agent, since_ms=since_ms, now=now)
    if as_json:
        emit(
            {
                "query": words,
                "mode": result.mode.value,
                "note": result.note,
                "results": [_document(hit, explain=explain) for hit in result.hits],
            }
        )
        return
    if result.note:
        note(f"Searched by words alone: {result.note}.")
    if not result.hits:
        say("Nothing found.")
    elif _on_terminal():
        _table(result, now, explain=explain)
    else:
        _lines(result, now, explain=explain)


def _search(
    settings: "Settings", query: str, *, limit: int, agent: str | None, since_ms: int | None, now: int
) -> "SearchResult":
    from crystal_core.database import Database
    from crystal_core.embed.builtin import BuiltinEmbedder
    from crystal_core.search import search
    from crystal_node.errors import NotSetUp

    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    with Database.open(settings.home.database) as database:
        return search(
            database,
            query,
            now_ms=now,
            embedder=BuiltinEmbedder(threads=1),
            limit=limit,
            agent=agent,
            since_ms=since_ms,
        )


def _document(hit: "Hit", *, explain: bool) -> dict[str, object]:
    from crystal_node.wording import iso

    document: dict[str, object] = {
        "id": hit.id,
        "text": hit.text,
        "score": round(hit.score, 6),
        "agent": hit.agent,
        "session": hit.session,
        "role": hit.role,
        "created_at": iso(hit.created_at),
        "project": hit.project,
        "repository": hit.repository,
        "source": hit.source,
        "freshness": hit.freshness.value,
        "memory": hit.category,
        "provisional": hit.provisional,
    }
    if explain:
        parts = hit.explanation
        document["explain"] = {
            "keyword_rank": parts.keyword_rank,
            "keyword_score": round(parts.keyword_score, 6),
            "vector_rank": parts.vector_rank,
            "similarity": round(parts.similarity, 6),
            "fused": round(parts.fused, 6),
            "recency": round(parts.recency, 6),
        }
    return document


def _on_terminal() -> bool:
    from crystal_node.cli.options import is_terminal

    return is_terminal(output=True)


def _table(result: "SearchResult", now: int, *, explain: bool) -> None:
    from rich.table import Table

    from crystal_node.cli.terminal import console
    from crystal_node.wording import one_line

    table = Table(box=None, pad_edge=False, show_lines=False, padding=(0, 2, 1, 0))
    table.add_column("Id", style="dim", no_wrap=True)
    table.add_column("When", no_wrap=True)
    table.add_column("Who", max_width=24)
    table.add_column("Text", ratio=1)
    if explain:
        table.add_column("Why", max_width=30, style="dim")
    for hit in result.hits:
        row = [hit.id[:12], _when(hit, now), one_line(_who(hit), 60), one_line(hit.text, 400)]
        if explain:
            row.append(_why(hit))
        table.add_row(*row)
    console().print(table)


def _lines(result: "SearchResult", now: int, *, explain: bool) -> None:
    from crystal_node.wording import one_line

    for hit in result.hits:
        say(f"{hit.id[:12]}  {_when(hit, now)}  {one_line(_who(hit), 100)}")
        say(f"    {one_line(hit.text, 2000)}")
        if explain:
            say(f"    {_why(hit)}")


def _when(hit: "Hit", now: int) -> str:
    from crystal_node.wording import ago

    return f"{ago((now - hit.created_at) / 1000)} ago" if hit.created_at else "undated"


def _who(hit: "Hit") -> str:
    parts = [
        f"memory: {hit.category}" if hit.category else hit.role,
        hit.agent,
        hit.project or hit.repository,
    ]
    if hit.provisional:
        parts.append("not shared yet")
    return ", ".join(part for part in parts if part)


def _why(hit: "Hit") -> str:
    parts = hit.explanation
    words = (
        "not by words"
        if parts.keyword_rank is None
        else f"words #{parts.keyword_rank + 1} ({parts.keyword_score:.2f})"
    )
    meaning = (
        "not by meaning"
        if parts.vector_rank is None
        else f"meaning #{parts.vector_rank + 1} ({parts.similarity:.2f})"
    )
    return f"score {hit.score:.4f}: {words}, {meaning}, recency {parts.recency:.2f}"
