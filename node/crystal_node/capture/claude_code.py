"""The adapter for Claude Code's transcripts.

``<root>/projects/<folder>/<session>.jsonl`` holds one record a line; sub-agents have their own files below the session's.
Kept are the words of the person and the model, and the model's thinking. Tool calls and their results, the tool's own
records, mark-up, and the summary that a compaction writes into the person's mouth are not. The format changes without
notice: unknown records are counted and stepped over, known ones may lack any field.

Resuming a session copies its history into a new file. The copies have the same texts, so they become no new chunks; where the
copy has a session id of its own, that session is kept as one more place that the text came from.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from crystal_core.chunking import split_message
from crystal_mirror.operations import OPERATION_BYTES_MAX, PIECES_MAX, Capture, Piece
from crystal_node.capture.adapter import Counts, Found, Hides, Reading
from crystal_node.capture.follow import FileState, LineReader
from crystal_node.capture.project import Place, Places
from crystal_node.capture.records import Blank, Damage, Record, bounded, milliseconds, parse_line
from crystal_node.capture.redact import redact
from crystal_node.capture.words import Silent, cleaned_texts, words_of

OPERATION_TEXT_BYTES = OPERATION_BYTES_MAX * 3 // 4
"""UTF-8 bytes of the pieces of one operation; the rest is for what they have in common."""
PIECE_BYTES_BESIDE_TEXT = 300
"""At most, encoded: message id (``records.ID_BYTES_MAX``), role, moment, part."""

_SESSION_FILE = re.compile(r"[^/\\]{1,255}\.jsonl")


class ClaudeCode:
    """See the module. ``root`` is Claude Code's folder (``~/.claude``), ``home`` the person's home folder."""

    name = "claude-code"

    def __init__(self, root: Path, home: Path) -> None:
        self._projects = root / "projects"
        self._home = home

    @property
    def folder(self) -> Path:
        """Where the transcripts are, to be watched."""
        return self._projects

    def discover(self) -> Iterator[Found]:
        yield from transcripts_in(self._projects)

    def concerns(self, path: str) -> bool:
        # Events may name the real folder where we name a link to it.
        folders = (self._projects, self._projects.resolve())
        named_so = _SESSION_FILE.fullmatch(Path(path).name) is not None
        return named_so and any(Path(path).is_relative_to(folder) for folder in folders)

    def skip(self, path: Path) -> FileState:
        with LineReader(path, None) as reader:
            return reader.skip_to_end()

    def read(self, path: Path, state: FileState | None, *, agent: str, hides: Hides) -> Reading:
        counts = Counts()
        builder = _Builder(agent, self.name)
        with LineReader(path, state) as reader:
            if reader.restarted:
                counts.skipped["file replaced, read again"] += 1
            undated_hidden = reader.restarted and reader.stepped_over
            one_pass = _Pass(path, Places(self._home), hides, undated_hidden, counts, builder)
            for line in reader.lines():
                one_pass.take(line.data, line.start)
            return Reading(builder.finish(), reader.state(), counts, reader.more)


def transcripts_in(folder: Path) -> Iterator[Found]:
    """All files below a folder that are named like transcripts, in order, and what could not be looked into. Links are
    not followed; a folder that does not exist holds none."""
    problems: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=problems.append):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if _SESSION_FILE.fullmatch(name) and not path.is_symlink():
                yield Found(path)
    for problem in problems:
        if not isinstance(problem, FileNotFoundError):
            yield Found(Path(problem.filename), f"cannot be looked into: {problem.strerror}")


class _Pass:
    """What the lines of one pass over one file have in common.

    ``undated_hidden``: what bears no time is left out, because it may be what was stepped over before.
    """

    def __init__(
        self,
        path: Path,
        places: Places,
        hides: Hides,
        undated_hidden: bool,
        counts: Counts,
        builder: "_Builder",
    ) -> None:
        self._path, self._places, self._counts, self._builder = path, places, counts, builder
        self._hides, self._undated_hidden = hides, undated_hidden

    def take(self, line: bytes | None, start: int) -> None:
        """One line; None stands for one over the limit."""
        if line is None:
            self._counts.damaged(self._path, start, "line too long")
            return
        parsed = parse_line(line)
        if isinstance(parsed, Damage):
            self._counts.damaged(self._path, start, parsed.value)
        elif not isinstance(parsed, Blank):
            self._record(parsed, start)

    def _record(self, record: Record, start: int) -> None:
        words = words_of(record)
        if isinstance(words, Silent):
            if words.damaged:
                self._counts.damaged(self._path, start, words.reason)
            else:
                self._counts.skipped[words.reason] += 1
            return
        moment = milliseconds(record.timestamp)
        if self._hides(moment) or (self._undated_hidden and moment == 0):
            self._counts.skipped["private"] += 1
            return
        texts = cleaned_texts(words, self._counts.skipped)
        if texts:
            self._counts.messages += 1
            self._add(record, moment, texts)

    def _add(self, record: Record, moment: int, texts: dict[str, str]) -> None:
        session = bounded(record.session) or bounded(_session_of(self._path))
        place = self._places.of(record.cwd or "")
        message = bounded(record.uuid)
        part = 0
        for role, text in texts.items():
            redacted = redact(text)
            self._counts.redacted.update(redacted.counts)
            marked = f"subagent-{role}" if record.is_sidechain else role
            for piece in split_message(redacted.text):
                self._builder.add(session, place, Piece(piece, marked, moment, message, part))
                part += 1


class _Builder:
    """Gathers pieces into operations: one session and place each, within the limits, in the order of the transcript."""

    def __init__(self, agent: str, source: str) -> None:
        self._agent, self._source = agent, source
        self._done: list[Capture] = []
        self._common: tuple[str, Place] = "", Place("", "")
        self._pieces: list[Piece] = []
        self._bytes = 0

    def add(self, session: str, place: Place, piece: Piece) -> None:
        size = len(piece.text.encode()) + PIECE_BYTES_BESIDE_TEXT
        full = len(self._pieces) >= PIECES_MAX or self._bytes + size > OPERATION_TEXT_BYTES
        if full or (session, place) != self._common:
            self._flush()
        self._common = session, place
        self._pieces.append(piece)
        self._bytes += size

    def finish(self) -> list[Capture]:
        self._flush()
        return self._done

    def _flush(self) -> None:
        if not self._pieces:
            return
        session, (project, repository) = self._common
        self._done.append(
            Capture(self._agent, session, project, repository, self._source, tuple(self._pieces))
        )
        self._pieces, self._bytes = [], 0


def _session_of(path: Path) -> str:
    """The session that a file belongs to, from its place: a sub-agent's file stands below its session's folder."""
    return path.parent.parent.name if path.parent.name == "subagents" else path.stem
