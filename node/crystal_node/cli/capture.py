"""``crystal capture``: records transcripts, one pass."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.cli.options import Agent, Debug, Json
from crystal_node.cli.output import emit, note, say

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH...]", help="Transcripts, or folders of them. Without: all that Claude Code keeps here."
    ),
]


def run(paths: Paths = None, agent: Agent = None, as_json: Json = False, debug: Debug = False) -> None:
    """Record what conversations gained since the last time. Nothing leaves this machine yet: `crystal sync` sends it.

    Transcripts are only read. Credentials are blanked out before anything is stored. A pass can be repeated or killed at
    any time: nothing is recorded twice, and nothing is lost.

    Example:

        crystal capture
        crystal capture ~/.claude/projects/-home-me-work --agent cc-mini
    """
    import asyncio

    from crystal_node.device import opened
    from crystal_node.errors import NoSuchEntry
    from crystal_node.recording import Recorder
    from crystal_node.settings import Flags, resolve

    missing = [path for path in paths or [] if not path.exists()]
    if missing:
        raise NoSuchEntry(
            f"there is no {missing[0]}", hint="Give a transcript (.jsonl) or a folder that holds some."
        )
    with opened(resolve(Flags(agent=agent))) as device:
        report = asyncio.run(Recorder(device).record(paths or None))
    if as_json:
        emit(
            {
                "messages": report.counts.messages,
                "redacted": report.redacted,
                "skipped": report.skipped,
                "files": report.files,
                "operations": report.operations,
                "private": report.private,
                "redacted_kinds": dict(report.counts.redacted),
                "skipped_reasons": dict(report.counts.skipped),
                "problems": [{"path": path, "problem": problem} for path, problem in report.problems],
            }
        )
        return
    if report.private:
        say("Private mode is on: nothing was recorded. `crystal private off` ends it.")
        return
    say(f"Recorded {report.words()}." if report.words() else "Nothing new.")
    if report.skipped:
        common = ", ".join(f"{count:,} {reason}" for reason, count in report.counts.skipped.most_common(4))
        say(f"Not words of a conversation, left out: {common}.")
    for path, problem in report.problems:
        note(f"! {path} {problem}")
