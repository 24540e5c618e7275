"""Input and output of a hook of an AI tool: JSON both ways, tolerant of fields that later versions add."""

from enum import StrEnum
from typing import Any

from msgspec import MsgspecError, Struct, json


class HookEvent(StrEnum):
    """The events at which something is recalled, as Claude Code, Codex and Qwen Code name them."""

    START = "SessionStart"
    PROMPT = "UserPromptSubmit"
    FAILURE = "PostToolUseFailure"
    SUBAGENT = "SubagentStart"


_EVENTS = {event.value: event for event in HookEvent} | {"BeforeAgent": HookEvent.PROMPT}
"""By the names of all tools: Gemini CLI's own is "BeforeAgent"."""


class HookInput(Struct, frozen=True):
    """The input of a hook. ``source`` (startup, resume, clear, compact) is a session's start's, ``prompt`` a prompt's,
    ``agent_id`` a sub-agent's; a failed call's are its tool, its arguments, the error, and whether its person stopped it."""

    hook_event_name: str = ""
    session_id: str = ""
    cwd: str = ""
    source: str = ""
    prompt: str = ""
    agent_id: str = ""
    tool_name: str = ""
    tool_input: Any = None
    error: str = ""
    is_interrupt: bool = False

    @property
    def event(self) -> HookEvent | None:
        return _EVENTS.get(self.hook_event_name)


class Given(Struct, frozen=True):
    """A record that an agent is given: the text's id, why it was chosen, and what the search says of it."""

    id: str
    why: str
    relevance: float = 0.0
    score: float = 0.0


class Recalled(Struct, frozen=True):
    """``text`` is for the agent, ``line`` for its person; "" if there is none.

    ``given``: the records in it; ``session``: the session that has them then. ``prompt``: of what the person asked, the first
    words, ``tokens``: what the text costs, estimated; ``mode``: "hybrid" or "keyword", "" where nothing was searched for.
    ``forget_mark``: the memory's, as it was searched."""

    text: str = ""
    line: str = ""
    event: str = ""
    session: str = ""
    mode: str = ""
    prompt: str = ""
    given: tuple[Given, ...] = ()
    tokens: int = 0
    forget_mark: str = ""

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.given]


NOTHING = Recalled()


def read_input(data: bytes) -> HookInput | None:
    """The input; None if it is not of one of these events."""
    try:
        found = json.decode(data, type=HookInput)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if found.event is None else found


COPILOT = "copilot-cli"
"""Reads what a hook adds from the answer itself."""


def output(moment: str, recalled: Recalled, tool: str = "") -> bytes:
    """What the hook prints, in the form that this tool reads (Claude Code's, if none is named). Empty where there is nothing
    to say."""
    if not (recalled.text or recalled.line):
        return b""
    document: dict[str, object] = {}
    if tool == COPILOT:
        return json.encode({"additionalContext": recalled.text}) + b"\n" if recalled.text else b""
    if recalled.text:
        document["hookSpecificOutput"] = {"hookEventName": moment, "additionalContext": recalled.text}
    if recalled.line:
        document["systemMessage"] = recalled.line
    return json.encode(document) + b"\n"
