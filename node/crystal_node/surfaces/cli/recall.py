"""``crystal recall`` for people; for hooks ``crystal_node.surfaces.cli`` runs it without loading this module."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crystal_core.database import Database
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.timespans import parse_since
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput
from crystal_node.search.recall.report import log_lines, recall_log
from crystal_node.search.recall.selection import recall
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

Prompt = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT...|log]", help="What a person might ask; log shows the log."),
]
Hook = Annotated[bool, typer.Option("--hook", help="For hooks: reads what the hook was told, never fails.")]
HomeFolder = Annotated[
    Path | None, typer.Option("--home", metavar="PATH", help="For hooks: the Crystal home to use.")
]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Log: only newer, e.g. 7d or a date.")]
Session = Annotated[
    str, typer.Option("--session", metavar="ID", help="Log: only what this session was given.")
]
_LOG = ["log"]


def run(
    prompt: Prompt = None,
    hook: Hook = False,
    home: HomeFolder = None,
    since: Since = "",
    session: Session = "",
    as_json: Json = False,
) -> None:
    """Show what hooks would tell an agent at a prompt.

    Without a prompt, what they would tell it at the start of a session in this folder. Hooks call it with --hook. `crystal
    config set recall no` ends it.

    `log` shows what agents were given on this device: which records and why, for which prompt, what it cost, and whether the
    answer used its words. The log stays here, for 30 days.

    Example:

        crystal recall "why did we change the retry budget"
        crystal recall log --since 7d
    """
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    if prompt == _LOG:
        _show_log(settings, since, session, as_json=as_json)
        return
    if since or session:
        raise UsageError(
            "--since and --session are for the log", hint="Add `log`: `crystal recall log --since 7d`."
        )
    words = " ".join(prompt or ())
    moment = HookEvent.PROMPT if words else HookEvent.START
    asked = HookInput(moment, cwd=str(Path.cwd()), source="startup", prompt=words)
    with Finder(settings) as found:
        recalled = recall(asked, settings, lambda: found, now_ms())
    if as_json:
        emit({"event": moment.value, "text": recalled.text, "line": recalled.line, "tokens": recalled.tokens})
    else:
        say(recalled.text or "Nothing to recall.")


def _show_log(settings: Settings, since: str, session: str, *, as_json: bool) -> None:
    now = now_ms()
    since_ms = parse_since(since, now, settings.capture.nameless_zone()) if since else 0
    with Database.open(settings.home.database) as memory:
        log = recall_log(settings, memory, now, since_ms=since_ms, session=session)
    if as_json:
        emit(msgspec.to_builtins(log))
        return
    for line in log_lines(log):
        say(line)
    if not log.entries:
        note("No agent was given anything in this time.")
    elif log.more:
        note("There are older ones; --since and --session choose.")
