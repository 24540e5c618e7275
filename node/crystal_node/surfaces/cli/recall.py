"""``crystal recall`` for people; for hooks ``crystal_node.surfaces.cli`` runs it without loading this module."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp
from crystal_node.base.settings import resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput
from crystal_node.search.recall.selection import recall
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

Prompt = Annotated[list[str] | None, typer.Argument(metavar="[PROMPT...]", help="What a person might ask.")]
Hook = Annotated[bool, typer.Option("--hook", help="For hooks: reads what the hook was told, never fails.")]
HomeFolder = Annotated[
    Path | None, typer.Option("--home", metavar="PATH", help="For hooks: the Crystal home to use.")
]


def run(
    prompt: Prompt = None,
    hook: Hook = False,
    home: HomeFolder = None,
    as_json: Json = False,
) -> None:
    """Show what hooks would tell an agent at a prompt.

    Without a prompt, what they would tell it at the start of a session in this folder. Hooks call it with --hook. `crystal
    config set recall no` ends it.

    Example:

        crystal recall "why did we change the retry budget"
    """
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    words = " ".join(prompt or ())
    moment = HookEvent.PROMPT if words else HookEvent.START
    asked = HookInput(moment, cwd=str(Path.cwd()), source="startup", prompt=words)
    with Finder(settings) as found:
        recalled = recall(asked, settings, lambda: found, now_ms())
    if as_json:
        emit({"event": moment.value, "text": recalled.text, "line": recalled.line})
    else:
        say(recalled.text or "Nothing to recall.")
