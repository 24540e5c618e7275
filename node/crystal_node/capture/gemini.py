"""The adapter for Gemini CLI's transcripts.

``<root>/tmp/<project>/chats/session-<time>-<id>.jsonl``, and for sub-agents ``chats/<session>/<id>.jsonl``. The first line
names the session; then each line is a message, a change of the session's own fields (``$set``, which may repeat all messages),
or a mark that the person went back or the tool compacted (``$rewindTo``, ``$patch``: what was taken back was said
nevertheless). Until spring 2026 a session was one JSON document, ``session-….json``, rewritten with every message.

A message is written again under the same id whenever something in it changed: tool calls, tokens, rarely its text. Each version
with another text is recorded under that id, the last one last; the same text is recorded once. Recorded versions cannot be
replaced on all devices, so that conversations are shown with the last version of each message.

When a session is resumed, its messages are written again under their ids, with the time of that moment, and thoughts as parts
of the text; a later minute's resumption begins a second file of the session. Thoughts are brought to one form, so that nothing
of it is said twice. What hooks add stands in ``<hook_context>``, before the prompt or in parts of its own, its angle brackets
escaped.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.base.agent_names import agent_id
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import (
    CallPlace,
    Ending,
    ended,
    opened,
    result_text,
    stated_exit_code,
    unified_changes,
)
from crystal_node.capture.adapter import FoundTranscript, Hides, TranscriptReading
from crystal_node.capture.context import Context
from crystal_node.capture.documents import DocumentContent, DocumentReader
from crystal_node.capture.folders import below, files_below, folders_in
from crystal_node.capture.json_values import (
    as_array,
    as_object,
    as_text,
    has_words,
    is_array,
    is_object,
    parse_json,
)
from crystal_node.capture.line_adapter import LinePosition, ObjectLines
from crystal_node.capture.line_reader import FileState, open_regular
from crystal_node.capture.messages import (
    NO_WORDS,
    UNKNOWN_FORM,
    LineFault,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)

_SESSION_FILE = re.compile(r"session-.*\.jsonl?")
_INJECTED = (
    "<session_context>",
    "<state_snapshot>",
    "This is the Gemini CLI.",
    "[SYSTEM:",
)
"""Beginnings of user messages that nobody typed."""
_HOOKS_OWN = re.compile(
    r"\s*(?:<hook_context>[^<]*(?:</hook_context>|\Z)|<loaded_context>.*?</loaded_context>)", re.DOTALL
)
"""What hooks add, and what a sub-agent's task begins with: the program's own instructions."""
_THOUGHT = re.compile(r"\s*\*\*(?P<subject>[^*\n]+)\*\*(?P<rest>.*)", re.DOTALL)
_ENDED = ("success", "error", "cancelled")
"""States of tool calls that change no more."""
_ANSWERS = "complete_task"
"""The tool by which a sub-agent gives its answer, and ends."""
_ROOT_FILE = ".project_root"
_ROOT_BYTES_MAX = 4096


class GeminiCli(ObjectLines):
    """Gemini CLI's transcripts. ``root`` is Gemini CLI's folder (``~/.gemini``), ``home`` the person's home folder."""

    name = "gemini-cli"
    title = "Gemini CLI"
    repeats = True

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._projects = root / "tmp"

    @property
    def folders(self) -> list[Path]:
        return [self._projects]

    def discover(self) -> Iterator[FoundTranscript]:
        projects, problems = folders_in(self._projects)
        yield from problems
        for project in projects:
            chats = project / "chats"
            yield from files_below(chats, _is_session, depth=0)
            for parent in folders_in(chats)[0]:
                yield from files_below(parent, _is_lines, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._projects):
            case (_, "chats", name):
                return _is_session(name)
            case (_, "chats", _, name):
                return _is_lines(name)
            case _:
                return False

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        return path.with_suffix(".json") if _is_lines(path.name) else None

    def recognises(self, record: dict[str, Any]) -> bool:
        return "sessionId" in record and "projectHash" in record

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        if _is_lines(path.name):
            return super().read(path, state, agent=agent, hides=hides, quiet_ns=quiet_ns)
        reader = DocumentReader(path, state, quiet_ns)
        return reader.read(
            self._document(path, reader.data), self._home, agent, self.name, hides, self.exclusions()
        )

    def skip(self, path: Path) -> FileState:
        if _is_lines(path.name):
            return super().skip(path)
        reader = DocumentReader(path, None)
        return reader.skip(self._document(path, reader.data))

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        if "$rewindTo" in record or "$patch" in record:
            yield SkippedRecord("record $rewindTo" if "$rewindTo" in record else "record $patch")
        elif "$set" in record:
            changes = as_object(record["$set"])
            yield SkippedRecord("record $set")
            for message in as_array(changes.get("messages")):
                yield from self._of_message(message, context, at)
        elif "type" in record:
            yield from self._of_message(record, context, at)
        elif "sessionId" in record:
            self._header(record, context, at.path)
            yield SkippedRecord("record session")
        else:
            yield UNKNOWN_FORM

    def _document(self, path: Path, data: bytes) -> DocumentContent:
        """The messages of one of the older documents."""
        try:
            record = parse_json(data)
        except ValueError:
            return DocumentContent([SkippedRecord(LineFault.NOT_JSON.value, damaged=True)], whole=False)
        if not is_object(record):
            return DocumentContent([UNKNOWN_FORM])
        context = Context()
        self._header(record, context, path)
        at = LinePosition(path, 0)
        messages = as_array(record.get("messages"))
        return DocumentContent(
            [one for message in messages for one in self._of_message(message, context, at)]
        )

    def _of_message(
        self, value: object, context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """A message, and the tool calls in it that have ended."""
        if not context.session and not context.cwd:
            # No header: several Gemini CLIs that start at once in a new project may lose it.
            context.cwd = self._as_home(_project_root(at.path))
        yield from _message(value, context, at)
        message = as_object(value)
        if context.subagent:
            yield from _answers(message, context, at)
        if self.actions is ActionDetail.OFF:
            return
        place = CallPlace(context.session or at.path.stem, context.cwd, subagent=context.subagent)
        for one in as_array(message.get("toolCalls")):
            fields = as_object(one)
            if fields.get("status") in _ENDED and fields.get("name") != _ANSWERS:
                moment = moment_of(message.get("timestamp"))
                call = opened(fields.get("id"), fields.get("name"), fields.get("args"), moment)
                yield ended(call, _ending(fields), self.actions, place)

    def _header(self, fields: dict[str, Any], context: Context, path: Path) -> None:
        if context.session:
            return
        context.session = as_text(fields.get("sessionId")) or ""
        context.subagent = fields.get("kind") == "subagent"
        if context.subagent and path.parent.name != "chats":
            context.session = path.parent.name
        folders = [as_text(folder) or "" for folder in as_array(fields.get("directories"))]
        context.cwd = self._as_home(_project_root(path)) or next(iter(folders), "")
        context.moment = moment_of(fields.get("startTime"))

    def _as_home(self, folder: str) -> str:
        """The folder with the home's proper case: the tool writes it in lower case where case does not matter."""
        home = str(self._home)
        below = folder.lower().startswith(home.lower() + "/")
        return home + folder[len(home) :] if below else folder


def _answers(message: dict[str, Any], context: Context, at: LinePosition) -> Iterator[TranscriptMessage]:
    """What a sub-agent answers: the one argument of the call by which it ends, as text, or as what its kind of sub-agent has
    for an answer."""
    for one in as_array(message.get("toolCalls")):
        call = as_object(one)
        if call.get("name") != _ANSWERS or call.get("status") != "success":
            continue
        answer: object = next(iter(as_object(call.get("args")).values()), None)
        if is_object(answer) and len(answer) == 1:
            answer = next(iter(answer.values()))
        text = plain(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))
        if answer is None or not text:
            continue
        moment = moment_of(message.get("timestamp"))
        yield TranscriptMessage(
            message=derived_id(as_text(call.get("id")) or str(moment), _ANSWERS, text),
            session=context.session or at.path.stem,
            texts={"assistant": text},
            moment=moment or context.moment,
            dated=moment > 0,
            cwd=context.cwd,
            subagent=context.subagent,
            model=as_text(message.get("model")) or "",
        )


