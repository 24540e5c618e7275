"""The adapter for Qwen Code's transcripts.

``<root>/projects/<folder>/chats/<session>.jsonl``, below ``chats/archive`` when a session is archived, and of sub-agents
``subagents/<session>/agent-<id>.jsonl`` beside ``chats``. Each line is a record with ``uuid``, ``sessionId``, ``timestamp``
and ``cwd``, as Claude Code's are, with a message of ``parts``, as Gemini CLI's. Recorded are the messages of the person and
the model, and the model's thinking. Records of the type ``system`` repeat what was said, or count it.

What the person typed is ``systemPayload.displayText`` where a hook has added to the prompt or files were read in, else the
message's text without these additions. Records of the type ``user`` that a timer, a notification or a goal wrote say so in
``subtype``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.base.agent_names import agent_id
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import (
    CallPlace,
    Ending,
    answer,
    hold,
    opened,
    result_text,
    unified_changes,
)
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.folders import below, files_below, folders_in
from crystal_node.capture.json_values import as_array, as_object, as_text, has_words, is_array, is_object
from crystal_node.capture.line_adapter import LinePosition, ObjectLines
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

_SILENT_PARTS = ("functionCall", "functionResponse", "inlineData", "fileData")
_OWN_FIELDS = frozenset({"systemPayload", "provenance"})
_TYPED_SUBTYPES = (None, "mid_turn_user_message", "realtime_message")
_TYPED_BY = (None, "real_user")
_HOOKS_OWN = "<qwen:user-prompt-submit-context>"
_FILES_READ = re.compile(r"--- Content from referenced files ---.*?(?:--- End of content ---|\Z)", re.DOTALL)


class QwenCode(ObjectLines):
    """Qwen Code's transcripts. ``root`` is its folder (``~/.qwen``), ``home`` the person's home folder."""

    name = "qwen-code"
    title = "Qwen Code"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._projects = root / "projects"

    @property
    def folders(self) -> list[Path]:
        return [self._projects]

    def discover(self) -> Iterator[FoundTranscript]:
        projects, problems = folders_in(self._projects)
        yield from problems
        for project in projects:
            for folder in ("chats", "subagents"):
                for found in files_below(project / folder, _is_lines, depth=1):
                    if found.problem is not None or self.concerns(str(found.path)):
                        yield found

    def concerns(self, path: str) -> bool:
        match below(path, self._projects):
            case (_, "chats", name) | (_, "chats", "archive", name):
                return _is_lines(name)
            case (_, "subagents", _, name):
                return _is_lines(name)
            case _:
                return False

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        return path.parent.parent / path.name if path.parent.name == "archive" else None

    def recognises(self, record: dict[str, Any]) -> bool:
        if not {"uuid", "sessionId", "type"} <= record.keys():
            return False
        message = record.get("message")
        return is_array(message.get("parts")) if is_object(message) else _is_own(record)

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        match record.get("type"):
            case "user" | "assistant" if not is_array(as_object(record.get("message")).get("parts")):
                yield UNKNOWN_FORM if "message" in record else SkippedRecord("no text")
            case "user" if not _is_typed(record):
                yield SkippedRecord("written by the tool")
            case "user":
                yield from _spoken("user", record, context, at)
            case "assistant":
                yield from self._called(record, context, at)
                yield from _spoken("assistant", record, context, at)
            case "tool_result" if self.actions is not ActionDetail.OFF:
                yield from self._answered(record, context, at)
                yield SkippedRecord("record tool_result")
            case "system" | "tool_result" as known:
                yield SkippedRecord(f"record {known}")
            case str(other) if other:
                yield UNKNOWN_TYPE if has_words(record) else NO_WORDS
            case _:
                yield UNKNOWN_FORM

    def _called(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        place, moment = _place(record, at), moment_of(record.get("timestamp"))
        for part in as_array(as_object(record.get("message")).get("parts")):
            fields = as_object(as_object(part).get("functionCall"))
            if fields and self.actions is not ActionDetail.OFF:
                call = opened(fields.get("id"), fields.get("name"), fields.get("args"), moment)
                yield from hold(context, call, self.actions, place)

    def _answered(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        for part in as_array(as_object(record.get("message")).get("parts")):
            response = as_object(as_object(part).get("functionResponse"))
            ending = _ending(
                response, as_object(record.get("toolCallResult")), moment_of(record.get("timestamp"))
            )
            yield from answer(context, response.get("id"), ending, self.actions, _place(record, at))


def _place(record: dict[str, Any], at: LinePosition) -> CallPlace:
    return CallPlace(
        as_text(record.get("sessionId")) or _session_of(at.path),
        as_text(record.get("cwd")) or "",
        subagent=record.get("isSidechain") is True or at.path.parent.parent.name == "subagents",
    )


def _ending(response: dict[str, Any], result: dict[str, Any], moment: int) -> Ending:
    """How a call ended, by what the model was told and what the tool notes beside it: an exit code, a diff."""
    status = result.get("status")
    shown = as_object(result.get("resultDisplay"))
    code = shown.get("exitCode")
    return Ending(
        failed=status == "error" or "error" in as_object(response.get("response")),
        exit_code=code if isinstance(code, int) else None,
        text=as_text(shown.get("text")) or result_text(response.get("response")),
        at=moment,
        cancelled=status == "cancelled",
        changes=unified_changes(shown.get("fileName"), shown.get("fileDiff")),
    )


def _is_own(record: dict[str, Any]) -> bool:
    """Whether a record without a message has fields that Claude Code's do not have."""
    return bool(_OWN_FIELDS & record.keys())


