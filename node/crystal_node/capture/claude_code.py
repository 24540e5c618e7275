"""The adapter for Claude Code's transcripts.

``<root>/projects/<folder>/<session>.jsonl`` holds one record a line; sub-agents have their own files below the session's.
Kept are the words of the person and the model, and the model's thinking. Tool calls and their results, the tool's own
records, mark-up, and the summary that a compaction writes into the person's mouth are not. The format changes without
notice: unknown records are counted and stepped over, known ones may lack any field.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from crystal_core.chunking import split_message
from crystal_mirror.operations import NAME_CHARS_MAX, OPERATION_BYTES_MAX, PIECES_MAX, Capture, Piece
from crystal_node.capture.adapter import Counts, Found, Hides, Reading
from crystal_node.capture.cleaning import clean
from crystal_node.capture.follow import FileState, LineReader
from crystal_node.capture.project import project_name, repository_name
from crystal_node.capture.redact import redact

OPERATION_TEXT_BYTES = OPERATION_BYTES_MAX * 3 // 4
"""UTF-8 bytes of text in one operation, ids and encoding apart."""
EARLIEST_MS = 946_684_800_000
"""Moments before 2000 or after 2200 are taken for unknown."""
LATEST_MS = 7_258_118_400_000

_SPOKEN = frozenset({"user", "assistant"})
_SESSION_FILE = re.compile(r"[^/\\]{1,255}\.jsonl")


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None


class _Record(msgspec.Struct):
    type: str = ""
    uuid: str | None = None
    session: str | None = msgspec.field(name="sessionId", default=None)
    timestamp: str | None = None
    cwd: str | None = None
    is_meta: bool | None = msgspec.field(name="isMeta", default=None)
    is_sidechain: bool | None = msgspec.field(name="isSidechain", default=None)
    is_summary: bool | None = msgspec.field(name="isCompactSummary", default=None)
    message: _Message | None = None


_decoder = msgspec.json.Decoder(_Record)


@dataclass(frozen=True, slots=True)
class _Place:
    """What the pieces of one operation have in common."""

    session: str
    project: str
    repository: str


class ClaudeCode:
    """See the module. ``root`` is Claude Code's folder (``~/.claude``), ``home`` the person's home folder."""

    name = "claude-code"

    def __init__(self, root: Path, home: Path) -> None:
        self._projects = root / "projects"
        self._home = home

    @property
    def folder(self) -> Path:
        """Where the transcripts are, to be watched."""
        return self._projects

    def discover(self) -> Iterator[Found]:
        problems: list[OSError] = []
        for folder, folders, files in os.walk(self._projects, onerror=problems.append):
            folders.sort()
            for name in sorted(files):
                path = Path(folder, name)
                if self.concerns(str(path)) and not path.is_symlink():
                    yield Found(path)
        for problem in problems:
            if not isinstance(problem, FileNotFoundError):
                yield Found(Path(problem.filename), f"cannot be looked into: {problem.strerror}")

    def concerns(self, path: str) -> bool:
        return _SESSION_FILE.fullmatch(Path(path).name) is not None and Path(path).is_relative_to(
            self._projects
        )

    def skip(self, path: Path) -> FileState:
        with LineReader(path, None) as reader:
            return reader.skip_to_end()

    def read(self, path: Path, state: FileState | None, *, agent: str, hides: Hides) -> Reading:
        counts = Counts()
        builder = _Builder(agent, self.name)
        with LineReader(path, state) as reader:
            if reader.restarted:
                counts.skipped["file replaced, read again"] += 1
            for line in reader.lines():
                if line.data is None:
                    counts.skipped["line too long"] += 1
                    continue
                record = _parse(line.data, counts)
                if record is None:
                    continue
                self._take(record, path, builder, counts, hides)
            return Reading(builder.finish(), reader.state(), counts, reader.more)

    def _take(self, record: _Record, path: Path, builder: "_Builder", counts: Counts, hides: Hides) -> None:
        reason = _not_spoken(record)
        if reason:
            counts.skipped[reason] += 1
            return
        moment = milliseconds(record.timestamp)
        if hides(moment):
            counts.skipped["private"] += 1
            return
        texts = _texts(record, counts)
        if not texts:
            return
        cwd = record.cwd or ""
        place = _Place(
            session=(record.session or _session_of(path))[:NAME_CHARS_MAX],
            project=project_name(cwd, self._home),
            repository=repository_name(cwd),
        )
        message = (record.uuid or "")[:NAME_CHARS_MAX]
        counts.messages += 1
        for role, text in texts:
            redacted = redact(text)
            counts.redacted.update(redacted.counts)
            speaker = f"subagent-{role}" if record.is_sidechain else role
            for part, piece in enumerate(split_message(redacted.text)):
                builder.add(place, Piece(piece, speaker, moment, message, part))


class _Builder:
    """Gathers pieces into operations: one place each, within the limits, in the order of the transcript."""

    def __init__(self, agent: str, source: str) -> None:
        self._agent, self._source = agent, source
        self._done: list[Capture] = []
        self._place: _Place | None = None
        self._pieces: list[Piece] = []
        self._bytes = 0

    def add(self, place: _Place, piece: Piece) -> None:
        size = len(piece.text.encode()) + 256
        full = len(self._pieces) >= PIECES_MAX or self._bytes + size > OPERATION_TEXT_BYTES
        if self._pieces and (place != self._place or full):
            self._flush()
        self._place = place
        self._pieces.append(piece)
        self._bytes += size

    def finish(self) -> list[Capture]:
        if self._pieces:
            self._flush()
        return self._done

    def _flush(self) -> None:
        place = self._place
        assert place is not None, "pieces have a place"
        self._done.append(
            Capture(
                self._agent, place.session, place.project, place.repository, self._source, tuple(self._pieces)
            )
        )
        self._pieces, self._bytes = [], 0


def milliseconds(timestamp: str | None) -> int:
    """Milliseconds since 1970 of an ISO 8601 moment, taken for UTC if it names no zone; 0 if it is none or absurd."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
        value = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return value if EARLIEST_MS <= value <= LATEST_MS else 0


