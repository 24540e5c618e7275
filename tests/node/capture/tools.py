"""The tools for tests: their fixtures, adapters over a folder, and records as they write them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crystal_mirror.operations import Capture, Piece
from crystal_node.capture.adapter import Adapter, CaptureCounts, Hides, TranscriptReading
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.codex import Codex
from crystal_node.capture.copilot import CopilotCli
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.line_reader import OFFSET_MAX, FileState
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.qwen import QwenCode
from tests.node.capture.transcripts import FIXTURES, nothing

HOME = Path("/home/mara")
QUIET_NS = 2**62
"""A moment after which nothing was changed: every file has been quiet."""
SESSION = "6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61"

Said = tuple[str, str]


@dataclass(frozen=True)
class Tool:
    """One tool. ``path``: of a transcript, below its folder. ``header``: the lines that it begins with; ``message``: the n-th
    message of a conversation, saying a text."""

    name: str
    adapter: Callable[[Path], Adapter]
    path: str
    header: tuple[dict[str, Any], ...]
    message: Callable[[int, str], dict[str, Any]]

    def __str__(self) -> str:
        return self.name

    def line(self, number: int, text: str) -> bytes:
        return line(self.message(number, text))

    def begin(self) -> bytes:
        return b"".join(map(line, self.header))


def line(record: object) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _moment(number: int) -> str:
    return f"2026-02-06T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"


TOOLS = [
    Tool(
        "claude-code",
        lambda root: ClaudeCode(root, HOME, "cc-mini"),
        f"projects/-home-mara/{SESSION}.jsonl",
        (),
        lambda number, text: {
            "type": "user",
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "sessionId": SESSION,
            "timestamp": _moment(number),
            "cwd": "/home/mara/src",
            "message": {"role": "user", "content": text},
        },
    ),
    Tool(
        "openclaw",
        lambda root: OpenClaw(root, HOME),
        f"agents/main/sessions/{SESSION}.jsonl",
        ({"type": "session", "version": 3, "id": SESSION, "cwd": "/home/mara/src"},),
        lambda number, text: {
            "type": "message",
            "id": f"{number:08x}",
            "timestamp": _moment(number),
            "message": {"role": "user", "content": [{"type": "text", "text": text}]},
        },
    ),
    Tool(
        "codex",
        lambda root: Codex(root, HOME),
        f"sessions/2026/02/06/rollout-2026-02-06T00-00-00-{SESSION}.jsonl",
        (
            {
                "timestamp": _moment(0),
                "type": "session_meta",
                "payload": {"id": SESSION, "timestamp": _moment(0), "cwd": "/home/mara/src"},
            },
        ),
        lambda number, text: {
            "timestamp": _moment(number),
            "type": "event_msg",
            "payload": {"type": "user_message", "message": text},
        },
    ),
    Tool(
        "gemini-cli",
        lambda root: GeminiCli(root, HOME),
        "tmp/src/chats/session-2026-02-06T00-00-6f1d2c1e.jsonl",
        ({"sessionId": SESSION, "projectHash": "79b6", "startTime": _moment(0)},),
        lambda number, text: {
            "id": f"00000000-0000-4000-8000-{number:012d}",
            "timestamp": _moment(number),
            "type": "user",
            "content": [{"text": text}],
        },
    ),
    Tool(
        "qwen-code",
        lambda root: QwenCode(root, HOME),
        f"projects/-home-mara-src/chats/{SESSION}.jsonl",
        (),
        lambda number, text: {
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "sessionId": SESSION,
            "timestamp": _moment(number),
            "type": "user",
            "provenance": "real_user",
            "cwd": "/home/mara/src",
            "message": {"role": "user", "parts": [{"text": text}]},
        },
    ),
    Tool(
        "copilot-cli",
        lambda root: CopilotCli(root, HOME),
        f"session-state/{SESSION}/events.jsonl",
        (
            {
                "type": "session.start",
                "data": {"sessionId": SESSION, "context": {"cwd": "/home/mara/src"}},
                "id": "0",
                "timestamp": _moment(0),
            },
        ),
        lambda number, text: {
            "type": "user.message",
            "data": {"content": text, "transformedContent": f"<current_datetime/>{text}"},
            "id": f"00000000-0000-4000-8000-{number:012d}",
            "timestamp": _moment(number),
        },
    ),
    Tool(
        "drop",
        lambda root: DropFolder(root, HOME, "cc-mini"),
        f"lighthouse/{SESSION}.jsonl",
        (),
        lambda number, text: {"role": "user", "text": text, "timestamp": _moment(number)},
    ),
]


def fixture(tool: str, tmp_path: Path) -> Path:
    """A copy of a tool's folder as it looks on a person's machine."""
    root = tmp_path / tool
    shutil.copytree(FIXTURES / tool, root)
    return root


def read_all(
    adapter: Adapter,
    path: Path,
    state: FileState | None = None,
    *,
    hides: Hides = nothing,
    quiet_ns: int = -1,
) -> tuple[list[Capture], CaptureCounts, FileState]:
    """Pass after pass, to the end."""
    operations: list[Capture] = []
    counts = CaptureCounts()
    while True:
        reading: TranscriptReading = adapter.read(
            path, state, agent=adapter.agent_of(path), hides=hides, quiet_ns=quiet_ns
        )
        operations += reading.operations
        counts.add(reading.counts)
        state = reading.state
        if not reading.more:
            return operations, counts, state


def pieces(operations: list[Capture]) -> list[tuple[str, Piece]]:
    """Session and piece, in order."""
    return [(operation.session, piece) for operation in operations for piece in operation.pieces]


def rewound(state: FileState) -> FileState:
    """A state of a file that was stepped over and is read from its start: messages without a time stay out of all that it
    holds by then."""
    assert state.stepped_over
    return FileState(stepped_over=True, unsure_until=OFFSET_MAX, memo=state.memo)
