"""The adapter for the drop folder: conversations that any other program, or a person, puts there.

``<folder>/<agent>/<session>.jsonl``, one message a line::

    {"role": "user", "text": "…", "timestamp": "2026-11-21T10:00:00Z", "session": "…", "id": "…"}

where only ``role`` and ``text`` are required; or ``<folder>/<agent>/<session>.md``, one conversation: messages under the
headings ``## user`` and ``## assistant``. Text before the first heading, or without any, is a message of the user. A file
should be written elsewhere and moved in: without a newline at its end, the last message waits until the file is quiet. Files
directly in the folder belong to this machine's own agent.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal_node.base.agent_names import agent_id
from crystal_node.capture.adapter import FoundTranscript, Hides, TranscriptReading
from crystal_node.capture.context import Context
from crystal_node.capture.documents import DocumentContent, DocumentReader
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_text
from crystal_node.capture.line_adapter import LinePosition, ObjectLines
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    moment_of,
    plain,
)

_DEPTH = 1
"""Levels below the drop folder: the agents' folders."""
_ROLE = re.compile(r"[a-z][a-z0-9-]{0,31}")
_ROLES = {
    "ai": "assistant",
    "bot": "assistant",
    "human": "user",
    "me": "user",
    "model": "assistant",
    "person": "user",
    "you": "user",
}
_NOT_READ = "a secret by its name: never read; rename it if it is a conversation"
_HEADING = re.compile(r"##[ \t]+(user|assistant|thinking|human|ai|model|me|you)[ \t]*:?[ \t]*", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


class DropFolder(ObjectLines):
    """The drop folder. ``agent``: the agent of files that are in no agent's folder."""

    name = "drop"
    title = "the drop folder"

    def __init__(self, folder: Path, home: Path, agent: str) -> None:
        super().__init__(home)
        self.root = folder
        self._folder, self._agent = folder, agent

    @property
    def folders(self) -> list[Path]:
        return [self._folder]

    def discover(self) -> Iterator[FoundTranscript]:
        for found in files_below(self._folder, _is_conversation, depth=_DEPTH):
            inside = found.path.relative_to(self._folder).parts
            refused = found.problem is None and _is_secret(inside)
            yield FoundTranscript(found.path, _NOT_READ, refused=True) if refused else found

    def concerns(self, path: str) -> bool:
        inside = below(path, self._folder)
        if inside is None or not 1 <= len(inside) <= _DEPTH + 1:
            return False
        return _is_conversation(inside[-1]) and not _is_secret(inside)

    def agent_of(self, path: Path) -> str:
        inside = below(str(path), self._folder)
        return agent_id(inside[0], self._agent) if inside is not None and len(inside) > 1 else self._agent

    def former(self, path: Path) -> Path | None:
        return None

    def recognises(self, record: dict[str, Any]) -> bool:
        return "role" in record and "text" in record

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        if not _is_document(path):
            return super().read(path, state, agent=agent, hides=hides, quiet_ns=quiet_ns)
        reader = DocumentReader(path, state, quiet_ns)
        return reader.read(_document(path, reader), self._home, agent, self.name, hides, self.exclusions())

    def skip(self, path: Path) -> FileState:
        if not _is_document(path):
            return super().skip(path)
        reader = DocumentReader(path, None)
        return reader.skip(_document(path, reader))

    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        role, text = _role(as_text(record.get("role")) or ""), as_text(record.get("text"))
        if not role or text is None:
            yield UNKNOWN_FORM
            return
        text = plain(text)
        if not text:
            yield SkippedRecord("mark-up only")
            return
        moment = moment_of(record.get("timestamp"))
        session = as_text(record.get("session")) or at.path.stem
        made = derived_id(session, role, str(moment or at.offset), text)
        yield TranscriptMessage(
            as_text(record.get("id")) or made,
            session,
            {role: text},
            moment,
            dated=moment > 0,
            model=as_text(record.get("model")) or "",
        )


def _document(path: Path, reader: DocumentReader) -> DocumentContent:
    from crystal_node.base.secret_files import (
        secret_form,  # lazy: its rules take 8 ms, and most commands read no drop folder
    )

    kind = secret_form(reader.data)
    if kind is not None:
        return DocumentContent([SkippedRecord(f"{kind}: never recorded")], whole=True, written=reader.moment)
    text = reader.data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    messages: list[TranscriptMessage | SkippedRecord] = []
    repeated: dict[tuple[str, str], int] = {}
    for role, said in _messages(text):
        # Insertions before a message do not change its id; a repeated message gets another.
        number = repeated[role, said] = repeated.get((role, said), -1) + 1
        made = derived_id(path.stem, role, str(number), said)
        messages.append(TranscriptMessage(made, path.stem, {role: said}, reader.moment, dated=False))
    return DocumentContent(messages, whole=text.endswith("\n"), written=reader.moment)


def _messages(text: str) -> Iterator[tuple[str, str]]:
    """Role and text of each message, in order; empty ones are left out."""
    role, lines, fence = "user", list[str](), ""
    for line in text.split("\n"):
        heading = _HEADING.fullmatch(line) if not fence else None
        if heading is not None:
            yield from _said(role, lines)
            role, lines = _role(heading[1]), []
            continue
        mark = _FENCE.match(line)
        if mark is not None and not fence:
            fence = mark[1]
        elif mark is not None and mark[1].startswith(fence) and not line.strip(" `~"):
            fence = ""
        lines.append(line)
    yield from _said(role, lines)


def _said(role: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    text = plain("\n".join(lines))
    if text:
        yield role, text


def _role(text: str) -> str:
    """A normalised role; "" if it is none."""
    lower = text.strip().lower()
    return _ROLES.get(lower, lower) if _ROLE.fullmatch(lower) else ""


def _is_conversation(name: str) -> bool:
    return name.endswith((".jsonl", ".md")) and not name.startswith(".")


def _is_secret(inside: tuple[str, ...]) -> bool:
    from crystal_node.base.secret_files import is_secret_folder, is_secret_name  # lazy: as above

    return is_secret_name(inside[-1]) or any(map(is_secret_folder, inside[:-1]))


def _is_document(path: Path) -> bool:
    return path.name.endswith(".md")
