"""One message as the prototype's devices send it and keep it in staging: `{text, role, timestamp, sessionId}`."""

import re
from typing import Any

from crystal_node.capture.imported import IMPORTED_SOURCE
from crystal_node.capture.json_values import as_text
from crystal_node.capture.messages import derived_id, moment_of
from crystal_node.capture.private_words import without_private
from crystal_node.safekeeping.portable.export_format import PieceRecord

NAME_CHARS_MAX = 256
ROLES = ("user", "assistant", "system", "thinking")
_SESSION = re.compile(r"(?:cc:|[a-z-]+:(?=[0-9a-f]{8}-[0-9a-f]{4}-))(.+)", re.DOTALL)
"""A session as its tool names it stands behind the prototype's name of the tool."""


def tools_session(named: str) -> str:
    """The session's name as its tool has it."""
    found = _SESSION.fullmatch(named)
    return found[1] if found else named


def message_record(message: dict[str, Any], agent: str, session: str = "") -> PieceRecord | None:
    """The record of a message; None if it has no text, or a private one only. ``session``: for a message that names none.

    The same message gets the same id, whichever way it came.
    """
    text, role = as_text(message.get("text")), as_text(message.get("role"))
    if text is None or not text.strip():
        return None
    named = (as_text(message.get("sessionId")) or session)[:NAME_CHARS_MAX]
    moment = as_text(message.get("timestamp")) or message.get("timestamp")
    spoken = without_private(text) if role in (None, "user") else text
    if not spoken.strip():
        return None
    return PieceRecord(
        text=spoken,
        agent=agent,
        session=tools_session(named),
        role=role if role in ROLES else "user",
        message=derived_id(IMPORTED_SOURCE, named, str(role), str(moment), text),
        created_at=moment_of(moment),
        source=IMPORTED_SOURCE,
    )


def understood(message: dict[str, Any]) -> bool:
    """Whether a message has a text, be it empty."""
    return as_text(message.get("text")) is not None
