"""The adapter for Crush's conversations, in the database ``crush.db`` of each project's data folder.

``<root>/projects.json`` lists the projects that Crush was used in, with their data folders (``.crush`` in the project, unless
its settings say otherwise). A data folder is watched with everything below it, and a project's own settings may name any
folder: so only one below its project, the person's home or ``<root>`` is read.

The table ``sessions`` has a session's parent, if it is a sub-agent's or made up its title; ``messages`` its messages: ``parts``
is an array of parts, of which ``text`` and ``reasoning`` are words, as JSON or as a frame of zstd. A text that is ``hidden``
was not typed; a message with ``is_summary_message`` is the summary of a compaction.

A message of the model is settled once it has its ``finish``, or another message follows.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import apsw

from crystal_crypto.compression import decompress_at_most
from crystal_crypto.errors import Malformed
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import CallPlace, Ending, answer, hold, opened, result_text
from crystal_node.capture.adapter import FoundTranscript
from crystal_node.capture.context import Context
from crystal_node.capture.database_adapter import DatabaseAdapter, Outcomes, StoredMessage
from crystal_node.capture.database_file import JOURNAL_ENDING, tables_of
from crystal_node.capture.folders import is_plain_file
from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, parse_json
from crystal_node.capture.line_reader import LINE_BYTES_MAX, open_regular
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    SkippedRecord,
    TranscriptMessage,
    joined,
    moment_of,
    plain,
)

LIST_BYTES_MAX = 4 * 1024 * 1024
PROJECTS_MAX = 1000
"""Projects that are read: those that were used last."""
_LIST = "projects.json"
_NAME = "crush.db"
_FOLDER = ".crush"
_TITLE = "title-"
"""Beginning of the id of a session in which Crush had its model write a title."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_ROLES = ("user", "assistant", "tool")
_SILENT_PARTS = frozenset({"binary", "finish", "image_url", "shell_command", "tool_call", "tool_result"})
_LOOKED_BACK = 8
"""Messages before those that are read, in which a call may stand that is answered now."""
_SESSIONS = "SELECT session_id, count(*), max(rowid) FROM messages GROUP BY session_id ORDER BY session_id"
"""Reads an index alone. Changes in a settled message do not matter, and one that is not settled is read anyway."""
_IDS = "SELECT id FROM messages WHERE session_id = ? ORDER BY rowid"


