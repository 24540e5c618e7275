"""``crystal sessions retention`` and ``exact``: how long the raw copies of sessions are kept, and of which projects exactly."""

from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.settings import Settings, resolve
from crystal_node.base.wording import counted, one_line, size
from crystal_node.derive.sessions.database import HeadRow, SessionDatabase
from crystal_node.derive.sessions.heads import CopiesSummary, head_cache
from crystal_node.derive.sessions.layout import FOLDER
from crystal_node.derive.sessions.retention import to_remove
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

_NAME_CHARS = 120
_NAMED = 5


class Turn(StrEnum):
    """Whether it holds."""

    ON = "on"
    OFF = "off"


KeepDays = Annotated[
    int | None,
    typer.Option(
        "--keep-days", metavar="N", min=0, max=36_500, help="Remove what did not grow for N days; 0: never."
    ),
]
MaxGb = Annotated[
    int | None,
    typer.Option(
        "--max-gb", metavar="N", min=0, max=100_000, help="Remove the oldest beyond N GB; 0: never."
    ),
]
Off = Annotated[bool, typer.Option("--off", help="Keep all, as without any rule.")]
ProjectName = Annotated[
    str, typer.Argument(metavar="PROJECT", help="A folder, or a repository such as example.org/me/library.")
]
Wanted = Annotated[Turn, typer.Argument(metavar="on|off", help="Whether its sessions are copied exactly.")]


@dataclass(frozen=True, slots=True)
class CopiesHere:
    """What there is here. ``going``: how many sessions the rules remove next; ``unreadable``: heads that cannot be used."""

    summary: CopiesSummary
    going: int
    unreadable: list[HeadRow]


def retention(
    keep_days: KeepDays = None, max_gb: MaxGb = None, off: Off = False, as_json: Json = False
) -> None:
    """Show or change how long raw copies of sessions are kept.

    Without options it shows the rules and the sizes. The Core applies them for all machines each hour, the oldest session
    first, and never to one that grew within a day. Conversations in the memory stay.

    Example:

        crystal sessions retention --keep-days 365 --max-gb 20
    """
    settings = resolve()
    if off and (keep_days is not None or max_gb is not None):
        raise UsageError("--off goes with no other option", hint="Leave out --keep-days and --max-gb.")
    changes = {"sessions_keep_days": 0 if off else keep_days, "sessions_max_gb": 0 if off else max_gb}
    wanted = {name: str(value) for name, value in changes.items() if value is not None}
    if wanted:
        with opened(settings) as device:
            if not device.member.is_core:
                raise UsageError(
                    "the Core applies the rules, and this machine is not the Core",
                    hint="Run this on the Core: `crystal devices list` names it.",
                )
        settings = _changed(settings, wanted)
    rules, here = settings.sessions, _here(settings)
    if as_json:
        emit(
            {
                "on": rules.on,
                "keep_days": rules.keep_days,
                "max_gb": rules.max_gb,
                "sessions": here.summary.sessions,
                "copies": here.summary.copies,
                "bytes": here.summary.bytes,
                "removed": here.summary.dropped,
                "removed_next": here.going,
                "unreadable": [{"folder": each.folder, "problem": each.problem} for each in here.unreadable],
            }
        )
        return
    parts = [f"after {counted(rules.keep_days, 'day')} without growth"] if rules.keep_days else []
    parts += [f"beyond {rules.max_gb} GB, the oldest first"] if rules.max_gb else []
    say(
        f"Copies of sessions are removed {'; '.join(parts)}."
        if parts
        else "Copies of sessions are kept for good."
    )
    if not rules.on:
        say("Sessions of this machine are not copied: `crystal config set sessions yes` changes that.")
    say(f"Here are copies of {counted(here.summary.sessions, 'session')}, {size(here.summary.bytes)}.")
    if here.going:
        say(f"{counted(here.going, 'session')} will be removed within the hour.")
    for each in here.unreadable[:_NAMED]:
        say(f"! sessions/{one_line(each.folder, 300)} cannot be read: {one_line(each.problem, _NAME_CHARS)}")
    if here.unreadable:
        say(
            "Remove such a folder on the device that it is named after: it is copied again from the tool's own file."
        )


def exact(project: ProjectName, turn: Wanted, as_json: Json = False) -> None:
    """Keep credentials in the raw copies of one project's sessions.

    Usually credentials are blanked in copies. Turned on, what this machine copies of the project from then on is exact to the
    byte, with all passwords and keys in it. It is encrypted on its way, and readable on each of your machines.

    Example:

        crystal sessions exact ~/work/library on
    """
    settings = resolve()
    name = _project(project)
    chosen = [each for each in settings.sessions.exact if each != name]
    if turn is Turn.ON:
        chosen.append(name)
    settings = _changed(settings, {"sessions_exact": ",".join(chosen)})
    if as_json:
        emit(
            {"project": name, "exact": name in settings.sessions.exact, "all": list(settings.sessions.exact)}
        )
        return
    shown = one_line(name, _NAME_CHARS)
    if turn is Turn.ON:
        say(f"Sessions of {shown} are copied exactly from now on.")
        note("! Passwords and keys in them will be readable on each of your machines.")
    else:
        say(
            f"Credentials in sessions of {shown} are blanked from now on. Copies that are there stay as they are."
        )


def _here(settings: Settings) -> CopiesHere:
    if not (settings.home.root / FOLDER).is_dir():
        return CopiesHere(CopiesSummary(0, 0, 0, 0, 0), 0, [])
    with closing(SessionDatabase.open(settings.home.sessions_database)) as database:
        cache = head_cache(settings.home, database)
        cache.refresh(now_ms())
        heads, summary = cache.heads(), cache.summary()
    rules = settings.sessions
    usable = [head for head in heads if not head.problem]
    going = to_remove(usable, now_ms(), keep_days=rules.keep_days, max_gb=rules.max_gb)
    return CopiesHere(summary, len(going), [head for head in heads if head.problem])


def _project(named: str) -> str:
    """A folder as sessions name it, or a repository. Raises UsageError."""
    path = Path(named).expanduser()
    if path.is_dir():
        return str(path.resolve())
    if (
        "," not in named
        and "/" in named
        and "." in named.partition("/")[0]
        and not named.startswith((".", "/", "~"))
    ):
        return named.removesuffix(".git").strip("/")
    raise UsageError(
        f"{one_line(named, _NAME_CHARS)} is no folder here, and no repository",
        hint="Name a folder, or a repository such as example.org/me/library.",
    )


def _changed(settings: Settings, values: dict[str, str]) -> Settings:
    if not settings.home.root.is_dir():
        raise NotSetUp(f"there is no home {settings.home.root}")
    settings.save(structs.replace(settings.config, **values))
    return resolve()
