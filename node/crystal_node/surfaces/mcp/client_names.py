"""Whose memories a client's are: those of its own agent, which is found by the name that the client gives.

Claude Code's agent is this device's, as it is for its conversations. Codex and Gemini CLI give the name of the
part of them that speaks the protocol.
"""

import re

from crystal_node.base.agent_names import CLAUDE_CODE, agent_id

_SPEAKING_PART = re.compile(r"-mcp-client\b.*|-mcp$")
_NAMELESS = frozenset({"", "mcp"})
"""What the SDK's client calls itself if a program gives no name."""


def agent_of_client(name: str) -> str:
    """The id of the agent; "" for this device's. ``name`` is the client's, and comes from anywhere."""
    plain = _SPEAKING_PART.sub("", "-".join(name.lower().split()))
    return "" if plain in _NAMELESS or plain.startswith(CLAUDE_CODE) else agent_id(plain, "")
