"""``crystal sessions restore``: sessions that a tool has deleted, or that a lost machine had, are put back."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import UsageError, describe
from crystal_node.base.given_paths import given_path
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line, size
from crystal_node.derive.resume.files import Relation
from crystal_node.derive.resume.plan import carry_out, plan_resume
from crystal_node.derive.resume.projects import here
from crystal_node.derive.resume.rows import SessionRow
from crystal_node.derive.resume.sessions import Sessions, Wanted
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.resume import Project, Tool

_TITLE_CHARS = 100
_ID_CHARS = 200

RestoredSession = Annotated[
    str | None, typer.Argument(metavar="ID", help="The session's id or its beginning.")
]
All = Annotated[bool, typer.Option("--all", help="All sessions of all machines.")]
Target = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="FOLDER",
        help="Write below this folder, in one for each tool, instead of the tools' own.",
    ),
]


def restore(
    session: RestoredSession = None,
    project: Project = "",
    tool: Tool = "",
    everything: All = False,
    to: Target = None,
    as_json: Json = False,
) -> None:
    """Put back sessions that a tool deleted or a lost machine had.

    They lie where the tool looks for them in the project's folder here, or in the folder that they were held in. What the tool
    has is continued, never replaced; what went another way here is left alone.

    Example:

        crystal sessions restore --project tide-gauge
    """
    if (session is not None) + bool(project) + everything != 1:
        raise UsageError("say which sessions", hint="Give one ID, or --project PROJECT, or --all.")
    sessions = Sessions(resolve())
    wanted = Wanted(project, tool, "", sessions)
    if to is not None:
        root = given_path(to)
        sessions.tools = {name: type(each)(root / name) for name, each in sessions.tools.items()}
    if session is not None:
        rows = [sessions.named(session)]
    else:
        sessions.refresh()
        rows = [row for row in sessions.index.rows() if wanted.takes(row)]
    written: list[dict[str, object]] = []
    skipped: list[dict[str, object]] = []
    failures: list[CrystalError | OSError] = []
    for row in rows:
        about: dict[str, object] = {"session": row.session, "tool": row.tool, "title": row.title}
        try:
            files, bytes_written, why_not = _restored(sessions, row)
        except (CrystalError, OSError) as error:
            failures.append(error)
            skipped.append(about | {"why": describe(error).message})
            continue
        if files:
            written.append(about | {"files": [str(path) for path in files], "bytes": bytes_written})
        else:
            skipped.append(about | {"why": why_not})
    if failures and not written:
        raise failures[0]
    if as_json:
        emit({"restored": written, "left": skipped})
        _end(failures)
        return
    for each in written:
        say(
            f"{one_line(str(each['session']), _ID_CHARS)}  {one_line(str(each['title']) or 'untitled', _TITLE_CHARS)}"
        )
    total = sum(size_of for each in written if isinstance(size_of := each["bytes"], int))
    note(f"Restored {counted(len(written), 'session')} ({size(total)}); left {len(skipped)} as they are.")
    reasons = Counter(str(each["why"]) for each in skipped)
    reasons.subtract(describe(failure).message for failure in failures)
    for why, count in reasons.items():
        if count > 0:
            note(f"  {count}: {why}.")
    for failure in failures:
        note(f"  {describe(failure).message}. {describe(failure).hint}")
    _end(failures)


def _end(failures: list[CrystalError | OSError]) -> None:
    """What could not be restored is told by the exit code, too, once the others are said."""
    if failures:
        raise typer.Exit(describe(failures[0]).exit_code)


def _restored(sessions: Sessions, row: SessionRow) -> tuple[list[Path], int, str]:
    """The files that were written and their bytes; if none, why. Raises CrystalError, OSError."""
    head = sessions.head(row)
    folder = sessions.projects.find(head, sessions.own(head)) or here(head.cwd, sessions.settings.person_home)
    if folder is None:
        raise sessions.projects.unknown(head)
    plan = plan_resume(sessions.index_file.copies, head, sessions.tools[head.tool], folder)
    if plan.forked:
        return [], 0, "this machine's own session went another way; `crystal resume` makes a fork of it"
    if not plan.written:
        longer = plan.main.compared.relation is Relation.AHEAD
        return [], 0, "the tool has more of it" if longer else "the tool has it"
    return carry_out(plan, sessions.index_file.copies, sessions.aside), plan.new_bytes, ""