def _parse(line: bytes, counts: Counts) -> _Record | None:
    line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        return None
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        counts.skipped["record of unknown form"] += 1
        return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        # Slower and more forgiving: bytes that are no UTF-8, and halves of surrogate pairs.
        return msgspec.convert(json.loads(line.decode("utf-8", "replace")), _Record)
    except msgspec.ValidationError:
        counts.skipped["record of unknown form"] += 1
    except (ValueError, RecursionError):
        counts.skipped["line is not JSON"] += 1
    return None


def _not_spoken(record: _Record) -> str:
    """Why a record holds nobody's words, or ""."""
    if record.type not in _SPOKEN:
        return (
            f"record {record.type[:40]}"
            if record.type.isidentifier() or "-" in record.type
            else "record of unknown form"
        )
    if record.is_meta:
        return "meta"
    if record.is_summary:
        return "compaction summary"
    return "" if record.message is not None else "record of unknown form"


def _texts(record: _Record, counts: Counts) -> list[tuple[str, str]]:
    """The record's words by role, cleaned; what is left out is counted."""
    assert record.message is not None, "checked before"
    content = record.message.content
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    )
    spoken: dict[str, list[str]] = {}
    for block in blocks:
        kind = block.get("type")
        role = "thinking" if kind == "thinking" else record.type
        text = (
            block.get("thinking" if kind == "thinking" else "text") if kind in ("text", "thinking") else None
        )
        if not isinstance(text, str):
            counts.skipped[f"block {kind}" if kind in _OTHER_BLOCKS else "block of unknown form"] += 1
            continue
        cleaned = clean(_well_formed(text))
        if cleaned:
            spoken.setdefault(role, []).append(cleaned)
        else:
            counts.skipped["mark-up only"] += 1
    return [(role, "\n\n".join(texts)) for role, texts in spoken.items()]


_OTHER_BLOCKS = frozenset(
    {"tool_use", "tool_result", "image", "document", "redacted_thinking", "server_tool_use"}
)


def _well_formed(text: str) -> str:
    """The text with lone surrogates replaced: they are no characters and have no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _session_of(path: Path) -> str:
    """The session that a file belongs to, from its place: a sub-agent's file stands below its session's folder."""
    return path.parent.parent.name if path.parent.name == "subagents" else path.stem