class Crush(DatabaseAdapter):
    """Crush's conversations. ``root`` is its data folder (``~/.local/share/crush``), ``home`` the person's home folder."""

    name = "crush"
    title = "Crush"
    tables: ClassVar[dict[str, frozenset[str]]] = {
        "sessions": frozenset({"id", "parent_session_id", "title"}),
        "messages": frozenset({"id", "session_id", "role", "parts", "model", "created_at", "finished_at"}),
    }
    session_query = _SESSIONS
    id_query = _IDS

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(home)
        self.root = root
        self._read: tuple[object, dict[Path, str]] = None, {}

    @property
    def folders(self) -> list[Path]:
        return [self.root, *self._projects()]

    def discover(self) -> Iterator[FoundTranscript]:
        for folder in sorted(self._projects()):
            path = folder / _NAME
            if is_plain_file(path):
                yield FoundTranscript(path)

    def concerns(self, path: str) -> bool:
        found = Path(path)
        return found.name.removesuffix(JOURNAL_ENDING) == _NAME and found.parent in self._projects()

    def messages(self, database: apsw.Connection, session: str, start: int) -> Iterator[StoredMessage]:
        parent = database.execute("SELECT parent_session_id FROM sessions WHERE id = ?", (session,)).get
        place = CallPlace(session, self._project_of(Path(database.filename)), subagent=parent is not None)
        earlier = self._waiting(database, place, start)
        held: StoredMessage | None = None
        for message in self._rows(database, place, start, earlier):
            if held is not None:
                yield replace(held, settled=True)
            held = message
        if held is not None:
            yield held

    def _rows(
        self, database: apsw.Connection, place: CallPlace, start: int, calls: Context
    ) -> Iterator[StoredMessage]:
        summary = "is_summary_message" if "is_summary_message" in tables_of(database)["messages"] else "0"
        rows = database.execute(
            f"SELECT id, role, model, created_at, finished_at, {summary},"  # noqa: S608  of fixed names
            " CASE WHEN length(parts) <= ?3 THEN CAST(parts AS BLOB) END"
            " FROM messages WHERE session_id = ?1 ORDER BY rowid LIMIT -1 OFFSET ?2",
            (place.session, start, LINE_BYTES_MAX),
        )
        for number, role, model, created, finished, is_summary, stored in rows:
            moment, parts = moment_of(created), _parts(stored)
            outcomes: Outcomes
            if place.session.startswith(_TITLE):
                outcomes = [SkippedRecord("written by the tool")]
            elif is_summary:
                outcomes = [SkippedRecord("compaction summary")]
            else:
                texts, outcomes = _said(role, parts)
                if texts:
                    outcomes.append(
                        TranscriptMessage(
                            message=str(number),
                            session=place.session,
                            texts=texts,
                            moment=moment,
                            dated=moment > 0,
                            cwd=place.cwd,
                            subagent=place.subagent,
                            model=as_text(model) or "",
                        )
                    )
                outcomes += self._happened(parts, moment, place, calls)
            ended = finished is not None or any(part.get("type") == "finish" for part in parts or ())
            yield StoredMessage(str(number), outcomes, settled=role != "assistant" or ended)

    def _happened(
        self, parts: list[dict[str, Any]] | None, moment: int, place: CallPlace, calls: Context
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        for part in parts or ():
            data = as_object(part.get("data"))
            if part.get("type") == "tool_call":
                call = opened(data.get("id"), data.get("name"), data.get("input"), moment)
                yield from hold(calls, call, self.actions, place)
            elif part.get("type") == "tool_result":
                failed = data.get("is_error") is True
                ending = Ending(failed=failed, text=result_text(data.get("content")), at=moment)
                yield from answer(calls, data.get("tool_call_id"), ending, self.actions, place)

    def _waiting(self, database: apsw.Connection, place: CallPlace, start: int) -> Context:
        """The calls that wait behind the first ``start`` messages: their results are in a message of their own."""
        calls = Context()
        if self.actions is not ActionDetail.OFF and start:
            first = max(start - _LOOKED_BACK, 0)
            query = (
                "SELECT created_at, CASE WHEN length(parts) <= ?4 THEN CAST(parts AS BLOB) END"
                " FROM messages WHERE session_id = ?1 ORDER BY rowid LIMIT ?2 OFFSET ?3"
            )
            bindings = (place.session, start - first, first, LINE_BYTES_MAX)
            for created, stored in database.execute(query, bindings):
                for _ in self._happened(_parts(stored), moment_of(created), place, calls):
                    pass
        return calls

    def _projects(self) -> dict[Path, str]:
        """The projects' folders by their data folders, as Crush lists them; none if it has no list."""
        try:
            with open_regular(self.root / _LIST) as file:
                found = (self.root / _LIST).stat()
                stamp = found.st_mtime_ns, found.st_size, found.st_ino
                if self._read[0] != stamp:
                    listed = as_object(parse_json(file.read(LIST_BYTES_MAX)))
                    named = _folders(listed)
                    self._read = stamp, {folder: of for folder, of in named if self._is_bounded(folder, of)}
        except (OSError, ValueError):
            self._read = None, {}
        return self._read[1]

    def _is_bounded(self, folder: Path, project: str) -> bool:
        """Whether a data folder, its links followed, may be watched: it is its project's ``.crush``, or below the project, the
        home or ``root``. A project that contains the home, such as ``/``, adds only its ``.crush``."""
        try:
            really, of, home, root = (one.resolve() for one in (folder, Path(project), self._home, self.root))
        except (OSError, RuntimeError):
            return False
        if really == of / _FOLDER:
            return True
        within = [home, root] if home.is_relative_to(of) else [home, root, of]
        return not home.is_relative_to(really) and any(one in really.parents for one in within)

    def _project_of(self, path: Path) -> str:
        project = self._projects().get(path.parent, "")
        return project or (str(path.parent.parent) if path.parent.name == _FOLDER else "")


def _folders(listed: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for one in as_array(listed.get("projects"))[:PROJECTS_MAX]:
        project = as_text(as_object(one).get("path")) or ""
        folder = as_text(as_object(one).get("data_dir")) or _FOLDER
        if Path(project).is_absolute() and "\0" not in project + folder:
            yield Path(project, folder), project


def _said(role: object, parts: list[dict[str, Any]] | None) -> tuple[dict[str, str], Outcomes]:
    """Texts by role of one message, and why parts of it were skipped."""
    if role not in _ROLES or parts is None:
        return {}, [SkippedRecord("message system")] if role == "system" else [UNKNOWN_FORM]
    blocks: list[tuple[str, str]] = []
    silent: Outcomes = []
    for part in parts:
        kind, data = part.get("type"), as_object(part.get("data"))
        text = as_text(data.get("thinking" if kind == "reasoning" else "text"))
        if kind not in ("text", "reasoning") or text is None:
            known = isinstance(kind, str) and kind in _SILENT_PARTS
            silent.append(SkippedRecord(f"part {kind}" if known else "block of unknown form"))
        elif data.get("hidden") is True:
            silent.append(SkippedRecord("written by the tool"))
        else:
            blocks.append(("thinking" if kind == "reasoning" else str(role), plain(text)))
    texts = joined(blocks)
    return texts, silent or ([] if texts else [SkippedRecord("no text")])


def _parts(stored: object) -> list[dict[str, Any]] | None:
    """The parts of a message; None if it is of no known form."""
    try:
        data = stored if isinstance(stored, bytes) else b""
        if data.startswith(_ZSTD):
            data = decompress_at_most(data, LINE_BYTES_MAX)
        parts = parse_json(data)
    except (ValueError, Malformed):
        return None
    return [as_object(part) for part in parts] if is_array(parts) else None
