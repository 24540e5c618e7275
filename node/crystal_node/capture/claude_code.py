"""The adapter for Claude Code's transcripts.

``<root>/projects/<folder>/<session>.jsonl`` holds one record a line; sub-agents have their own files below the session's.
Kept are the words of the person and the model, and the model's thinking. Tool calls and their results, the tool's own
records, mark-up, and the summary that a compaction writes into the person's mouth are not. The format changes without
notice: unknown records are counted and stepped over, known ones may lack any field.

Resuming a session copies its history into a new file. The copies have the same texts, so they become no new chunks; where the
copy has a session id of its own, that session is kept as one more place that the text came from.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_text, as_truth, is_array, is_object
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import LineFault, SkippedRecord, TranscriptMessage, bounded, milliseconds

_SYNTHETIC = "<synthetic>"
"""The model that Claude Code names for what it wrote itself: errors, limits, "No response requested."."""
_SILENT_RECORDS = frozenset(
    {
        "agent-name",
        "ai-title",
        "attachment",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",
        "system",
    }
)
_SILENT_BLOCKS = frozenset(
    {"document", "image", "redacted_thinking", "server_tool_use", "tool_result", "tool_use"}
)


@dataclass(frozen=True, slots=True)
class ClaudeWords:
    """A record's words, not cleaned yet. ``speaker`` is ``user`` or ``assistant``."""

    speaker: str
    blocks: list[ClaudeBlock]


def words_of(record: ClaudeRecord) -> ClaudeWords | SkippedRecord:
    """What a record says, and who says it."""
    if record.is_meta:
        return SkippedRecord("meta")
    match record.type:
        case "user" | "assistant":
            return _words_spoken(record)
        case "attachment" if record.attachment is not None and record.attachment.type == "queued_command":
            return _queued(record.attachment)
        case known if known in _SILENT_RECORDS:
            return SkippedRecord(f"record {known}")
        case "":
            return SkippedRecord(LineFault.UNKNOWN_FORM.value, damaged=True)
        case _:
            return SkippedRecord("record of unknown type", damaged=True)


def cleaned_texts(words: ClaudeWords, skipped: Counter[str]) -> dict[str, str]:
    """The texts by role (the speaker's, and ``thinking``) without mark-up. What is left out is counted in ``skipped``."""
    spoken: dict[str, list[str]] = {}
    for block in words.blocks:
        thinks = block.type == "thinking"
        text = block.thinking if thinks else block.text
        if (not thinks and block.type != "text") or text is None:
            skipped[f"block {block.type}" if block.type in _SILENT_BLOCKS else "block of unknown form"] += 1
            continue
        cleaned = clean(text)
        if cleaned:
            spoken.setdefault("thinking" if thinks else words.speaker, []).append(cleaned)
        else:
            skipped["mark-up only"] += 1
    return {role: "\n\n".join(texts) for role, texts in spoken.items()}


def _words_spoken(record: ClaudeRecord) -> ClaudeWords | SkippedRecord:
    if record.is_summary:
        return SkippedRecord("compaction summary")
    if record.message is None:
        return SkippedRecord(LineFault.UNKNOWN_FORM.value, damaged=True)
    if record.is_api_error or record.message.model == _SYNTHETIC:
        return SkippedRecord("written by the tool")
    return ClaudeWords(record.type, _blocks(record.message.content))


def _queued(command: ClaudeAttachment) -> ClaudeWords | SkippedRecord:
    """What was typed while the model worked is the person's; what a background task put into the queue is not."""
    by_person = command.origin is None or command.origin.kind in (None, "human")
    if not by_person or command.mode not in (None, "prompt"):
        return SkippedRecord("record attachment")
    return ClaudeWords("user", _blocks(command.prompt))


def _blocks(content: str | list[ClaudeBlock] | None) -> list[ClaudeBlock]:
    if isinstance(content, str):
        return [ClaudeBlock("text", content)]
    return content or []


PATH_BYTES_MAX = 4096

_BOM = b"\xef\xbb\xbf"


