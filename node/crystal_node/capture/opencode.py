"""The adapter for opencode's conversations, in its database ``<root>/opencode.db`` (``opencode-<channel>.db`` of a preview).

The table ``session`` has a session's working folder and, of a sub-agent's, its parent; ``message`` its messages, with the
role in ``data``; ``part`` their parts, of which those of the types ``text`` and ``reasoning`` are words. A part that is
``synthetic`` or ``ignored`` was not typed. The summary of a compaction is a message of the model with ``summary``.

A message of the model is settled once it is ``completed`` or failed, or the model's next one has begun. So is a prompt once
an answer has: its parts may be written seconds after it. Prompts that are typed while the model writes wait in the queue
behind its message, and settle nothing. The JSON files of versions before 2026 are not read.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import apsw

from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import CallPlace, Ending, ended, opened, unified_changes
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.database_adapter import (
    DatabaseAdapter,
    StoredMessage,
)
from crystal_node.capture.database_file import JOURNAL_ENDING
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_object, as_text, is_object, parse_json
from crystal_node.capture.line_reader import LINE_BYTES_MAX
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    joined,
    moment_of,
    plain,
)

_NAME = re.compile(r"opencode(-[A-Za-z0-9._-]+)?\.db")
_SILENT_PARTS = frozenset(
    {
        "agent",
        "compaction",
        "file",
        "patch",
        "retry",
        "snapshot",
        "step-finish",
        "step-start",
        "subtask",
        "tool",
    }
)
_SESSIONS = """
SELECT session_id, count(*), max(time_created), max(id) FROM message GROUP BY session_id ORDER BY session_id
"""
"""Of an index alone. What changes in a message that is settled does not matter, and one that is not is looked at anyway."""
_IDS = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
_MESSAGES = """
SELECT id, time_created, CASE WHEN length(data) <= ?3 THEN CAST(data AS BLOB) END
FROM message WHERE session_id = ?1 ORDER BY time_created, id LIMIT -1 OFFSET ?2
"""
_PARTS = """
SELECT CASE WHEN length(data) <= ?2 THEN CAST(data AS BLOB) END FROM part WHERE message_id = ?1 ORDER BY id
"""


class OpenCode(DatabaseAdapter):
    """opencode's conversations. ``root`` is its data folder, ``home`` the person's home folder."""

    name = "opencode"
    title = "opencode"
    tables: ClassVar[dict[str, frozenset[str]]] = {
        "session": frozenset({"id", "directory", "parent_id"}),
        "message": frozenset({"id", "session_id", "time_created", "data"}),
        "part": frozenset({"id", "message_id", "data"}),
    }
    session_query = _SESSIONS
    id_query = _IDS

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root

    @property
    def folders(self) -> list[Path]:
        return [self.root]

    def discover(self) -> Iterator[FoundTranscript]:
        yield from files_below(self.root, _is_database, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self.root):
            case (name,):
                return _is_database(name.removesuffix(JOURNAL_ENDING))
            case _:
                return False

    def messages(self, database: apsw.Connection, session: str, start: int) -> Iterator[StoredMessage]:
        query = "SELECT directory, parent_id FROM session WHERE id = ?"
        directory, parent = database.execute(query, (session,)).fetchone() or ("", None)
        place = _Place(session, as_text(directory) or "", subagent=parent is not None)
        waiting: list[StoredMessage] = []
        for is_answer, message in self._rows(database, place, start):
            if is_answer:
                yield from (replace(one, settled=True) for one in waiting)
                waiting.clear()
            waiting.append(message)
        yield from waiting

    def _rows(
        self, database: apsw.Connection, place: "_Place", start: int
    ) -> Iterator[tuple[bool, StoredMessage]]:
        """The messages, and of each whether it is the model's."""
        for number, created, data in database.execute(_MESSAGES, (place.session, start, LINE_BYTES_MAX)):
            message = _parsed(data)
            parts = [_parsed(part) for (part,) in database.execute(_PARTS, (number, LINE_BYTES_MAX))]
            settled = "completed" in as_object(message.get("time")) or bool(message.get("error"))
            outcomes = list(place.said(str(number), created, message, parts))
            outcomes += (one for part in parts for one in self._happened(part, place.calls(message)))
            is_answer = message.get("role") != "user"
            yield is_answer, StoredMessage(str(number), outcomes, settled=settled and is_answer)

    def _happened(
        self, part: dict[str, Any], place: CallPlace
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        state = as_object(part.get("state"))
        if (
            part.get("type") != "tool"
            or state.get("status") not in ("completed", "error")
            or self.actions is ActionDetail.OFF
        ):
            return
        time, metadata = as_object(state.get("time")), as_object(state.get("metadata"))
        code = metadata.get("exit")
        diff = as_object(metadata.get("filediff"))
        ending = Ending(
            failed=state["status"] == "error",
            exit_code=code if isinstance(code, int) else None,
            text=as_text(state.get("error")) or as_text(state.get("output")) or "",
            at=moment_of(time.get("end")),
            changes=unified_changes(diff.get("file"), metadata.get("diff")),
        )
        call = opened(part.get("callID"), part.get("tool"), state.get("input"), moment_of(time.get("start")))
        yield ended(call, ending, self.actions, place)


class _Place:
    """What all messages of one session share."""

    def __init__(self, session: str, directory: str, *, subagent: bool) -> None:
        self.session, self._directory, self._subagent = session, directory, subagent

    def calls(self, message: dict[str, Any]) -> CallPlace:
        """Where the tool calls of a message happened."""
        cwd = as_text(as_object(message.get("path")).get("cwd")) or self._directory
        return CallPlace(self.session, cwd, subagent=self._subagent)

    def said(
        self, number: str, created: object, message: dict[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield UNKNOWN_FORM
            return
        if role == "assistant" and message.get("summary") is True:
            yield SkippedRecord("compaction summary")
            return
        blocks: list[tuple[str, str]] = []
        silent: list[SkippedRecord] = []
        for part in parts:
            kind, text = part.get("type"), as_text(part.get("text"))
            if kind not in ("text", "reasoning") or text is None:
                known = isinstance(kind, str) and kind in _SILENT_PARTS
                silent.append(SkippedRecord(f"part {kind}" if known else "block of unknown form"))
            elif part.get("synthetic") is True or part.get("ignored") is True:
                silent.append(SkippedRecord("written by the tool"))
            else:
                blocks.append(("thinking" if kind == "reasoning" else role, plain(text)))
        texts = joined(blocks)
        if texts:
            yield TranscriptMessage(
                message=number,
                session=self.session,
                texts=texts,
                moment=moment_of(as_object(message.get("time")).get("created")) or moment_of(created),
                cwd=as_text(as_object(message.get("path")).get("cwd")) or self._directory,
                subagent=self._subagent,
                model=as_text(message.get("modelID")) or "",
            )
        elif not silent:
            yield SkippedRecord("no text")
        yield from silent


def _parsed(data: object) -> dict[str, Any]:
    """The object in a column; an empty one if there is none, or it is over the limit."""
    try:
        found = parse_json(data) if isinstance(data, bytes) else None
    except ValueError:
        return {}
    return found if is_object(found) else {}


def _is_database(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