def _is_typed(record: dict[str, Any]) -> bool:
    return (
        record.get("subtype") in _TYPED_SUBTYPES
        and record.get("provenance") in _TYPED_BY
        and record.get("externalInputKind") in (None, "message")
    )


def _spoken(
    role: str, record: dict[str, Any], context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    texts: list[str] = []
    thoughts: list[str] = []
    silent: list[SkippedRecord] = []
    for part in as_array(as_object(record["message"]).get("parts")):
        fields = as_object(part)
        text = as_text(fields.get("text"))
        if text is not None:
            (thoughts if fields.get("thought") is True else texts).append(text)
        else:
            known = next((name for name in _SILENT_PARTS if name in fields), "")
            silent.append(SkippedRecord(f"part {known}" if known else "block of unknown form"))
    whole = _typed(record, texts) if role == "user" else "".join(texts)
    blocks = joined([*(("thinking", plain(thought)) for thought in thoughts), (role, plain(whole))])
    if blocks:
        moment = moment_of(record.get("timestamp"))
        made = derived_id(role, str(moment or at.offset), *blocks.values())
        yield TranscriptMessage(
            message=as_text(record.get("uuid")) or made,
            session=as_text(record.get("sessionId")) or _session_of(at.path),
            texts=blocks,
            moment=moment,
            cwd=as_text(record.get("cwd")) or "",
            subagent=record.get("isSidechain") is True or at.path.parent.parent.name == "subagents",
            model=as_text(record.get("model")) or "",
        )
    elif not silent:
        yield SkippedRecord("no text")
    yield from silent


def _typed(record: dict[str, Any], texts: list[str]) -> str:
    """What the person typed of a prompt."""
    shown = as_text(as_object(record.get("systemPayload")).get("displayText"))
    if shown is not None:
        return shown
    return _FILES_READ.sub("", "".join(text for text in texts if not text.lstrip().startswith(_HOOKS_OWN)))


def _session_of(path: Path) -> str:
    return path.parent.name if path.parent.parent.name == "subagents" else path.stem


def _is_lines(name: str) -> bool:
    return name.endswith(".jsonl") and len(name) > len(".jsonl")
