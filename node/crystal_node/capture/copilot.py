"""The adapter for Copilot CLI's transcripts.

``<root>/session-state/<session>/events.jsonl`` holds one event a line: ``{type, data, id, timestamp, parentId}``. The kinds
of events and their fields are in the types that its SDK publishes. Recorded are the messages of the person and the model,
and the model's reasoning. A prompt is ``content``; what was sent for it, with much around it, is ``transformedContent``.
Prompts that no person typed name their ``source`` (a skill, another agent), or say that autopilot goes on.

Events of a sub-agent carry its ``agentId``. The documents of the first versions (``history-session-state``) are not read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from crystal_node.base.agent_names import agent_id
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import CallPlace, Ending, answer, hold, opened
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context, decoded
from crystal_node.capture.folders import below, files_below, folders_in
from crystal_node.capture.json_values import as_object, as_text, has_words
from crystal_node.capture.line_adapter import LinePosition, ObjectLines
from crystal_node.capture.line_reader import LINE_BYTES_MAX, FileState, open_regular
from crystal_node.capture.messages import (
    NO_WORDS,
    UNKNOWN_FORM,
    UNKNOWN_TYPE,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)

_FILE = "events.jsonl"
_PLACES = b'"session.'
_SILENT_FAMILIES = frozenset(
    {
        "abort",
        "assistant",
        "auto_mode_switch",
        "command",
        "exit_plan_mode",
        "hook",
        "mcp",
        "model",
        "permission",
        "session",
        "skill",
        "subagent",
        "system",
        "tool",
        "tool_search",
        "user_input",
    }
)
"""First parts of the names of events that hold nobody's words, or repeat them."""


class CopilotCli(ObjectLines):
    """Copilot CLI's transcripts. ``root`` is its folder (``~/.copilot``), ``home`` the person's home folder."""

    name = "copilot-cli"
    title = "Copilot CLI"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._sessions = root / "session-state"

    @property
    def folders(self) -> list[Path]:
        return [self._sessions]

    def discover(self) -> Iterator[FoundTranscript]:
        sessions, problems = folders_in(self._sessions)
        yield from problems
        for session in sessions:
            yield from files_below(session, _FILE.__eq__, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._sessions):
            case (_, name):
                return name == _FILE
            case _:
                return False

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        return None

    def skip(self, path: Path) -> FileState:
        state = super().skip(path)
        context = decoded(state.memo)
        # A later event may have changed the folder, by which a project is kept out.
        with open_regular(path) as file:
            while line := file.readline(LINE_BYTES_MAX):
                if _PLACES in line:
                    for _ in self.said(line, context, LinePosition(path, 0)):
                        pass
        return structs.replace(state, memo=context.encoded())

    def recognises(self, record: dict[str, Any]) -> bool:
        data = record.get("data")
        return record.get("type") == "session.start" and "sessionId" in as_object(data)

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        kind, data = as_text(record.get("type")) or "", as_object(record.get("data"))
        match kind:
            case "session.start" | "session.resume" | "session.context_changed":
                _place(kind, data, context)
                yield SkippedRecord("event session")
            case "user.message" if not _is_said(record, data):
                yield SkippedRecord("written by the tool")
            case "user.message":
                yield _spoken(record, data, [("user", data.get("content"))], context, at)
            case "assistant.message":
                blocks: list[tuple[str, object]] = [
                    ("thinking", data.get("reasoningText")),
                    ("assistant", data.get("content")),
                ]
                yield _spoken(record, data, blocks, context, at)
            case "tool.execution_start" | "tool.execution_complete" if self.actions is not ActionDetail.OFF:
                yield from self._happened(record, data, context, at)
                yield SkippedRecord("event tool")
            case _ if kind.partition(".")[0] in _SILENT_FAMILIES:
                yield SkippedRecord(f"event {kind.partition('.')[0]}")
            case "":
                yield UNKNOWN_FORM
            case _:
                yield UNKNOWN_TYPE if has_words(record) else NO_WORDS

    def _happened(
        self, record: dict[str, Any], data: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        session = context.session or at.path.parent.name
        place = CallPlace(session, context.cwd, subagent=bool(record.get("agentId")))
        number, moment = data.get("toolCallId"), moment_of(record.get("timestamp"))
        if record["type"] == "tool.execution_start":
            call = opened(number, data.get("toolName"), data.get("arguments"), moment)
            yield from hold(context, call, self.actions, place)
            return
        code = as_object(data.get("shellExecution")).get("exitCode")
        told = as_object(data.get("error")).get("message") or as_object(data.get("result")).get("content")
        ending = Ending(
            failed=data.get("success") is False,
            exit_code=code if isinstance(code, int) else None,
            text=as_text(told) or "",
            at=moment,
        )
        yield from answer(context, number, ending, self.actions, place)


def _is_said(record: dict[str, Any], data: dict[str, Any]) -> bool:
    """Whether a person said it, or an agent to its sub-agent: the tool names who else wrote it."""
    source = as_text(data.get("source")) or ""
    to_subagent = bool(record.get("agentId")) and source.startswith("agent-")
    return (not data.get("source") or to_subagent) and data.get("isAutopilotContinuation") is not True


def _place(kind: str, data: dict[str, Any], context: Context) -> None:
    if kind == "session.start":
        context.session = context.session or as_text(data.get("sessionId")) or ""
    place = as_object(data.get("context")) or data
    context.cwd = as_text(place.get("cwd")) or context.cwd


def _spoken(
    record: dict[str, Any],
    data: dict[str, Any],
    blocks: list[tuple[str, object]],
    context: Context,
    at: LinePosition,
) -> TranscriptMessage | SkippedRecord:
    if "content" not in data or as_text(data["content"]) is None:
        return UNKNOWN_FORM
    texts = joined([(role, plain(as_text(text) or "")) for role, text in blocks])
    if not texts:
        return SkippedRecord("no text")
    moment = moment_of(record.get("timestamp"))
    made = derived_id(str(moment or at.offset), *(part for item in texts.items() for part in item))
    return TranscriptMessage(
        message=as_text(record.get("id")) or made,
        session=context.session or at.path.parent.name,
        texts=texts,
        moment=moment,
        cwd=context.cwd,
        subagent=bool(record.get("agentId")),
        model=as_text(data.get("model")) or "",
    )
