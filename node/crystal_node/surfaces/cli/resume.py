"""``crystal resume``: a session of any machine goes on here, in the tool that it was held with."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from crystal_crypto.errors import CrystalError
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode, UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import ago, counted, one_line, size
from crystal_node.capture.openclaw_database import store_of
from crystal_node.derive.resume.plan import ResumePlan, carry_out, plan_resume
from crystal_node.derive.resume.projects import clone_address
from crystal_node.derive.resume.rows import SessionIndex, SessionRow
from crystal_node.derive.resume.sessions import Sessions, Wanted
from crystal_node.derive.sessions.layout import Head
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import ask, typed_line
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.surfaces.cli.resume_list import can_list, choice_of, choose

LIVE_SECONDS = 120
"""A session that grew so recently on another machine may still go on there."""
_LISTED = 20
_NAME_CHARS = 60
_TITLE_CHARS = 100
_FILES_NAMED = 8


class ToolMissing(CrystalError):
    """The session's tool is not on this machine."""

    exit_code = ExitCode.NOT_FOUND
    hint = "Install it and see that it is on your PATH, or go on in another tool: `crystal handoff ID --to TOOL`."


SessionId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="The session's id or its beginning; without one you choose from a list."
    ),
]
Last = Annotated[bool, typer.Option("--last", help="The one that something was last said in.")]
Project = Annotated[
    str,
    typer.Option("--project", metavar="PROJECT", help="Only of this repository or folder, or the end of it."),
]
Tool = Annotated[str, typer.Option("--tool", metavar="TOOL", help="Only of this tool, such as codex.")]
Machine = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Only those that this machine has last.")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--in", metavar="FOLDER", help="Where the session's project is on this machine; remembered."
    ),
]
Print = Annotated[bool, typer.Option("--print", help="Show what would be written and run, and do nothing.")]


