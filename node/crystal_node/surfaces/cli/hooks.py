"""``crystal hooks``: the hooks in AI tools that wake the background service, and recall."""

from typing import Annotated

import typer

from crystal_node.agent.hooks.every_tool import Hooks, hooks_of
from crystal_node.agent.hooks.tool_hooks import HooksLook
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.settings import resolve
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.setup.steps import for_each

group = typer.Typer(
    help="Install, remove and check the hooks in AI tools.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
Tools = Annotated[
    list[str] | None, typer.Argument(metavar="[TOOL...]", help="Which; without, all that are here.")
]


@group.command("install")
def install(tools: Tools = None, as_json: Json = False) -> None:
    """Install hooks in AI tools that wake the background service, and recall.

    They go into the settings of Claude Code, Codex, Gemini CLI and Qwen Code, and into files of their own in opencode,
    OpenClaw and Copilot CLI. Other programs' hooks stay as they are; running it again changes nothing. At a prompt and at a
    session's start a hook tells the agent what is remembered, within 0.3 s or not at all. The others only wake a running
    background service. Without hooks nothing is lost: the background service watches the transcripts anyway.

    Example:

        crystal hooks install
        crystal hooks install codex
    """
    chosen = _chosen(tools)

    def put_in(hooks: Hooks) -> bool:
        is_new = hooks.install()
        if not as_json:
            _say_installed(hooks, is_new=is_new)
        return is_new

    changed = for_each(chosen, put_in)
    if as_json:
        emit(_document(chosen) | {"changed": bool(changed)})


@group.command("uninstall")
def uninstall(tools: Tools = None, as_json: Json = False) -> None:
    """Remove the hooks from AI tools.

    Other programs' hooks stay as they are.

    Example:

        crystal hooks uninstall
    """
    chosen = _named(tools)

    def take_out(hooks: Hooks) -> bool:
        were_there = hooks.uninstall()
        if were_there and not as_json:
            say(f"The hooks are gone from {hooks.file}.")
        return were_there

    changed = for_each(chosen, take_out)
    if as_json:
        emit(_document(chosen) | {"changed": bool(changed)})
    elif not changed:
        say("There were no hooks of this home.")


@group.command("status")
def status(tools: Tools = None, as_json: Json = False) -> None:
    """Show which hooks are installed.

    Example:

        crystal hooks status --json
    """
    chosen = _named(tools)
    if as_json:
        emit(_document(chosen))
        return
    there = [hooks for hooks in chosen if hooks.there]

    def tell(hooks: Hooks) -> bool:
        found = hooks.look()
        say(f"{found.tool.title}: {found.file}")
        for event, state in found.states.items():
            say(f"  {event:<18} {state}")
        _say_disabled(found)
        return not found.installed

    lacking = for_each(there, tell)
    if not there:
        say("There is no AI tool on this machine that takes hooks.")
    elif lacking:
        say("`crystal hooks install` puts them in.")


def _named(names: list[str] | None) -> list[Hooks]:
    """Those tools; without names all. Raises UsageError."""
    known = {hooks.tool.name: hooks for hooks in hooks_of(resolve())}
    for name in names or ():
        if name not in known:
            raise UsageError(
                f"there is no tool {name[:60]!r} that takes hooks", hint=f"There are: {', '.join(known)}."
            )
    return [known[name] for name in names] if names else list(known.values())


def _chosen(names: list[str] | None) -> list[Hooks]:
    """Those tools; without names those that are here. Raises UsageError, NoSuchEntry."""
    found = _named(names)
    there = found if names else [hooks for hooks in found if hooks.there]
    if not there:
        folders = ", ".join(f"{hooks.tool.title} ({hooks.tool.folder})" for hooks in found)
        raise NoSuchEntry(
            f"there is no AI tool on this machine that takes hooks, such as {folders}",
            hint="Start it once. Without hooks Crystal still sees what it writes.",
        )
    return there


def _say_installed(hooks: Hooks, *, is_new: bool) -> None:
    say(f"The hooks are in {hooks.file}." if is_new else f"The hooks were in {hooks.file} already.")
    if is_new:
        say("They hold for sessions that begin from now on.")
        if hooks.tool.asks:
            say(hooks.tool.asks)
        if hooks.backup.exists():
            say(f"As it was before: {hooks.backup}")
    _say_disabled(hooks.look())


def _say_disabled(found: HooksLook) -> None:
    if found.disabled:
        say('! That file turns all hooks off ("disableAllHooks"): none of them runs until it no longer does.')


def _document(chosen: list[Hooks]) -> dict[str, object]:
    return {"tools": [_of_tool(hooks) for hooks in chosen]}


def _of_tool(hooks: Hooks) -> dict[str, object]:
    found = hooks.look()
    return {
        "name": hooks.tool.name,
        "file": str(found.file),
        "there": found.there,
        "installed": found.installed,
        "events": {event: state.value for event, state in found.states.items()},
        "others": found.others,
        "disabled": found.disabled,
        "backup": str(hooks.backup) if hooks.backup.exists() else None,
    }
