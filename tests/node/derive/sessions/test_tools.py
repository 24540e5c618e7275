"""Which file is a session's transcript, and what lies beside it."""

from pathlib import Path

import pytest

from crystal_node.derive.sessions.tools import session_of, side_root

ID = "0b6e8476-1f2f-4087-b614-062a5a99d83f"
ROOT = Path("/home/ada/.tool")


@pytest.mark.parametrize(
    ("tool", "path", "session"),
    [
        ("claude-code", f"projects/-home-ada/{ID}.jsonl", ID),
        ("claude-code", f"projects/-home-ada/{ID}/subagents/agent-1.jsonl", None),
        ("codex", f"sessions/2026/11/22/rollout-2026-11-22T13-24-15-{ID}.jsonl", ID),
        ("codex", f"archived_sessions/rollout-2026-11-22T13-24-15-{ID}.jsonl", ID),
        ("codex", f"sessions/2026/11/22/rollout-2026-11-22T13-24-15-{ID}.jsonl.zst", ID),
        ("codex", f"archived_sessions/rollout-2026-11-22T13-24-15-{ID}.jsonl.zst", ID),
        ("codex", f"archived_sessions/rollout-2026-11-22T13-24-15-{ID}.jsonl.zst.tmp", None),
        ("codex", "history.jsonl", None),
        ("openclaw", "agents/main/sessions/one.jsonl", "one"),
        ("openclaw", "agents/main/agent/openclaw-agent.sqlite", None),
        ("qwen-code", f"projects/p/chats/{ID}.jsonl", ID),
        ("qwen-code", f"projects/p/chats/archive/{ID}.jsonl", ID),
        ("qwen-code", f"projects/p/subagents/{ID}/agent-1.jsonl", None),
        (
            "gemini-cli",
            "tmp/p/chats/session-2026-11-22T13-24-0b6e8476.jsonl",
            "session-2026-11-22T13-24-0b6e8476",
        ),
        ("gemini-cli", f"tmp/p/chats/{ID}/one.jsonl", None),
        ("cline", f"projects/-home-ada/{ID}.jsonl", None),
    ],
)
def test_a_transcript_is_known_by_its_place(tool: str, path: str, session: str | None) -> None:
    assert session_of(tool, ROOT, ROOT / path) == session


def test_what_lies_beside_a_transcript() -> None:
    claude = ROOT / "projects/p" / f"{ID}.jsonl"
    assert side_root("claude-code", claude, ID) == ROOT / "projects/p" / ID
    archived = ROOT / "projects/p/chats/archive" / f"{ID}.jsonl"
    assert side_root("qwen-code", archived, ID) == ROOT / "projects/p/subagents" / ID
    assert side_root("gemini-cli", ROOT / "tmp/p/chats/session-1.jsonl", ID) == ROOT / "tmp/p/chats" / ID
    assert side_root("codex", ROOT / "sessions/x.jsonl", ID) is None
