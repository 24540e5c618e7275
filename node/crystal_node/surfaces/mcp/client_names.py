"""Whose memory a client keeps: its own agent's, by the name that it gives of itself.

Claude Code's is this device's agent, as its conversations are. Codex and Gemini CLI call themselves after the part of them that
speaks the protocol.
"""

import re

from crystal_node.base.agent_names import CLAUDE_CODE, agent_id

_SPEAKING_PART = re.compile(r"-mcp-client\b.*|-mcp$")
_NAMELESS = frozenset({"", "mcp"})
"""What the SDK's client calls itself where a program says nothing."""


def agent_of_client(name: str) -> str:
    """The id of the agent; "" for this device's. ``name`` is the client's, and comes from anywhere."""
    plain = _SPEAKING_PART.sub("", "-".join(name.lower().split()))
    return "" if plain in _NAMELESS or plain.startswith(CLAUDE_CODE) else agent_id(plain, "")
