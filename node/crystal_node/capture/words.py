"""Whose words a Claude Code record holds, or why it holds nobody's."""

from collections import Counter
from dataclasses import dataclass

from crystal_node.capture.claude_code import ClaudeAttachment, ClaudeBlock, ClaudeRecord, clean
from crystal_node.capture.messages import LineFault, SkippedRecord

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
            return _spoken(record)
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


def _spoken(record: ClaudeRecord) -> ClaudeWords | SkippedRecord:
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