def _ending(call: dict[str, Any]) -> Ending:
    """How a call ended. An edit's ``resultDisplay`` has its diff."""
    response = as_object(as_object(next(iter(as_array(call.get("result"))), None)).get("functionResponse"))
    text = result_text(response.get("response"))
    code = stated_exit_code(text)
    shown = as_object(call.get("resultDisplay"))
    return Ending(
        failed=call["status"] == "error",
        exit_code=code,
        text=text,
        at=moment_of(call.get("timestamp")),
        cancelled=call["status"] == "cancelled",
        changes=unified_changes(shown.get("filePath") or shown.get("fileName"), shown.get("fileDiff")),
    )


def _message(
    value: object, context: Context, at: LinePosition
) -> Iterator[TranscriptMessage | SkippedRecord]:
    message = as_object(value)
    kind = message.get("type")
    if kind in ("info", "error", "warning"):
        yield SkippedRecord(f"message {kind}")
        return
    if kind not in ("user", "gemini"):
        yield UNKNOWN_FORM if not kind or has_words(message) else NO_WORDS
        return
    role = "user" if kind == "user" else "assistant"
    texts, thoughts, silent = _content(message.get("displayContent"))
    if not texts:
        texts, thoughts, silent = _content(message.get("content"))
    # Parts of a text follow each other without separators.
    text = plain("".join(texts) if kind == "gemini" else "".join(map(_typed, texts)))
    if kind == "user" and text.startswith(_INJECTED):
        text = ""
    thoughts = ["\n".join(plain(part) for part in _parsed_thought(thought)) for thought in thoughts]
    for thought in as_array(message.get("thoughts")):
        fields = as_object(thought)
        named = [plain(as_text(fields.get(name)) or "") for name in ("subject", "description")]
        thoughts.append("\n".join(part for part in named if part))
    spoken = joined([(role, text), *(("thinking", plain(thought)) for thought in thoughts)])
    moment = moment_of(message.get("timestamp"))
    if spoken:
        made = derived_id(role, str(moment), *spoken.values())
        yield TranscriptMessage(
            message=as_text(message.get("id")) or made,
            session=context.session or at.path.stem,
            texts=spoken,
            moment=moment or context.moment,
            dated=moment > 0,
            cwd=context.cwd,
            subagent=context.subagent,
            model=as_text(message.get("model")) or "",
        )
    elif not silent:
        yield SkippedRecord("mark-up only")
    yield from silent


