"""The adapter for goose's conversations, in its database ``<root>/sessions/sessions.db``.

The table ``sessions`` has a session's working folder and type; ``messages`` its messages, each written once, when it is
whole: ``content_json`` is an array of parts, of which ``text`` and ``thinking`` are words. A message that ``metadata_json``
calls not visible to the user is goose's own, such as the summary of a compaction. A compaction writes a session's messages
anew, under other numbers; those without a ``message_id`` therefore get an id that is made of what was said and when.

The files of lines of versions before October 2025 are imported into this database by goose itself, and not read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import apsw

from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import CallPlace, Ending, answer, hold, opened, result_text
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.database_adapter import DatabaseAdapter, Outcomes, StoredMessage
from crystal_node.capture.database_file import JOURNAL_ENDING, tables_of
from crystal_node.capture.folders import below, files_below
from crystal_node.capture.json_values import as_object, as_text, is_array, parse_json
from crystal_node.capture.line_reader import LINE_BYTES_MAX
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    derived_id,
    joined,
    moment_of,
    plain,
)

_NAME = "sessions.db"
_SILENT_PARTS = frozenset(
    {
        "actionRequired",
        "frontendToolRequest",
        "image",
        "redactedThinking",
        "systemNotification",
        "toolConfirmationRequest",
        "toolRequest",
        "toolResponse",
    }
)
_LOOKED_BACK = 8
"""Messages before those that are read, in which a call may stand that is answered now."""
_SESSIONS = "SELECT session_id, count(*), max(id) FROM messages GROUP BY session_id ORDER BY session_id"
_IDS = "SELECT id FROM messages WHERE session_id = ? ORDER BY id"
_PLACE = "SELECT working_dir, session_type FROM sessions WHERE id = ?"
_OLD_PLACE = "SELECT working_dir, '' FROM sessions WHERE id = ?"


class Goose(DatabaseAdapter):
    """goose's conversations. ``root`` is its data folder (``~/.local/share/goose``), ``home`` the person's home folder."""

    name = "goose"
    title = "goose"
    tables: ClassVar[dict[str, frozenset[str]]] = {
        "sessions": frozenset({"id", "working_dir"}),
        "messages": frozenset({"id", "session_id", "role", "content_json", "created_timestamp"}),
    }
    session_query = _SESSIONS
    id_query = _IDS

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._sessions = root / "sessions"

    @property
    def folders(self) -> list[Path]:
        return [self._sessions]

    def discover(self) -> Iterator[FoundTranscript]:
        yield from files_below(self._sessions, _NAME.__eq__, depth=0)

    def concerns(self, path: str) -> bool:
        match below(path, self._sessions):
            case (name,):
                return name.removesuffix(JOURNAL_ENDING) == _NAME
            case _:
                return False

    def messages(self, database: apsw.Connection, session: str, start: int) -> Iterator[StoredMessage]:
        columns = tables_of(database)
        typed = "session_type" in columns["sessions"]
        query = _PLACE if typed else _OLD_PLACE
        cwd, kind = database.execute(query, (session,)).fetchone() or ("", "")
        own_id = "message_id" if "message_id" in columns["messages"] else "NULL"
        metadata = "metadata_json" if "metadata_json" in columns["messages"] else "NULL"
        rows = database.execute(
            f"SELECT id, {own_id}, role, created_timestamp, {metadata},"  # noqa: S608  of fixed names
            " CASE WHEN length(content_json) <= ?3 THEN CAST(content_json AS BLOB) END"
            " FROM messages WHERE session_id = ?1 ORDER BY id LIMIT -1 OFFSET ?2",
            (session, start, LINE_BYTES_MAX),
        )
        earlier = self._waiting(database, session, start)
        for number, own, role, created, hidden, content in rows:
            moment = moment_of(created)
            outcomes: Outcomes
            if kind == "hidden" or _is_hidden(hidden):
                outcomes = [SkippedRecord("written by the tool")]
            else:
                texts, outcomes = _said(role, content)
                if texts:
                    made = derived_id(session, str(role), str(moment), *texts.values())
                    outcomes.append(
                        TranscriptMessage(
                            message=as_text(own) or made,
                            session=session,
                            texts=texts,
                            moment=moment,
                            dated=moment > 0,
                            cwd=as_text(cwd) or "",
                            subagent=kind == "sub_agent",
                        )
                    )
                place = CallPlace(session, as_text(cwd) or "", subagent=kind == "sub_agent")
                outcomes += self._happened(content, moment, place, earlier)
            yield StoredMessage(str(number), outcomes)

    def _happened(
        self, content: object, moment: int, place: CallPlace, calls: Context
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        for part in map(as_object, _parts(content) or ()):
            if part.get("type") == "toolRequest":
                value = as_object(as_object(part.get("toolCall")).get("value"))
                call = opened(part.get("id"), value.get("name"), value.get("arguments"), moment)
                yield from hold(calls, call, self.actions, place)
            elif part.get("type") == "toolResponse":
                result = as_object(part.get("toolResult"))
                value = as_object(result.get("value"))
                failed = result.get("status") == "error" or value.get("isError") is True
                told = result.get("error") or value.get("content") or result.get("value")
                ending = Ending(failed=failed, text=result_text(told), at=moment)
                yield from answer(calls, part.get("id"), ending, self.actions, place)

    def _waiting(self, database: apsw.Connection, session: str, start: int) -> Context:
        """The calls that wait behind the first ``start`` messages: their results are in a message of their own."""
        calls = Context()
        if self.actions is not ActionDetail.OFF and start:
            first = max(start - _LOOKED_BACK, 0)
            query = (
                "SELECT created_timestamp, CASE WHEN length(content_json) <= ?4 THEN CAST(content_json AS BLOB) END"
                " FROM messages WHERE session_id = ?1 ORDER BY id LIMIT ?2 OFFSET ?3"
            )
            for created, content in database.execute(query, (session, start - first, first, LINE_BYTES_MAX)):
                for _ in self._happened(content, moment_of(created), CallPlace(session), calls):
                    pass
        return calls


def _said(role: object, content: object) -> tuple[dict[str, str], Outcomes]:
    """Texts by role of one message, and why parts of it were skipped."""
    parts = _parts(content)
    if role not in ("user", "assistant") or parts is None:
        return {}, [UNKNOWN_FORM]
    blocks: list[tuple[str, str]] = []
    silent: Outcomes = []
    for part in parts:
        fields = as_object(part)
        kind = fields.get("type")
        text = as_text(fields.get("thinking" if kind == "thinking" else "text"))
        if kind in ("text", "thinking") and text is not None:
            blocks.append(("thinking" if kind == "thinking" else str(role), plain(text)))
        else:
            known = isinstance(kind, str) and kind in _SILENT_PARTS
            silent.append(SkippedRecord(f"part {kind}" if known else "block of unknown form"))
    texts = joined(blocks)
    return texts, silent or ([] if texts else [SkippedRecord("no text")])


def _parts(content: object) -> list[object] | None:
    """The parts of a message; None if it is of no known form."""
    try:
        parts = parse_json(content) if isinstance(content, bytes) else None
    except ValueError:
        return None
    return parts if is_array(parts) else None


def _is_hidden(metadata: object) -> bool:
    try:
        found = parse_json(metadata.encode("utf-8", "replace")) if isinstance(metadata, str) else None
    except ValueError:
        return False
    return as_object(found).get("userVisible") is False
