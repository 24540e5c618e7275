"""The adapter for Claude Code's transcripts.

``<root>/projects/<folder>/<session>.jsonl`` holds one record a line; sub-agents have their own files below the session's.
Kept are the words of the person and the model, and the model's thinking. Tool calls and their results, the tool's own
records, mark-up, and the summary that a compaction writes into the person's mouth are not. The format changes without
notice: unknown records are counted and stepped over, known ones may lack any field.

Resuming a session copies its history into a new file. The copies have the same texts, so they become no new chunks; where the
copy has a session id of its own, that session is kept as one more place that the text came from.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import LineFault, SkippedRecord, TranscriptMessage, bounded, milliseconds
from crystal_node.capture.records import BlankLine, ClaudeRecord, parse_line
from crystal_node.capture.words import cleaned_texts, words_of

_KNOWN = frozenset(
    {"user", "assistant", "summary", "system", "file-history-snapshot", "attachment", "progress"}
)


class ClaudeCode(LineAdapter):
    """See the module. ``root`` is Claude Code's folder (``~/.claude``), ``home`` the person's home folder."""

    name = "claude-code"
    title = "Claude Code"

    def __init__(self, root: Path, home: Path, agent: str = "claude-code") -> None:
        super().__init__(home)
        self._projects = root / "projects"
        self._agent = agent

    @property
    def folder(self) -> Path:
        """Where the transcripts are, to be watched."""
        return self._projects

    @property
    def folders(self) -> list[Path]:
        return [self._projects]

    def discover(self) -> Iterator[FoundTranscript]:
        yield from files_below(self._projects, _is_transcript)

    def concerns(self, path: str) -> bool:
        return _is_transcript(Path(path).name) and below(path, self._projects) is not None

    def agent_of(self, path: Path) -> str:
        return self._agent

    def former(self, path: Path) -> Path | None:
        return None

    def recognises(self, record: dict[str, Any]) -> bool:
        return record.get("type") in _KNOWN and (
            "sessionId" in record or "uuid" in record or "leafUuid" in record
        )

    def said(
        self, line: bytes, context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        parsed = parse_line(line)
        if isinstance(parsed, BlankLine):
            return
        if isinstance(parsed, LineFault):
            yield SkippedRecord(parsed.value, damaged=True)
            return
        words = words_of(parsed)
        if isinstance(words, SkippedRecord):
            yield words
            return
        skipped: Counter[str] = Counter()
        spoken = _spoken(parsed, cleaned_texts(words, skipped), at.path)
        yield spoken
        for reason, count in skipped.items():
            for _ in range(count):
                yield SkippedRecord(reason)


def _spoken(record: ClaudeRecord, texts: dict[str, str], path: Path) -> TranscriptMessage:
    return TranscriptMessage(
        message=record.uuid or "",
        session=bounded(record.session) or _session_of(path),
        texts=texts,
        moment=milliseconds(record.timestamp),
        cwd=record.cwd or "",
        subagent=bool(record.is_sidechain),
    )


def _is_transcript(name: str) -> bool:
    return name.endswith(".jsonl") and len(name) > len(".jsonl")


def _session_of(path: Path) -> str:
    """The session that a file belongs to, from its place: a sub-agent's file stands below its session's folder."""
    return path.parent.parent.name if path.parent.name == "subagents" else path.stem