def _typed(text: str) -> str:
    """A part of a prompt without what hooks put before it; "" if that is all."""
    while (ahead := _HOOKS_OWN.match(text)) is not None:
        text = text[ahead.end() :]
    return text


def _parsed_thought(thought: str) -> list[str]:
    """A thought part as the tool keeps it otherwise: its subject and its description, those that it has."""
    found = _THOUGHT.fullmatch(thought)
    return (
        [thought] if found is None else [part for part in (found["subject"], found["rest"].strip()) if part]
    )


def _content(content: object) -> tuple[list[str], list[str], list[SkippedRecord]]:
    """Texts, thoughts, and why other parts were skipped."""
    texts: list[str] = []
    thoughts: list[str] = []
    silent: list[SkippedRecord] = []
    if content is None:
        return texts, thoughts, silent
    for part in content if is_array(content) else [content]:
        fields = as_object(part)
        text = as_text(part) if isinstance(part, str) else as_text(fields.get("text"))
        if text is not None:
            (thoughts if fields.get("thought") is True else texts).append(text)
        elif fields.keys() & {"functionCall", "functionResponse", "inlineData", "fileData"}:
            silent.append(SkippedRecord(f"part {next(iter(sorted(fields)))}"))
        else:
            silent.append(SkippedRecord("block of unknown form"))
    return texts, thoughts, silent


def _project_root(path: Path) -> str:
    """The project's folder, which the tool notes beside the transcripts unless it names the folder by a hash."""
    chats = path.parent if path.parent.name == "chats" else path.parent.parent
    try:
        with open_regular(chats.parent / _ROOT_FILE) as file:
            return file.read(_ROOT_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _is_session(name: str) -> bool:
    return _SESSION_FILE.fullmatch(name) is not None


def _is_lines(name: str) -> bool:
    return name.endswith(".jsonl")
