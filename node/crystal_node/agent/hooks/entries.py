"""The hooks in Claude Code's settings: at which moments, with which command, and which ones are ours.

Most hooks only touch a file that the agent watches: they read nothing and say nothing. Those at a session's start and at a
prompt recall besides (``recall``): the program takes what they print, so it waits for them. All succeed whatever happens: a
hook that fails could keep a prompt from its program. ``async`` where the program goes on anyway; at a session's end it must
not, since whatever runs then is ended with the program.
"""

import os
import shlex
from enum import StrEnum
from pathlib import Path

from crystal_node.agent.hooks.jsondocument import members
from crystal_node.agent.hooks.program import program, words_after
from crystal_node.base.errors import LocalStorage

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


RECALLING = frozenset({HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT})
"""The moments at which a hook has something to say."""
_WORDS = {False: ("nudge",), True: ("recall", "--hook")}


def command(home: Path, *, recalls: bool = False) -> str:
    """The shell command that wakes the agent of that home, and recalls. Raises LocalStorage: no settings file can hold its
    path."""
    if os.fsencode(home).decode("utf-8", "replace") != str(home):
        raise LocalStorage(f"the path {str(home)!r} is no UTF-8", hint="Use a home whose path is.")
    return shlex.join([*program(), *_WORDS[recalls], "--home", str(home)]) + _EVEN_IF_GONE


def hook(event: HookEvent, home: Path) -> dict[str, object]:
    """The hook of one event."""
    recalls = event in RECALLING
    entry: dict[str, object] = {
        "type": "command",
        "command": command(home, recalls=recalls),
        "timeout": TIMEOUT_SECONDS,
    }
    return entry if recalls or event is HookEvent.SESSION_END else entry | {"async": True}


def is_ours(entry: object, home: Path, default_home: Path) -> bool:
    """Whether a hook wakes the agent of that home, whatever the program's place was when it came there.

    A command that names no home means the default one.
    """
    given = members(entry).get("command")
    words = words_after(given) if isinstance(given, str) else None
    if not words or words[0] not in ("nudge", "recall"):
        return False
    named = default_home
    options = words[2:] if words[1:2] == ["--hook"] else words[1:]
    if options[:1] == ["--home"] and len(options) > 1:
        named = default_home.parent / options[1].removeprefix("~/")  # an absolute path stays what it is
    return named == home
