"""The adapter for Cline's transcripts.

``<root>/data/sessions/<session>/<session>.messages.json`` is one document, rewritten with every message: ``{agent,
sessionId, messages}``. Those of sub-agents and team members are beside it, ``<agent>.messages.json``. The manifest
``<session>.json`` in the same folder names the working folder. Messages have the form of the Anthropic API, with ``id`` and
``ts`` (milliseconds).

A prompt stands in ``<user_input mode="…">`` or ``<user_command slash="…">``; what the tool says about a change of its mode,
in ``<mode_notice>``. Tasks of the editor extension's older versions, which are elsewhere, are not read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.capture.actions import CallPlace, Ending, answer, hold, opened, result_text
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.documents import DocumentAdapter
from crystal_node.capture.folders import below, files_below, folders_in
from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, is_object, parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)

_ENDING = ".messages.json"
_MANIFEST_BYTES_MAX = 1024 * 1024
# Not across another beginning: else many without an end take the square of their number.
_NOTICE = re.compile(r"<mode_notice>(?:(?!<mode_notice>).)*?</mode_notice>", re.DOTALL)
_PROMPT = re.compile(r"\s*<(user_input|user_command)\b[^<>]*>(?P<typed>.*)</\1>\s*", re.DOTALL)
_SILENT_BLOCKS = frozenset({"file", "image", "media", "redacted_thinking", "tool_result", "tool_use"})


class Cline(DocumentAdapter):
    """Cline's transcripts. ``root`` is its folder (``~/.cline``), ``home`` the person's home folder."""

    name = "cline"
    title = "Cline"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._sessions = root / "data" / "sessions"

    @property
    def folders(self) -> list[Path]:
        return [self._sessions]

    def discover(self) -> Iterator[FoundTranscript]:
        sessions, problems = folders_in(self._sessions)
        yield from problems
        for session in sessions:
            yield from files_below(session, _is_messages, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._sessions):
            case (_, name):
                return _is_messages(name)
            case _:
                return False

    def recognises(self, record: dict[str, Any]) -> bool:
        return {"sessionId", "agent", "messages"} <= record.keys() and is_array(record["messages"])

    def said(
        self, document: dict[str, Any], path: Path, written: int
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        messages = document.get("messages")
        if not is_array(messages):
            yield UNKNOWN_FORM
            return
        lead = document.get("agent") in (None, "lead")
        own = as_text(document.get("sessionId")) or path.name.removesuffix(_ENDING)
        session = own if lead or below(str(path), self._sessions) is None else path.parent.name
        cwd = _working_folder(path.with_name(f"{path.parent.name}.json"))
        calls = Context()
        place = CallPlace(session, cwd, subagent=not lead)
        for message in messages:
            fields = as_object(message)
            yield from self._happened(fields, calls, place)
            yield from _message(fields, session, cwd, subagent=not lead)

    def _happened(
        self, message: dict[str, Any], calls: Context, place: CallPlace
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        moment = moment_of(message.get("ts"))
        for block in map(as_object, as_array(message.get("content"))):
            if block.get("type") == "tool_use":
                call = opened(block.get("id"), block.get("name"), block.get("input"), moment)
                yield from hold(calls, call, self.actions, place)
            elif block.get("type") == "tool_result":
                text = result_text(block.get("content"))
                ending = Ending(failed=block.get("is_error") is True, text=text, at=moment)
                yield from answer(calls, block.get("tool_use_id"), ending, self.actions, place)


def _message(
    message: dict[str, Any], session: str, cwd: str, *, subagent: bool
) -> Iterator[TranscriptMessage | SkippedRecord]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant") or not (isinstance(content, str) or is_array(content)):
        yield UNKNOWN_FORM
        return
    blocks: list[tuple[str, str]] = []
    silent: list[SkippedRecord] = []
    for block in as_array(content) or [{"type": "text", "text": content}]:
        fields = as_object(block)
        kind = fields.get("type")
        text = as_text(fields.get("thinking" if kind == "thinking" else "text"))
        if kind == "thinking" and text is not None:
            blocks.append(("thinking", plain(text)))
        elif kind == "text" and text is not None:
            blocks.append((role, _typed(text) if role == "user" else plain(text)))
        else:
            known = isinstance(kind, str) and kind in _SILENT_BLOCKS
            silent.append(SkippedRecord(f"block {kind}" if known else "block of unknown form"))
    texts = joined(blocks)
    if texts:
        moment = moment_of(message.get("ts"))
        made = derived_id(session, role, str(moment), *texts.values())
        yield TranscriptMessage(
            message=as_text(message.get("id")) or made,
            session=session,
            texts=texts,
            moment=moment,
            dated=moment > 0,
            cwd=cwd,
            subagent=subagent,
            model=as_text(as_object(message.get("modelInfo")).get("id")) or "",
        )
    elif not silent:
        yield SkippedRecord("mark-up only")
    yield from silent


def _typed(text: str) -> str:
    """What the person typed of a prompt."""
    text = _NOTICE.sub("", text)
    wrapped = _PROMPT.fullmatch(text)
    return plain(wrapped["typed"] if wrapped else text)


def _working_folder(manifest: Path) -> str:
    try:
        with open_regular(manifest) as file:
            found = parse_json(file.read(_MANIFEST_BYTES_MAX))
    except (OSError, ValueError):
        return ""
    return (as_text(found.get("cwd")) or "") if is_object(found) else ""


def _is_messages(name: str) -> bool:
    return name.endswith(_ENDING) and len(name) > len(_ENDING)
