"""The adapter for OpenClaw's transcripts.

``<root>/agents/<agent>/sessions/<session>.jsonl`` holds a header and then one entry a line; entries form a tree by ``id`` and
``parentId``; all branches are recorded: messages of the person and the model, and the model's thinking.
Left out are tool calls and results, changes of the model, compaction and branch summaries, and extensions' own entries.

When a session is reset its file becomes ``<session>.jsonl.reset.<time>`` and is read on there. A deleted file
(``.deleted.<time>``) is left alone. The first version wrote entries without ids.

Since August 2026 the same entries are rows of a database, one for each agent (``openclaw_database``). Entries that were moved
there keep their ids, so they are in the memory once, however often they are read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.base.agent_names import agent_id
from crystal_node.base.project import ProjectFinder
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import CallPlace, Ending, answer, hold, opened, release, result_text
from crystal_node.capture.adapter import CaptureCounts, FoundTranscript, Hides, TranscriptReading
from crystal_node.capture.context import Context
from crystal_node.capture.folders import below, files_below, folders_in
from crystal_node.capture.json_values import as_array, as_object, as_text, has_words
from crystal_node.capture.line_adapter import LinePass, LinePosition, ObjectLines
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.messages import (
    NO_WORDS,
    UNKNOWN_FORM,
    UNKNOWN_TYPE,
    OperationBuilder,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)
from crystal_node.capture.openclaw_database import (
    JOURNAL_NAME,
    STORE_NAME,
    read_store,
    rows_unchanged,
    skip_store,
    store_of,
    store_unchanged,
)

DEFAULT_AGENT = "main"

_SILENT_RECORDS = frozenset(
    {
        "branch_summary",
        "compaction",
        "custom",
        "custom_message",
        "label",
        "model_change",
        "session_info",
        "thinking_level_change",
    }
)
_SILENT_ROLES = frozenset(
    {"bashExecution", "branchSummary", "compactionSummary", "custom", "hookMessage", "system", "toolResult"}
)
_SILENT_BLOCKS = frozenset({"image", "toolCall", "toolResult", "tool_use", "tool_result"})
_MARKERS = frozenset({"HEARTBEAT_OK", "NO_REPLY"})
"""What the model answers when there is nothing to say."""
_TOOLS_OWN = ("Read HEARTBEAT.md if it exists", "Pre-compaction memory flush")
_METADATA = re.compile(r"[A-Z][A-Za-z ]{0,60} \(untrusted[a-z ,]{0,40}\):\n```json\n")
_STAMP = re.compile(r"\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}(?::\d{2})? [^\]\n]{1,20}\][ \t]*")
"""The time of arrival, which the entry holds, too."""
_DIRECTIVES = re.compile(r"(?:\[\[[a-z_]{1,30}(?::[^\]\n]{0,100})?\]\][ \t]*)*+")
"""Directives of the model to the gateway before its text: which message it answers, or that it is to be spoken."""
_SYSTEM_LINE = re.compile(r"System: \[[^\]\n]{1,60}\][^\n]*\n*")
_SPACE = re.compile(r"\s*")
_CLOSED = "\n```"
_RESET = re.compile(r"(.+\.jsonl)\.reset\.[^/]+")


class OpenClaw(ObjectLines):
    """OpenClaw's transcripts. ``root`` is OpenClaw's folder (``~/.openclaw``), ``home`` the person's home folder."""

    name = "openclaw"
    title = "OpenClaw"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._agents = root / "agents"

    @property
    def folders(self) -> list[Path]:
        return [self._agents]

    def discover(self) -> Iterator[FoundTranscript]:
        agents, problems = folders_in(self._agents)
        yield from problems
        for agent in agents:
            yield from files_below(agent / "sessions", _is_transcript, depth=0)
            yield from files_below(agent / "agent", STORE_NAME.__eq__, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._agents):
            case (_, "sessions", name):
                return _is_transcript(name)
            case (_, "agent", name):
                return name in (STORE_NAME, JOURNAL_NAME)
            case _:
                return False

    def agent_of(self, path: Path) -> str:
        named = below(str(path), self._agents)
        return agent_id(named[0] if named else "", DEFAULT_AGENT)

    def former(self, path: Path) -> Path | None:
        reset = _RESET.fullmatch(path.name)
        return path.with_name(reset[1]) if reset else None

    def transcript(self, path: Path) -> Path:
        return path.with_name(STORE_NAME) if path.name == JOURNAL_NAME else path

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        if store_of(path) is not None:
            return state is not None and rows_unchanged(path, state)
        return store_unchanged(path, state) if _is_store(path) else super().unchanged(path, state, quiet_ns)

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        if not _is_store(path):
            return super().read(path, state, agent=agent, hides=hides, quiet_ns=quiet_ns)
        counts = CaptureCounts()
        gatherer = OperationBuilder(agent, self.name, ProjectFinder(self._home), counts, self.exclusions())
        batch = read_store(path, state)
        if not batch.known_form:
            counts.damaged(path, 0, "database of unknown form")
        contexts: dict[str, Context] = {}
        for event in batch.events:
            context = contexts.get(event.session)
            if context is None:
                context = contexts[event.session] = Context(session=event.session)
                for line in (batch.headers[event.session], *batch.earlier.get(event.session, ())):
                    for _ in self.said(line, context, LinePosition(path, 0)):
                        pass
            context.moment = event.created_at
            LinePass(self, path, context, hides, 0, counts, gatherer).take(event.line, event.number)
        return TranscriptReading(gatherer.finish(), batch.state, counts, batch.more, gatherer.roots)

    def skip(self, path: Path) -> FileState:
        return skip_store(path) if _is_store(path) else super().skip(path)

    def recognises(self, record: dict[str, Any]) -> bool:
        return (record.get("type") == "session" and "id" in record) or "transcript_events" in record

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        match record.get("type"):
            case "session":
                context.session = context.session or as_text(record.get("id")) or ""
                context.cwd = as_text(record.get("cwd")) or context.cwd
                yield SkippedRecord("record session")
            case "message":
                yield from self._happened(record, context, at)
                yield from _message(record, context, at)
            case str(known) if known in _SILENT_RECORDS:
                yield SkippedRecord(f"record {known}")
            case str(other) if other:
                yield UNKNOWN_TYPE if has_words(record) else NO_WORDS
            case _:
                yield UNKNOWN_FORM

    def _happened(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """The tool call that this message ends; keeps those that it begins."""
        if self.actions is ActionDetail.OFF:
            return
        message = as_object(record.get("message"))
        moment = _moment(record, message, context)
        place = CallPlace(context.session or at.path.name.partition(".jsonl")[0], context.cwd)
        if message.get("role") == "toolResult":
            details = as_object(message.get("details"))
            code = details.get("exitCode")
            ending = Ending(
                failed=message.get("isError") is True,
                exit_code=code if isinstance(code, int) else None,
                text=result_text(message.get("content")),
                at=moment,
            )
            yield from answer(context, message.get("toolCallId"), ending, self.actions, place)
        elif message.get("role") == "user":
            yield from release(context, self.actions, place)
        for block in map(as_object, as_array(message.get("content"))):
            if block.get("type") == "toolCall":
                call = opened(block.get("id"), block.get("name"), block.get("arguments"), moment)
                yield from hold(context, call, self.actions, place)


def _moment(record: dict[str, Any], message: dict[str, Any], context: Context) -> int:
    return (
        moment_of(record.get("timestamp")) or moment_of(message.get("timestamp")) or moment_of(context.moment)
    )


def _message(
    record: dict[str, Any], context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    message = as_object(record.get("message"))
    role = as_text(message.get("role")) or ""
    if role in _SILENT_ROLES:
        yield SkippedRecord(f"message {role}")
        return
    if role not in ("user", "assistant"):
        yield UNKNOWN_FORM
        return
    blocks, silent = _blocks(role, message.get("content"))
    texts = joined(blocks)
    moment = _moment(record, message, context)
    made = derived_id(role, str(moment or at.offset), *texts.values())
    yield TranscriptMessage(
        message=as_text(record.get("id")) or made,
        session=context.session or at.path.name.partition(".jsonl")[0],
        texts=texts,
        moment=moment,
        cwd=context.cwd,
        model=as_text(message.get("model")) or "",
    )
    yield from silent


def _blocks(role: str, content: object) -> tuple[list[tuple[str, str]], list[SkippedRecord]]:
    """Role and cleaned text of each block, and why others were skipped."""
    found: list[tuple[str, str]] = []
    silent: list[SkippedRecord] = []
    for block in as_array(content) or [{"type": "text", "text": content}]:
        fields = as_object(block)
        kind = fields.get("type")
        text = as_text(fields.get("thinking" if kind == "thinking" else "text"))
        if kind not in ("text", "thinking") or text is None:
            known = isinstance(kind, str) and kind in _SILENT_BLOCKS
            silent.append(SkippedRecord(f"block {kind}" if known else "block of unknown form"))
            continue
        cleaned = _cleaned(text) if role == "user" else _answered(text)
        if cleaned and cleaned not in _MARKERS:
            found.append(("thinking" if kind == "thinking" else role, cleaned))
        else:
            silent.append(SkippedRecord("mark-up only"))
    return found, silent


def _cleaned(text: str) -> str:
    """The person's text without what the gateway put before it; "" if it is the gateway's own."""
    text, at = plain(text), 0
    while True:  # by position: a text with many such parts must not be copied for each
        at = _end(_SPACE, text, at)
        if (ahead := _STAMP.match(text, at) or _SYSTEM_LINE.match(text, at)) is not None:
            at = ahead.end()
        elif (ahead := _METADATA.match(text, at)) is not None:
            closed = text.find(_CLOSED, ahead.end())
            if closed < 0:
                return text[at:]
            at = closed + len(_CLOSED)
        else:
            return "" if text.startswith(_TOOLS_OWN, at) else text[at:]


def _is_store(path: Path) -> bool:
    return path.name.endswith(".sqlite")


def _answered(text: str) -> str:
    """The model's text without its directives to the gateway."""
    text = plain(text)
    return text[_end(_DIRECTIVES, text, 0) :].strip()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of the pattern's match at that position; the position if there is none."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _is_transcript(name: str) -> bool:
    return (name.endswith(".jsonl") and len(name) > len(".jsonl")) or _RESET.fullmatch(name) is not None
