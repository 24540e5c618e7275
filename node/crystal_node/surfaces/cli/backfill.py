"""``crystal backfill``: record old conversations that are not in the memory yet."""

import asyncio
from typing import Annotated

import typer

from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, counted, one_line, size
from crystal_node.capture.backfill import BackfillRequest, BackfillResult, backfill
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Agent, Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.progress import progress_shown
from crystal_node.surfaces.cli.console.prompts import confirm

Tool = Annotated[
    str | None,
    typer.Option(
        "--tool", metavar="TOOL", help="Only transcripts of this tool, such as claude-code or codex."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and record nothing.")]
Limit = Annotated[
    int, typer.Option("--limit", min=0, metavar="N", help="Record at most N parts; the next run continues.")
]


def run(
    agent: Agent = None,
    tool: Tool = None,
    dry_run: DryRun = False,
    limit: Limit = 0,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Record old conversations that are not in the memory yet.

    Reads all transcripts of this machine from their beginning, shows how much there is, and asks before it records. Nothing
    is recorded twice, so it can be stopped anywhere and run again. What was said in private, and what was forgotten, stays
    out.

    Example:

        crystal backfill --dry-run
        crystal backfill --tool codex --yes
    """

    with opened(resolve()) as device:
        request = BackfillRequest(agent or "", tool or "", dry_run=True, limit=limit, settle=not dry_run)
        counted = asyncio.run(backfill(device, request))
        if not as_json:
            _tell(counted)
        if not dry_run and counted.new:
            if not yes:
                confirm("\nType backfill to go on: ", expect="backfill", as_json=as_json)
            request = BackfillRequest(agent or "", tool or "", limit=limit)
            with progress_shown(quiet=as_json) as shown:
                counted = asyncio.run(
                    backfill(device, request, lambda _, done, total: shown("transcripts", done, total))
                )
    if as_json:
        emit({**counted.document(), "dry_run": dry_run})
        return
    if not dry_run:
        _tell_done(counted)
    for path, problem in counted.problems:
        note(f"! {_line(path)} {problem}")


def _tell(found: BackfillResult) -> None:
    tools = ", ".join(f"{name} {count:,}" for name, count in found.tools.items())
    say(f"transcripts  {found.files:,} ({tools or 'none'}), {size(found.bytes)}")
    say(f"messages     {found.counts.messages:,} in {counted(found.chunks, 'part')}")
    redacted = sum(found.counts.redacted.values())
    if redacted:
        say(f"blanked out  {counted(redacted, 'credential')}")
    say(f"recorded     {found.recorded:,} are in the memory already")
    hidden = found.counts.skipped.get("private", 0)
    if hidden or found.forgotten:
        say(f"left out     {hidden:,} private, {found.forgotten:,} forgotten")
    more = " at least: the limit ends it there" if found.more else ""
    say(f"new          {counted(found.new, 'part')}{more}")
    if found.new:
        say(
            f"             about {ago(found.embed_seconds)} to embed on the Core, {size(found.send_bytes)} to send"
        )


def _tell_done(done: BackfillResult) -> None:
    say(f"Recorded {counted(done.taken, 'part')}." if done.taken else "Nothing new.")
    if done.more:
        say("The limit was reached: run it again to go on.")


def _line(text: str) -> str:
    return one_line(text, 300)
