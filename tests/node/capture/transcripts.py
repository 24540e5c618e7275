"""Transcripts for tests: a Claude Code folder to write into, and its records."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import crystal_node
from crystal_mirror.operations import Capture
from crystal_node.capture.adapter import TranscriptReading
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.line_reader import FileState

SAMPLE = Path(crystal_node.__file__).parent / "surfaces" / "demo" / "samples" / "tidewatch.jsonl"
FIXTURES = Path(__file__).parent / "fixtures"
SESSION = "6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61"

Hides = Callable[[int], bool]
Said = tuple[str, str]


def nothing(_moment: int) -> bool:
    """Hides nothing."""
    return False


class Tool:
    """A Claude Code folder with one session file."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".claude"
        self.path = self.root / "projects" / "-home-mara-src-tidewatch" / f"{SESSION}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.adapter = ClaudeCode(self.root, Path("/home/mara"))

    def write(self, *records: dict[str, Any] | bytes) -> None:
        """Appends records, or bytes as they are."""
        with self.path.open("ab") as file:
            for record in records:
                file.write(record if isinstance(record, bytes) else line(record))

    def read(self, state: FileState | None = None, hides: Hides = nothing) -> TranscriptReading:
        """One pass."""
        return self.adapter.read(self.path, state, agent="cc-mini", hides=hides)

    def read_all(
        self, state: FileState | None = None, hides: Hides = nothing
    ) -> tuple[list[Capture], FileState]:
        """Pass after pass, to the end."""
        operations: list[Capture] = []
        while True:
            reading = self.read(state, hides)
            operations += reading.operations
            state = reading.state
            if not reading.more:
                return operations, state


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def user(content: object, number: int = 1, **more: object) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "sessionId": SESSION,
        "timestamp": "2026-11-17T09:12:04.118Z",
        "cwd": "/home/mara/src/tidewatch",
        "message": {"role": "user", "content": content},
        **more,
    }


def assistant(*blocks: dict[str, Any], number: int = 1, **more: object) -> dict[str, Any]:
    message = {"role": "assistant", "model": "claude-sonnet", "content": list(blocks)}
    return {**user("", number), "type": "assistant", "message": message, **more}


def said(operations: Iterable[Capture]) -> list[Said]:
    """Role and text of all pieces, in order."""
    return [(piece.role, piece.text) for operation in operations for piece in operation.pieces]
