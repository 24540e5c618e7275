"""The hooks in Claude Code's settings: at which moments, with which command, and which ones are ours.

Each hook only touches a file that the agent watches. It reads nothing, says nothing, and succeeds whatever happens: a hook
that fails could keep a prompt from its program. ``async`` where the program goes on anyway; at a session's end it must not,
since whatever runs then is ended with the program.
"""

import os
import shlex
from enum import StrEnum
from pathlib import Path

from crystal_node.errors import LocalStorage
from crystal_node.hooks.document import members
from crystal_node.hooks.program import program, words_after

TIMEOUT_SECONDS = 5
_EVEN_IF_GONE = " || true"
"""After Crystal was removed without `crystal uninstall`, the shell's "not found" must not be a failed hook."""


class HookEvent(StrEnum):
    """The moments, by Claude Code's names."""

    SESSION_START = "SessionStart"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    STOP = "Stop"
    PRE_COMPACT = "PreCompact"
    SESSION_END = "SessionEnd"


def command(home: Path) -> str:
    """The shell command that wakes the agent of that home. Raises LocalStorage: no settings file can hold its path."""
    if os.fsencode(home).decode("utf-8", "replace") != str(home):
        raise LocalStorage(f"the path {str(home)!r} is no UTF-8", hint="Use a home whose path is.")
    return shlex.join([*program(), "nudge", "--home", str(home)]) + _EVEN_IF_GONE


def hook(event: HookEvent, home: Path) -> dict[str, object]:
    """The hook of one event."""
    entry: dict[str, object] = {"type": "command", "command": command(home), "timeout": TIMEOUT_SECONDS}
    return entry if event is HookEvent.SESSION_END else entry | {"async": True}


def is_ours(entry: object, home: Path, default_home: Path) -> bool:
    """Whether a hook wakes the agent of that home, whatever the program's place was when it came there.

    A command that names no home means the default one.
    """
    given = members(entry).get("command")
    words = words_after(given) if isinstance(given, str) else None
    if not words or words[0] != "nudge":
        return False
    named = default_home
    if words[1:2] == ["--home"] and len(words) > 2:
        named = default_home.parent / words[2].removeprefix("~/")  # an absolute path stays what it is
    return named == home
