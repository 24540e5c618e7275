"""The adapter for Codex's transcripts.

``<root>/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl``, moved to ``<root>/archived_sessions`` when a session is
archived. Each line is ``{timestamp, type, payload}``. Where the person's words are depends on when it was written:

    bare      until September 2025: a header ``{id, timestamp, instructions}``, then items without an envelope or a time
    events    since then: in an event ``user_message``
    turns     since August 2026: in an event ``item_completed`` of an item ``UserMessage``

Besides such an event there is an item with the role ``user``: what was sent to the model, including much that nobody typed. It
is held until the event comes, and then dropped. If the model answers first, the file has no such events, and everything that is
not known to be inserted counts as the person's.

The model's messages, and its reasoning where it is readable, are items in all versions; events repeat them, the message's
before its item. The summary that a compaction asks the model for is an item, too, without such an event: a record ``compacted``
follows that holds it. So an item that no event has told of waits for the next record that says what it was. A forked session
and one of a sub-agent begin with a header of their own, which another session's may follow.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.base.agent_names import agent_id
from crystal_node.base.project import normalised_remote
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import (
    CallPlace,
    Ending,
    answer,
    ended,
    hold,
    opened,
    release,
    result_text,
    stated_exit_code,
)
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_array, as_object, as_text, has_words, parse_json
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
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact

BARE, EVENTS, TURNS = "bare", "events", "turns"
PENDING_MAX = 16
"""How many prompts are held; if there are more, the oldest counts as the person's."""

PENDING_CHARS_MAX = 1024 * 1024
"""Of all of them together."""
_CONFIRMED_MAX = 16
"""Messages of one answer whose events may come before the first of its items."""

