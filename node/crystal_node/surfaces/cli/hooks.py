"""``crystal hooks``: the hooks in Claude Code that wake the background service."""

import typer

from crystal_node.agent.hooks.claude_code import ClaudeHooks, HooksLook
from crystal_node.base.settings import resolve
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say

group = typer.Typer(
    help="Install, remove and check the hooks in Claude Code.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@group.command("install")
def install(as_json: Json = False) -> None:
    """Install hooks in Claude Code that wake the background service.

    They go into Claude Code's settings.json. Other programs' hooks stay as they are; running it again changes nothing. Each
    hook only wakes a running background service: it returns at once, reads nothing and never delays a session. Without
    hooks nothing is lost: the background service watches the transcripts anyway.

    Example:

        crystal hooks install
    """
    hooks = _hooks()
    changed = hooks.install()
    found = hooks.look()
    if as_json:
        emit(_document(hooks, found) | {"changed": changed})
        return
    say(f"The hooks are in {found.file}." if changed else f"The hooks were in {found.file} already.")
    if changed:
        say("They hold for sessions that begin from now on.")
        if hooks.backup.exists():
            say(f"As it was before: {hooks.backup}")
    _say_disabled(found)


@group.command("uninstall")
def uninstall(as_json: Json = False) -> None:
    """Remove the hooks from Claude Code.

    Other programs' hooks stay as they are.

    Example:

        crystal hooks uninstall
    """
    hooks = _hooks()
    changed = hooks.uninstall()
    if as_json:
        emit(_document(hooks, hooks.look()) | {"changed": changed})
        return
    say(f"The hooks are gone from {hooks.file}." if changed else "There were no hooks of this home.")


@group.command("status")
def status(as_json: Json = False) -> None:
    """Show which hooks are installed.

    Example:

        crystal hooks status --json
    """
    hooks = _hooks()
    found = hooks.look()
    if as_json:
        emit(_document(hooks, found))
        return
    if not found.there:
        say(f"There is no Claude Code on this machine (no folder {found.file.parent}).")
        return
    for event, state in found.states.items():
        say(f"{event:<18} {state}")
    if not found.installed:
        say("`crystal hooks install` puts them in.")
    _say_disabled(found)


def _hooks() -> ClaudeHooks:
    return ClaudeHooks(resolve())


def _say_disabled(found: HooksLook) -> None:
    if found.disabled:
        say('! That file turns all hooks off ("disableAllHooks"): none of them runs until it no longer does.')


def _document(hooks: ClaudeHooks, found: HooksLook) -> dict[str, object]:
    return {
        "file": str(found.file),
        "there": found.there,
        "installed": found.installed,
        "events": {event.value: state.value for event, state in found.states.items()},
        "others": found.others,
        "disabled": found.disabled,
        "backup": str(hooks.backup) if hooks.backup.exists() else None,
    }