def run(
    session: SessionId = None,
    last: Last = False,
    project: Project = "",
    tool: Tool = "",
    device: Machine = "",
    folder: Folder = None,
    only_print: Print = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Resume a session of any machine here, in its own tool.

    Puts the session where the tool looks for it, in the project's folder on this machine, and starts the tool. What the tool
    has of its own is never overwritten: it is continued, or the session goes on under a new id. Works offline.

    Example:

        crystal resume --last --project tide-gauge
    """
    settings = resolve()
    sessions = Sessions(settings)
    row = chosen_row(sessions, session, Wanted(project, tool, device, sessions), last=last)
    if row is not None:
        resume(sessions, row, folder, only_print=only_print, yes=yes, as_json=as_json)


def resume(
    sessions: Sessions,
    row: SessionRow,
    folder: Path | None = None,
    *,
    only_print: bool = False,
    yes: bool = False,
    as_json: bool = False,
) -> None:
    """Put a session where its tool looks for it and become the tool, or say what that would be."""
    head = sessions.head(row)
    quiet = only_print or as_json
    if not quiet:
        _ask_if_live(sessions, head, yes=yes)
    cwd = project_folder(sessions, head, folder, may_ask=not quiet and not yes, keep=not quiet)
    plan = plan_resume(sessions.index_file.copies, head, sessions.tools[head.tool], cwd)
    if as_json:
        emit(document(sessions, plan))
        return
    for line in remarks(sessions, plan):
        note(line)
    if only_print:
        show_plan(plan)
        return
    program = installed(plan)
    carry_out(plan, sessions.index_file.copies, sessions.aside)
    start(program, plan.command, plan.cwd)


def chosen_row(sessions: Sessions, session: str | None, wanted: Wanted, *, last: bool) -> SessionRow | None:
    """The session that is meant: named, the latest, or chosen from a list. None if nobody chose."""
    if session is not None:
        return sessions.named(session)
    return sessions.latest(wanted) if last else _chosen(sessions, wanted)


def _chosen(sessions: Sessions, wanted: Wanted) -> SessionRow | None:
    """Have a person choose. None if they went away. Raises UsageError where nobody can, NoSuchEntry: there is none."""
    if not is_terminal() or not sys.stderr.isatty():
        raise UsageError(
            "there is no terminal to choose a session at",
            hint="Name one: `crystal resume ID`, or `crystal resume --last`. `crystal sessions list` shows them.",
        )
    if not any(map(wanted.takes, sessions.index.rows())):
        sessions.refresh()
        if not any(map(wanted.takes, sessions.index.rows())):
            raise sessions.none()
    if not can_list():
        return _numbered(sessions, wanted)

    def refresh(tell: Callable[[SessionIndex], None]) -> SessionIndex:
        sessions.refresh(tell)
        return sessions.index

    return choose(sessions.index, refresh, wanted.takes)


def _numbered(sessions: Sessions, wanted: Wanted) -> SessionRow | None:
    """For terminals that cannot move the cursor: a list, and a number that is typed."""
    sessions.refresh()
    rows = [row for row in sessions.index.rows() if wanted.takes(row)][:_LISTED]
    now = now_ms()
    for number, row in enumerate(rows, start=1):
        each = choice_of(row, sessions.index, now)
        say(
            f"{number:>3}  {'  '.join((*each.columns, one_line(each.title, _TITLE_CHARS), each.behind))}".rstrip()
        )
    typed = typed_line("Which one (Enter: none)? ", "")
    if not typed:
        return None
    if not (typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(rows)):
        raise UsageError(
            f"{one_line(typed, 20)!r} is none of them", hint=f"Type a number from 1 to {len(rows)}."
        )
    return rows[int(typed) - 1]


def _ask_if_live(sessions: Sessions, head: Head, *, yes: bool) -> None:
    """Raises UsageError: it may still go on elsewhere, and nobody says that it does not matter."""
    age = (now_ms() - head.updated_at) / 1000
    if head.device == sessions.device or age > LIVE_SECONDS or yes:
        return
    name = one_line(sessions.index.device_name(head.device), _NAME_CHARS)
    said = f"This session grew {ago(max(age, 0))} ago on {name}: it may still go on there"
    if not is_terminal():
        raise UsageError(
            said, hint="Leave it there first, or add --yes: what is said on both is kept as two sessions."
        )
    if not ask(f"{said}. What is said on both is kept as two sessions. Go on here? [y/N] "):
        raise typer.Abort


def project_folder(
    sessions: Sessions, head: Head, given: Path | None, *, may_ask: bool, keep: bool = True
) -> Path:
    """Where the session goes on. ``keep``: a folder that is given is remembered. Raises UsageError, UnknownProject."""
    if given is None:
        if (found := sessions.projects.find(head, sessions.own(head))) is not None:
            return Path(os.path.realpath(found))
        unknown = sessions.projects.unknown(head)
        if not may_ask or not is_terminal():
            raise unknown
        note(f"{unknown}.")
        if clone := clone_address(head.repository):
            note(f"It can be cloned: git clone {clone}")
        typed = typed_line("Its folder here (Enter: stop)? ", "")
        if not typed:
            raise unknown
        given = Path(typed)
    from crystal_node.base.given_paths import given_path

    folder = Path(os.path.realpath(given_path(given)))
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="Name a folder that is there.")
    if keep:
        sessions.projects.remember(head, folder)
    return folder


def installed(plan: ResumePlan) -> str:
    """The tool's program. Raises ToolMissing."""
    found = shutil.which(plan.tool.program)
    if found is None:
        raise ToolMissing(f"{plan.tool.title} (`{plan.tool.program}`) is not installed on this machine")
    return found


def start(program: str, command: Sequence[str], cwd: Path) -> None:
    """Become the tool, in this folder. Does not return."""
    import signal

    os.chdir(cwd)
    sys.stdout.flush()
    sys.stderr.flush()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python alone: its successor would not know
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(program, list(command))  # noqa: S606  no shell sees what other devices named


def remarks(sessions: Sessions, plan: ResumePlan) -> list[str]:
    """What a person should know before the session goes on."""
    from crystal_node.base.project import repository_name

    head = plan.head
    name = one_line(sessions.index.device_name(head.device), _NAME_CHARS)
    lines: list[str] = []
    if head.device != sessions.device:
        seen = [f"branch {one_line(head.branch, _NAME_CHARS)}"] if head.branch else []
        seen += [f"commit {one_line(head.commit, 12)}"] if head.commit else []
        if head.changed:
            named = ", ".join(one_line(each, _NAME_CHARS) for each in head.changed[:_FILES_NAMED])
            seen.append(f"{counted(len(head.changed), 'uncommitted file')} that may not be here ({named})")
        if seen:
            lines.append(f"On {name} it had seen {', '.join(seen)}.")
    if head.repository and repository_name(str(plan.cwd)) != head.repository:
        lines.append(f"{plan.cwd} is not a clone of {one_line(head.repository, _TITLE_CHARS)}.")
    if plan.forked:
        lines.append(
            f"This machine and {name} went on separately: the session of {name} becomes {plan.session.own} here; "
            f"{plan.forked} stays as it is."
        )
    if plan.written and store_of(plan.main.path) is not None:
        lines.append("OpenClaw's own import adds it to its database, which takes some seconds.")
    lines += [
        f"{one_line(str(path), 1000)} cannot be read ({one_line(why, 200)}): its part of this session stays there."
        for path, why in plan.tool.unread(plan.session)
    ]
    if plan.kept:
        lines.append(f"{counted(len(plan.kept), 'file')} beside it differ here and stay as they are.")
    return lines


def show_plan(plan: ResumePlan) -> None:
    """What would be written and run, for people."""
    import shlex

    for each in plan.written:
        say(f"write {size(each.compared.new_bytes)} to {one_line(str(each.path), 1000)}")
    if not plan.written:
        say("write nothing: this machine has all of it")
    say(f"cd {shlex.quote(str(plan.cwd))} && {shlex.join(plan.command)}")


def document(sessions: Sessions, plan: ResumePlan) -> dict[str, object]:
    """The same for programs."""
    head = plan.head
    return {
        "tool": head.tool,
        "session": plan.session.own,
        "of": head.session,
        "device": head.device,
        "device_name": sessions.index.device_name(head.device),
        "title": head.title,
        "relation": plan.main.compared.relation.value if not plan.forked else "forked",
        "folder": str(plan.cwd),
        "writes": [{"file": str(each.path), "bytes": each.compared.new_bytes} for each in plan.written],
        "kept": [str(path) for path in plan.kept],
        "command": plan.command,
        "installed": shutil.which(plan.tool.program) is not None,
        "remarks": remarks(sessions, plan),
    }