_FILE = re.compile(r"rollout-(?P<day>\d{4}-\d{2}-\d{2})?.*\.jsonl")
_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SILENT_RECORDS = frozenset(
    {"compacted", "inter_agent_communication", "inter_agent_communication_metadata", "world_state"}
)
_SILENT_ITEMS = frozenset(
    {
        "additional_tools",
        "agent_message",
        "compaction",
        "context_compaction",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "ghost_snapshot",
        "image_generation_call",
        "local_shell_call",
        "other",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
_INJECTED = (
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<apps_instructions>",
    "<collaboration_mode>",
    "<environment_context>",
    "<hook_prompt",
    "<multi_agent_mode>",
    "<permissions instructions>",
    "<skill>",
    "<skills_instructions>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_action>",
    "<user_instructions>",
    "<user_shell_command>",
    "You are `/root`, the primary agent",
)
"""Beginnings of items with the role ``user`` that nobody typed."""
_FAILED = (
    "apply_patch verification failed",
    "execution error",
    "exec_command failed",
    "failed to parse",
    "unsupported call",
)
"""Beginnings of outputs of calls that could not be run."""
_REQUEST = "## My request for Codex:"
"""Follows an editor's context in the same text."""
_CWD = re.compile(r"<cwd>([^<\n]{1,4096})</cwd>")


class Codex(ObjectLines):
    """Codex's transcripts. ``root`` is Codex's folder (``~/.codex``), ``home`` the person's home folder."""

    name = "codex"
    title = "Codex"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._sessions, self._archived = root / "sessions", root / "archived_sessions"

    @property
    def folders(self) -> list[Path]:
        return [self._sessions, self._archived]

    def discover(self) -> Iterator[FoundTranscript]:
        for folder in self.folders:
            yield from files_below(folder, _is_transcript)

    def concerns(self, path: str) -> bool:
        inside = any(below(path, folder) is not None for folder in self.folders)
        return inside and _is_transcript(Path(path).name)

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        named = _FILE.fullmatch(path.name)
        if named is None or named["day"] is None or below(str(path), self._archived) is None:
            return None
        return self._sessions.joinpath(*named["day"].split("-"), path.name)

    def recognises(self, record: dict[str, Any]) -> bool:
        return record.get("type") == "session_meta" or {"id", "timestamp", "instructions"} <= record.keys()

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        payload, moment = as_object(record.get("payload")), moment_of(record.get("timestamp"))
        if context.unsettled and not _counts_tokens(record, payload):
            yield from _settled(record, payload, context, at)
        match record.get("type"):
            case "session_meta":
                _header(payload, context)
                yield SkippedRecord("record session_meta")
            case "turn_context":
                context.cwd = as_text(payload.get("cwd")) or context.cwd
                context.model = as_text(payload.get("model")) or context.model
                yield SkippedRecord("record turn_context")
            case "response_item":
                yield from self._happened(payload, moment, context, at)
                yield from _item(payload, moment, context, at)
            case "event_msg":
                yield from _event(payload, moment, context, at)
            case str(known) if known in _SILENT_RECORDS:
                yield SkippedRecord(f"record {known}")
            case "message" | "reasoning":
                context.mode = context.mode or BARE
                yield from _item(record, moment, context, at)
            case str(known) if known in _SILENT_ITEMS:
                yield SkippedRecord(f"item {known}")
            case None if record.get("record_type") == "state":
                yield SkippedRecord("record state")
            case None if "id" in record and "timestamp" in record:
                _header(record, context)
                context.mode = context.mode or BARE
                yield SkippedRecord("record session_meta")
            case str(other) if other:
                yield UNKNOWN_TYPE if has_words(record) else NO_WORDS
            case _:
                yield UNKNOWN_FORM

    def _happened(
        self, item: dict[str, Any], moment: int, context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """The tool call that this item ends; keeps the one that it begins. The items themselves count as skipped."""
        detail = self.actions
        if detail is ActionDetail.OFF:
            return
        session = context.session or _session_of(at.path)
        place = CallPlace(session, context.cwd, context.repository, context.subagent)
        number = item.get("call_id")
        match item.get("type"):
            case "function_call":
                call = opened(number, item.get("name"), item.get("arguments"), moment)
                yield from hold(context, call, detail, place)
            case "custom_tool_call":
                call = opened(number, item.get("name"), item.get("input"), moment)
                yield from hold(context, call, detail, place)
            case "local_shell_call":
                call = opened(number, "shell", item.get("action"), moment)
                yield from hold(context, call, detail, place)
            case "web_search_call":
                call = opened(item.get("id"), "web_search", item.get("action"), moment)
                yield ended(call, Ending(failed=item.get("status") == "failed", at=moment), detail, place)
            case "function_call_output" | "custom_tool_call_output":
                yield from answer(context, number, _ending(item.get("output"), moment), detail, place)
            case "message" if item.get("role") == "user":
                yield from release(context, detail, place)
            case _:
                pass


def _ending(output: object, moment: int) -> Ending:
    """How a call ended: ``output`` is text with the exit code before the command's own, the same as JSON, or blocks."""
    fields = as_object(output)
    text = result_text(fields.get("content") if fields else output)
    try:
        inner = as_object(parse_json(text.encode())) if text.startswith("{") else {}
    except ValueError:
        inner = {}
    stated = as_object(inner.get("metadata")).get("exit_code")
    if isinstance(stated, int):
        text = as_text(inner.get("output")) or ""
        return Ending(failed=stated != 0, exit_code=stated, text=text, at=moment)
    head, mark, rest = text.partition("\nOutput:\n")
    code = stated_exit_code(head) if mark else None
    failed = fields.get("success") is False or bool(code) or text.startswith(_FAILED)
    return Ending(failed=failed, exit_code=code, text=rest if mark else text, at=moment)


def _header(fields: dict[str, Any], context: Context) -> None:
    """The first header is the file's; later ones belong to sessions that it was forked from."""
    if context.session:
        return
    context.session = as_text(fields.get("id")) or ""
    context.cwd = as_text(fields.get("cwd")) or ""
    context.moment = moment_of(fields.get("timestamp"))
    context.repository = normalised_remote(as_text(as_object(fields.get("git")).get("repository_url")) or "")
    context.subagent = "subagent" in as_object(fields.get("source"))


def _event(
    payload: dict[str, Any], moment: int, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    item = as_object(payload.get("item"))
    match payload.get("type"), item.get("type"):
        case "user_message", _:
            text = as_text(payload.get("message"))
            yield from _told(EVENTS, None if text is None else [text], moment, context, at)
        case "item_completed", "UserMessage":
            content = [as_object(part) for part in as_array(item.get("content"))]
            texts = [text for part in content if (text := as_text(part.get("text"))) is not None]
            yield from _told(TURNS, texts or None, moment, context, at)
        case "item_completed", "Plan":
            yield from _words([("assistant", plain(as_text(item.get("text")) or ""))], moment, context, at)
        case "item_completed", "AgentMessage":
            texts = [as_text(as_object(part).get("text")) or "" for part in as_array(item.get("content"))]
            _confirm(context, texts)
            yield SkippedRecord("event")
        case "agent_message", _:
            _confirm(context, [as_text(payload.get("message")) or ""])
            yield SkippedRecord("event")
        case str(), _:
            yield SkippedRecord("event")
        case _:
            yield UNKNOWN_FORM


def _told(
    mode: str, texts: list[str] | None, moment: int, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    """The person's message, from one of the two kinds of events: a file may repeat it in the other."""
    if context.mode not in ("", mode):
        yield SkippedRecord("said before")
        return
    yield from (SkippedRecord("said as an event") for _ in context.pending)
    context.mode, context.pending = mode, ()
    if texts is None:
        yield SkippedRecord("event")
    else:
        yield from _words([("user", _typed(text)) for text in texts], moment, context, at)


def _item(
    item: dict[str, Any], moment: int, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    match item.get("type"):
        case "message":
            yield from _message(item, moment, context, at)
        case "reasoning":
            parts = [*as_array(item.get("summary")), *as_array(item.get("content"))]
            thoughts = [("thinking", plain(as_text(as_object(part).get("text")) or "")) for part in parts]
            if any(text for _, text in thoughts):
                yield from _released(context, 0, at)
                yield from _words(thoughts, moment, context, at)
            else:
                yield SkippedRecord("item reasoning")
        case str(known) if known in _SILENT_ITEMS:
            yield SkippedRecord(f"item {known}")
        case str(other) if other and not has_words(item):
            yield NO_WORDS
        case _:
            yield UNKNOWN_TYPE


def _message(
    item: dict[str, Any], moment: int, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    role = item.get("role")
    if role in ("developer", "system"):
        yield SkippedRecord(f"message {role}")
        return
    if role not in ("user", "assistant"):
        yield UNKNOWN_FORM
        return
    texts: list[str] = []
    for block in as_array(item.get("content")) or [{"type": "text", "text": item.get("content")}]:
        text = as_text(as_object(block).get("text"))
        if text is None:
            yield SkippedRecord(
                "block of unknown form" if as_object(block).get("type") != "input_image" else "block image"
            )
        else:
            texts.append(plain(text))
    if role == "assistant":
        yield from _released(context, 0, at)
        if context.mode in (EVENTS, TURNS) and moment and _mark(texts) not in context.confirmed:
            # Held answers are kept with the file's state, therefore redacted.
            context.unsettled = (*context.unsettled, *((moment, redact(text).text) for text in texts if text))
        else:
            yield from _words([("assistant", text) for text in texts], moment, context, at)
    elif context.mode == BARE:
        if not context.cwd:
            context.cwd = next((found[1] for found in map(_CWD.search, texts) if found), "")
        yield from _words([("user", _typed(text)) for text in texts], moment, context, at)
    elif context.mode or not (typed := [text for text in map(_typed, texts) if text]):
        yield SkippedRecord("said as an event" if context.mode else "mark-up only")
    else:
        whole = "\n\n".join(typed)
        opened = without_private(whole)
        if opened != whole:  # marks may begin in one part and end in another
            typed = [opened]
        # Held prompts are kept with the file's state, therefore redacted.
        context.pending = (*context.pending, *((moment, redact(text).text) for text in typed))
        yield from _released(context, _fitting(context), at)


def _released(context: Context, left: int, at: LinePosition) -> Iterator[TranscriptMessage | SkippedRecord]:
    """Releases held prompts that no event confirmed, all but ``left``."""
    count = max(len(context.pending) - left, 0)
    released, context.pending = context.pending[:count], context.pending[count:]
    for moment, text in released:
        yield from _words([("user", text)], moment, context, at)


def _settled(
    record: dict[str, Any], payload: dict[str, Any], context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    """Releases held answers, but for the summary that a compaction keeps."""
    held, context.unsettled = context.unsettled, ()
    kept = as_text(payload.get("message")) if record.get("type") == "compacted" else None
    summary = redact(kept).text if kept else ""
    for moment, text in held:
        if text in summary:
            yield SkippedRecord("compaction summary")
        else:
            yield from _words([("assistant", text)], moment, context, at)


def _counts_tokens(record: dict[str, Any], payload: dict[str, Any]) -> bool:
    return record.get("type") == "token_usage_record" or payload.get("type") == "token_count"


def _confirm(context: Context, texts: list[str]) -> None:
    context.confirmed = (*context.confirmed, _mark(texts))[-_CONFIRMED_MAX:]


def _mark(texts: list[str]) -> str:
    """A mark of an answer, by which its event and its item are known as one."""
    return derived_id(*filter(None, map(plain, texts)))


def _fitting(context: Context) -> int:
    """How many of the newest prompts can be held."""
    left, count = PENDING_CHARS_MAX, 0
    for _, text in reversed(context.pending[-PENDING_MAX:]):
        left -= len(text)
        count += left >= 0
    return count


def _words(
    blocks: list[tuple[str, str]], moment: int, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    texts = joined(blocks)
    if not texts:
        yield SkippedRecord("mark-up only")
        return
    made = derived_id(str(moment or at.offset), *(part for item in texts.items() for part in item))
    yield TranscriptMessage(
        message=made,
        session=context.session or _session_of(at.path),
        texts=texts,
        moment=moment or context.moment,
        dated=moment > 0,
        cwd=context.cwd,
        repository=context.repository,
        subagent=context.subagent,
        model=context.model,
    )


def _typed(text: str) -> str:
    """The part of a prompt that the person typed; "" if there is none."""
    text = plain(text)
    if text.startswith(_INJECTED):
        return ""
    _, marked, request = text.partition(_REQUEST)
    return request.strip() if marked else text


def _is_transcript(name: str) -> bool:
    return _FILE.fullmatch(name) is not None


def _session_of(path: Path) -> str:
    found = _SESSION.search(path.stem)
    return found[0] if found else path.stem
