"""``crystal native``: memory files of AI tools, in step between devices."""

from typing import Annotated

import typer
from msgspec import structs

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.settings import Settings, SettingSource, resolve
from crystal_node.base.wording import counted, one_line, printable
from crystal_node.derive.native_memory.places import NativeTool
from crystal_node.derive.native_memory.service import NativeState, NativeStatus, keep_in_step, native_status
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm
from crystal_node.surfaces.setup.tools import check_names

group = typer.Typer(
    help="Keep AI tools' own memory files in step between devices.",
    no_args_is_help=True,
    add_completion=False,
)

Tools = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOOL...]", help=f"Of: {', '.join(NativeTool)}. Without: all of them."),
]
_WARNING = """\
AI tools obey these files. From now on, what another device of yours writes into its files becomes instructions here,
and what is written here becomes instructions there, where it is turned on as well. Turn it on only if nobody else uses
any of your devices.
What a file has now is kept before it is first changed. `crystal native status` says which device wrote what.
"""
_SHOWN_CHARS = 100


@group.command("on")
def on(tools: Tools = None, yes: Yes = False, as_json: Json = False) -> None:
    """Keep the files of these tools in step, on this device.

    Each device turns it on for itself. Claude Code: CLAUDE.md of your home folder and the memory of each project. Codex:
    AGENTS.md of your home folder and its memories. Gemini CLI and Qwen Code: GEMINI.md and QWEN.md of your home folder.

    Example:

        crystal native on claude-code
    """
    settings = _settings()
    wanted = _wanted(tools)
    if not yes and wanted - settings.capture.native_memory:
        confirm("Type yes to turn it on: ", expect="yes", about=_WARNING, as_json=as_json)
    _write(settings, settings.capture.native_memory | wanted)
    _run(as_json=as_json)


@group.command("off")
def off(tools: Tools = None, as_json: Json = False) -> None:
    """Leave the files of these tools alone, on this device.

    The files stay as they are, here and on other devices.

    Example:

        crystal native off codex
    """
    settings = _settings()
    left = settings.capture.native_memory - _wanted(tools)
    _write(settings, left)
    if as_json:
        emit({"tools": sorted(left)})
    else:
        say(f"Kept in step: {', '.join(sorted(left)) or 'nothing'}. The files stay as they are.")


@group.command("sync")
def sync(as_json: Json = False) -> None:
    """Take and give what changed now.

    The background service does so every half minute. `crystal sync` carries it to and from other devices.

    Example:

        crystal native sync
    """
    _settings()
    _run(as_json=as_json)


@group.command("status")
def status(as_json: Json = False) -> None:
    """Show each file: how it is, which device wrote what, and conflicts.

    Changes nothing. No network.

    Example:

        crystal native status
    """
    settings = _settings()
    with opened(settings) as device:
        files = native_status(device, settings, now_ms())
    _show(settings, files, as_json=as_json)


def _run(*, as_json: bool) -> None:
    settings = resolve()
    with opened(settings) as device:
        files = keep_in_step(device, settings, now_ms(), hurried=True)
    settings.home.nudge()
    _show(settings, files, as_json=as_json)


def _show(settings: Settings, files: list[NativeStatus], *, as_json: bool) -> None:
    on_here = sorted(settings.capture.native_memory)
    if as_json:
        emit({"tools": on_here, "files": [each.document() for each in files]})
        return
    if not on_here:
        say("Nothing is kept in step on this device. `crystal native on TOOL` changes that.")
        return
    say(f"Kept in step: {', '.join(on_here)}.")
    for each in files:
        say(printable(f"  {each.path or f'{each.tool}: {each.name} of {each.project}'}"))
        say(f"    {_words(each)}")
        for conflict in each.conflicts:
            names = " and ".join(conflict.devices)
            what = (
                "a heading that one device removed"
                if conflict.removed_heading
                else f"changed on {names} at once"
            )
            note(
                printable(
                    f"    ! line {conflict.line}: {what}; keep what you want, and delete the note above it:"
                )
            )
            for text in conflict.texts:
                note(printable(f"        {one_line(text, _SHOWN_CHARS)}"))
        for problem in each.problems:
            note(printable(f"    ! {problem}"))


def _words(status: NativeStatus) -> str:
    if status.state is NativeState.ELSEWHERE:
        return "in the vault; this device has no folder for it"
    if status.state is NativeState.HELD:
        return printable(f"left as it is: {status.reason}")
    parts = [f"{counted(count, 'line')} of {name}" for name, count in status.lines]
    if status.local:
        parts.append(f"{counted(status.local, 'line')} of this device alone (private, or with credentials)")
    how = (
        "in step" if status.state is NativeState.IN_STEP else "changed; the background service takes it soon"
    )
    return printable(f"{how}: {', '.join(parts) or 'empty'}")


def _wanted(tools: list[str] | None) -> frozenset[str]:
    names = tuple(each.value for each in NativeTool)
    check_names(names, tools or ())
    return frozenset(tools or names)


def _settings() -> Settings:
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet", hint="`crystal up` makes one.")
    return settings


def _write(settings: Settings, tools: frozenset[str]) -> None:
    setting = settings.options["native_memory"]
    if setting.source is SettingSource.ENVIRONMENT:
        raise UsageError(
            f"{setting.variable} is set, and comes before what could be written down",
            hint="Unset that variable first.",
        )
    settings.save(structs.replace(settings.config, native_memory=",".join(sorted(tools))))
