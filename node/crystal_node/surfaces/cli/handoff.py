"""``crystal handoff``: another tool begins with what a session was about."""

import asyncio
import shutil
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crystal_core.llm.port import LlmError
from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.base.settings import Settings, resolve
from crystal_node.derive.resume.forgetting import handed_over, remove_old
from crystal_node.derive.resume.handoff import Handoff, summarised
from crystal_node.derive.resume.sessions import Sessions, Wanted
from crystal_node.derive.sessions.layout import Head
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.resume import (
    Folder,
    Last,
    Machine,
    Project,
    SessionId,
    ToolMissing,
    chosen_row,
    project_folder,
    start,
)
from crystal_node.surfaces.mcp.budget import TOKENS_MAX
from crystal_node.surfaces.mcp.handoff_text import HANDOFF_TOKENS, HANDOFF_TOKENS_MIN, handoff_text


class Target(StrEnum):
    """The tools that can be started with a prompt."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    QWEN = "qwen"
    OPENCLAW = "openclaw"

    @property
    def tool(self) -> str:
        """As the memory calls it."""
        return {"claude": "claude-code", "gemini": "gemini-cli", "qwen": "qwen-code"}.get(
            self.value, self.value
        )


To = Annotated[Target, typer.Option("--to", metavar="TOOL", help="claude, codex, gemini, qwen or openclaw.")]
Tokens = Annotated[
    int,
    typer.Option(
        "--tokens", metavar="N", min=HANDOFF_TOKENS_MIN, max=TOKENS_MAX, help="What it may cost in tokens."
    ),
]
Print = Annotated[bool, typer.Option("--print", help="Print what the tool would be told, and start nothing.")]


def run(
    to: To,
    session: SessionId = None,
    last: Last = False,
    project: Project = "",
    device: Machine = "",
    folder: Folder = None,
    tokens: Tokens = HANDOFF_TOKENS,
    only_print: Print = False,
    as_json: Json = False,
) -> None:
    """Hand a session over to another tool, with what it needs.

    It is told the goal, decisions, files written, what failed, what is open, and the last turns. Where summary_mode is llm, the
    configured language model adds a summary.

    Example:

        crystal handoff --last --to codex
    """
    settings = resolve()
    sessions = Sessions(settings)
    row = chosen_row(sessions, session, Wanted(project, "", device, sessions), last=last)
    if row is None:
        return
    head = sessions.head(row)
    found = sessions.handoff(head)
    found.summary = _summary(settings, found)
    text = handoff_text(head, sessions.index.device_name(head.device), found, tokens)
    if as_json:
        emit({"session": head.session, "tool": head.tool, "to": to.tool, "text": text})
        return
    if only_print:
        say(text)
        return
    tool = sessions.tools[to.tool]
    program = shutil.which(tool.program)
    if program is None:
        raise ToolMissing(
            f"{tool.title} (`{tool.program}`) is not installed on this machine",
            hint="Install it, or name another with --to.",
        )
    cwd = project_folder(sessions, head, folder, may_ask=True)
    file = _kept(settings, head, text)
    note(f"{tool.title} is told what is in {file}.")
    start(program, tool.fresh(file), cwd)


def _summary(settings: Settings, found: Handoff) -> str:
    """A model's, where the person has chosen that models summarise."""
    if settings.dreams.summary_mode != "llm":
        return ""
    from crystal_node.models.llm.discovery import find_llm

    try:
        llm = find_llm(settings)
    except LlmError as error:
        note(f"Without a summary: {error}.")
        return ""
    return "" if llm is None else asyncio.run(summarised(llm, found))


def _kept(settings: Settings, head: Head, text: str) -> Path:
    """A file for the tool to read: other users see what stands on a command line. Old ones are removed."""
    folder = handed_over(settings.home)
    try:
        folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        remove_old(settings.home)
        # Tools are given its folder to read: no other session's file is in there.
        file = folder / f"{head.tool}-{time.time_ns()}" / "session.md"
        file.parent.mkdir(mode=DIRECTORY_MODE)
        write_private(file, text.encode())
    except OSError as error:
        raise LocalStorage(f"{folder} cannot be written: {error.strerror}") from error
    return file