class ClaudeBlock(msgspec.Struct):
    """One block of a message: its type, and its words if it is of a type that has any."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None


class ClaudeMessage(msgspec.Struct):
    content: str | list[ClaudeBlock] | None = None
    model: str | None = None


class ClaudeOrigin(msgspec.Struct):
    kind: str | None = None


class ClaudeAttachment(msgspec.Struct):
    """``queued_command`` holds what was typed while the model worked; ``mode`` and ``origin`` say by whom."""

    type: str = ""
    prompt: str | list[ClaudeBlock] | None = None
    mode: str | None = msgspec.field(name="commandMode", default=None)
    origin: ClaudeOrigin | None = None


class ClaudeRecord(msgspec.Struct):
    """What capture reads of a record."""

    type: str = ""
    uuid: str | None = None
    session: str | None = msgspec.field(name="sessionId", default=None)
    timestamp: str | None = None
    cwd: str | None = None
    is_meta: bool | None = msgspec.field(name="isMeta", default=None)
    is_sidechain: bool | None = msgspec.field(name="isSidechain", default=None)
    is_summary: bool | None = msgspec.field(name="isCompactSummary", default=None)
    is_api_error: bool | None = msgspec.field(name="isApiErrorMessage", default=None)
    message: ClaudeMessage | None = None
    attachment: ClaudeAttachment | None = None


@dataclass(frozen=True, slots=True)
class BlankLine:
    """A line of white space."""


_decoder = msgspec.json.Decoder(ClaudeRecord)


def parse_line(line: bytes) -> ClaudeRecord | LineFault | BlankLine:
    """The record on a line, without its line end. Never raises."""
    line = line.removeprefix(_BOM)
    if not line.strip():
        return BlankLine()
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return LineFault.NOT_JSON
    return _record(value) if is_object(value) else LineFault.UNKNOWN_FORM


def _record(fields: dict[str, Any]) -> ClaudeRecord:
    return ClaudeRecord(
        type=as_text(fields.get("type")) or "",
        uuid=as_text(fields.get("uuid")),
        session=as_text(fields.get("sessionId")),
        timestamp=as_text(fields.get("timestamp")),
        cwd=as_text(fields.get("cwd")),
        is_meta=as_truth(fields.get("isMeta")),
        is_sidechain=as_truth(fields.get("isSidechain")),
        is_summary=as_truth(fields.get("isCompactSummary")),
        is_api_error=as_truth(fields.get("isApiErrorMessage")),
        message=_message(fields.get("message")),
        attachment=_attachment(fields.get("attachment")),
    )


def _message(value: object) -> ClaudeMessage | None:
    if not is_object(value):
        return None
    return ClaudeMessage(_content(value.get("content")), as_text(value.get("model")))


def _attachment(value: object) -> ClaudeAttachment | None:
    if not is_object(value):
        return None
    origin = value.get("origin")
    return ClaudeAttachment(
        as_text(value.get("type")) or "",
        _content(value.get("prompt")),
        as_text(value.get("commandMode")),
        ClaudeOrigin(as_text(origin.get("kind"))) if is_object(origin) else None,
    )


def _content(value: object) -> str | list[ClaudeBlock] | None:
    if is_array(value):
        return [_block(item) for item in value]
    return as_text(value)


def _block(value: object) -> ClaudeBlock:
    if not is_object(value):
        return ClaudeBlock("", as_text(value))
    return ClaudeBlock(
        as_text(value.get("type")) or "", as_text(value.get("text")), as_text(value.get("thinking"))
    )


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


_TAGS = (
    "system-reminder",
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "task-notification",
    "user-prompt-submit-hook",
    "session-start-hook",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
    "new-diagnostics",
)
_TAG = re.compile(f"<(/?)({'|'.join(map(re.escape, _TAGS))})>")
_PERSONS_OWN = re.compile(r"</?user-memory-input>")
"""Around what the person asked the tool to remember: the mark-up goes, the words stay."""
_MARKERS = ("[Request interrupted by user for tool use]", "[Request interrupted by user]")
_OPENINGS = (
    "Caveat: The messages below were generated by the user while running local commands.",
    "This session is being continued from a previous conversation that ran out of context.",
)
"""How old versions began texts of their own, before they marked such records."""


def clean(text: str) -> str:
    """The text without mark-up blocks, interruption markers and NULs, stripped. "" if nothing else was in it."""
    if "<" in text:
        text = _PERSONS_OWN.sub("", _without_blocks(text))
    for marker in _MARKERS:
        text = text.replace(marker, "")
    text = text.replace("\0", "").strip()
    return "" if text.startswith(_OPENINGS) else text


def _without_blocks(text: str) -> str:
    """Cuts every block out, with what is nested in it. A tag without its partner stays: people write about tags, too."""
    opened: dict[str, list[int]] = {}
    blocks: list[tuple[int, int]] = []
    for tag in _TAG.finditer(text):
        starts = opened.setdefault(tag[2], [])
        if not tag[1]:
            starts.append(tag.start())
        elif starts:
            blocks.append((starts.pop(), tag.end()))
    kept: list[str] = []
    at = 0
    for start, end in sorted(blocks):
        kept.append(text[at:start])  # nothing, for a block within the last one
        at = max(at, end)
    kept.append(text[at:])
    return "".join(kept)
