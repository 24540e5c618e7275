"""The adapter for Continue's transcripts, of its command line and its editor extensions.

``<root>/sessions/<session>.json`` is one document, rewritten with every message: ``{sessionId, workspaceDirectory,
history}``. ``sessions.json`` beside them is their list. The history's items have neither ids nor times: a message's id is
made of its place among equal ones, its time is the file's, and a private message is known by its place. ``cn --fork`` copies a
session's history into the file of a new session.

What a compaction leaves is an item whose text is its ``conversationSummary``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.documents import UndatedAdapter
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_array, as_object, as_text, is_array
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    plain,
)

_LIST = "sessions.json"
_ROLES = {"user": "user", "assistant": "assistant", "thinking": "thinking"}
_SILENT_ROLES = frozenset({"system", "tool"})


class Continue(UndatedAdapter):
    """Continue's transcripts. ``root`` is its folder (``~/.continue``), ``home`` the person's home folder."""

    name = "continue"
    title = "Continue"

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._sessions = root / "sessions"

    @property
    def folders(self) -> list[Path]:
        return [self._sessions]

    def discover(self) -> Iterator[FoundTranscript]:
        yield from files_below(self._sessions, _is_session, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._sessions):
            case (name,):
                return _is_session(name)
            case _:
                return False

    def recognises(self, record: dict[str, Any]) -> bool:
        return {"sessionId", "history"} <= record.keys() and is_array(record["history"])

    def said(
        self, document: dict[str, Any], path: Path, written: int
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        history = document.get("history")
        if not is_array(history):
            yield UNKNOWN_FORM
            return
        session = as_text(document.get("sessionId")) or path.stem
        cwd = _folder(as_text(document.get("workspaceDirectory")) or "")
        equal: dict[tuple[str, str], int] = {}
        for entry in history:
            item = as_object(entry)
            texts = _texts(item)
            if isinstance(texts, SkippedRecord):
                yield texts
                continue
            said = "\0".join(part for pair in texts.items() for part in pair)
            number = equal[session, said] = equal.get((session, said), -1) + 1
            made = derived_id(session, str(number), said)
            yield TranscriptMessage(made, session, texts, written, dated=False, cwd=cwd)


def _texts(item: dict[str, Any]) -> dict[str, str] | SkippedRecord:
    """Texts by role of one item of the history, or why there are none."""
    message = as_object(item.get("message"))
    role, content = as_text(message.get("role")) or "", message.get("content")
    if role in _SILENT_ROLES:
        return SkippedRecord(f"message {role}")
    if role not in _ROLES or not (isinstance(content, str) or is_array(content)):
        return UNKNOWN_FORM
    if content == item.get("conversationSummary"):
        return SkippedRecord("compaction summary")
    parts = [as_text(as_object(part).get("text")) or "" for part in as_array(content)]
    text = content if isinstance(content, str) else "\n\n".join(parts)
    thought = as_text(as_object(item.get("reasoning")).get("text")) or ""
    texts = joined([("thinking", plain(thought)), (_ROLES[role], plain(as_text(text) or ""))])
    return texts or SkippedRecord("no text")


def _folder(place: str) -> str:
    """The working folder: editors name it by an address. "" if that is none."""
    try:
        return unquote(urlsplit(place).path) if place.startswith("file://") else place
    except ValueError:
        return ""


def _is_session(name: str) -> bool:
    return name.endswith(".json") and name != _LIST and len(name) > len(".json")
