"""Which files of a tool belong to a session, and where they lie beside its transcript.

===========  ==========================================================  ============================================
tool         transcript                                                  files beside it (``side_root``)
===========  ==========================================================  ============================================
claude-code  ``projects/<slug>/<id>.jsonl``                              ``projects/<slug>/<id>/``
codex        ``sessions/<y>/<m>/<d>/rollout-<time>-<id>.jsonl``, or      none
             in ``archived_sessions``; ``.jsonl.zst`` if compressed
gemini-cli   ``tmp/<project>/chats/session-<time>-<short id>.jsonl``     ``tmp/<project>/chats/<id>/``
openclaw     ``agents/<agent>/sessions/<id>.jsonl``; in a database       none
             ``agents/<agent>/agent/openclaw-agent.sqlite/<id>.jsonl``
qwen-code    ``projects/<slug>/chats/<id>.jsonl``, or in ``archive``     ``projects/<slug>/subagents/<id>/``
             below ``chats``
===========  ==========================================================  ============================================

OpenClaw's database holds the lines of many sessions: the path of one of them below it names no file
(``capture.openclaw_database``). Not copied: Gemini CLI's documents from before spring 2026.
"""

import re
from pathlib import Path

from crystal_node.capture import openclaw_database
from crystal_node.capture.folders import below

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CODEX = re.compile(rf"rollout-.*?-({_UUID})\.jsonl(?:\.zst)?")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,199})\.jsonl")
_GEMINI = re.compile(r"session-[^/]{1,200}\.jsonl")


def session_of(tool: str, root: Path, path: Path) -> str | None:
    """The id of the session whose transcript this file is, by its place below the tool's folder ``root``; None if it is none.

    Gemini CLI writes several files for a session that was resumed: each is one of its own here, under its name without ending.
    """
    named = below(str(path), root)
    match tool, named:
        case "claude-code", ("projects", _, name):
            found = _NAMED.fullmatch(name)
        case ("codex", ("sessions", _, _, _, name)) | ("codex", ("archived_sessions", name)):
            found = _CODEX.fullmatch(name)
        case ("openclaw", ("agents", _, "sessions", name)) | (
            "openclaw",
            ("agents", _, "agent", openclaw_database.STORE_NAME, name),
        ):
            found = _NAMED.fullmatch(name)
        case ("qwen-code", ("projects", _, "chats", name)) | (
            "qwen-code",
            ("projects", _, "chats", "archive", name),
        ):
            found = _NAMED.fullmatch(name)
        case "gemini-cli", ("tmp", _, "chats", name) if _GEMINI.fullmatch(name):
            return name.removesuffix(".jsonl")
        case _:
            return None
    return found[1] if found else None


def side_root(tool: str, transcript: Path, session: str) -> Path | None:
    """The folder of a session's other files, to which the paths in ``Head.side`` are relative; None if the tool has none.
    ``session``: the tool's own id (``Head.tool_session``)."""
    match tool:
        case "claude-code":
            return transcript.with_suffix("")
        case "gemini-cli":
            return transcript.parent / session
        case "qwen-code":
            chats = transcript.parent.parent if transcript.parent.name == "archive" else transcript.parent
            return chats.parent / "subagents" / session
        case _:
            return None


def transcript_beside(tool: str, root: Path, path: Path) -> Path | None:
    """The transcript that a changed file lies beside, as far as its place tells; None for others."""
    match tool, below(str(path), root):
        case "claude-code", ("projects", slug, session, _, *_):
            return root / "projects" / slug / f"{session}.jsonl"
        case "qwen-code", ("projects", slug, "subagents", session, *_):
            return root / "projects" / slug / "chats" / f"{session}.jsonl"
        case _:
            return None
