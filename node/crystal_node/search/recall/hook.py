"""What Claude Code gives to a hook, and what it takes back: JSON both ways, tolerant of what later versions add."""

from enum import StrEnum

from msgspec import MsgspecError, Struct, json

INPUT_BYTES_MAX = 1024 * 1024


class HookEvent(StrEnum):
    """The events at which something is recalled, by Claude Code's names."""

    START = "SessionStart"
    PROMPT = "UserPromptSubmit"


class HookInput(Struct, frozen=True):
    """What a hook was told. ``source`` (startup, resume, clear, compact) is a session's start's, ``prompt`` a prompt's."""

    hook_event_name: str = ""
    session_id: str = ""
    cwd: str = ""
    source: str = ""
    prompt: str = ""


class Recalled(Struct, frozen=True):
    """``text`` goes before the agent, ``line`` to its person; "" for neither. ``ids``: the records in it, and ``session`` which
    session has them once it is told."""

    text: str = ""
    line: str = ""
    session: str = ""
    ids: tuple[str, ...] = ()


NOTHING = Recalled()


def read_input(data: bytes) -> HookInput | None:
    """None for what no hook of these moments says."""
    try:
        found = json.decode(data, type=HookInput)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.hook_event_name in set(HookEvent) else None


def output(moment: str, recalled: Recalled) -> bytes:
    """What the hook prints; nothing at all where there is nothing to say."""
    if not (recalled.text or recalled.line):
        return b""
    document: dict[str, object] = {}
    if recalled.text:
        document["hookSpecificOutput"] = {"hookEventName": moment, "additionalContext": recalled.text}
    if recalled.line:
        document["systemMessage"] = recalled.line
    return json.encode(document) + b"\n"
