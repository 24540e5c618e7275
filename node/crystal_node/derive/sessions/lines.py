"""One pass over new lines of a tool's file: what was said in each, when and where, and what of it may be copied."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from crystal_core.cutting.messages import split_message
from crystal_node.base.project import ProjectFinder
from crystal_node.capture.context import Context, decoded
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.json_values import is_object, parse_json
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.line_reader import MARK_BYTES, FileLine, FileState, LineReader, open_regular
from crystal_node.capture.messages import TranscriptMessage
from crystal_node.capture.openclaw_database import SessionRows, rows_state_at, store_of
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact
from crystal_node.derive.sessions.database import Cursor
from crystal_node.derive.sessions.facts import Facts, facts_of
from crystal_node.derive.sessions.line_redaction import LineRedactor, blank, blank_strings, times_of
from crystal_node.device.privacy import Privacy


@dataclass
class LinesPass:
    """Lines of one pass, and what is known of them. ``texts``: what was said in each, as the memory has it, by its hash."""

    cursor: Cursor
    lines: list[FileLine]
    endings: list[bytes]
    hidden: list[bool]
    texts: list[dict[bytes, str]]
    state: FileState
    context: bytes
    moment: int
    more: bool
    ended: bool
    cwd: str
    repository: str
    facts: list[Facts] = field(default_factory=list[Facts])
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Role and text of the messages that are not hidden."""
    left_out: int = 0
    restarted: bool = False

    @property
    def hashes(self) -> set[bytes]:
        return {each for texts in self.texts for each in texts}


def read_lines(
    adapter: LineAdapter,
    person_home: Path,
    path: Path,
    cursor: Cursor,
    privacy: Privacy,
    exclusions: Exclusions,
    quiet_ns: int,
) -> LinesPass:
    """The next lines of a file, at most ``PASS_BYTES_MAX``, and what is known of them. Raises OSError."""
    context = decoded(cursor.context)
    finder = ProjectFinder(person_home)
    lines: list[FileLine] = []
    endings: list[bytes] = []
    left_out = 0
    ended = False
    database = store_of(path) is not None
    with SessionRows(path, cursor.state) if database else LineReader(path, cursor.state, quiet_ns) as reader:
        restarted = reader.restarted
        for line in reader.lines():
            if line.data is None:
                left_out += 1
            elif not (cursor.ended and not lines and not line.data):
                lines.append(line)
                endings.append(b"\r\n" if line.end - line.start - len(line.data) == 2 else b"\n")
        last = reader.unended
        if last is not None and last.data is not None and _is_record(last.data):
            reader.take_unended()
            lines.append(last)
            endings.append(b"\n")
            ended = True
        state, more = reader.state(), reader.more
    found = LinesPass(
        cursor, lines, endings, [], [], state, b"", cursor.moment, more, ended, cursor.cwd, cursor.repository,
        left_out=left_out, restarted=restarted,
    )  # fmt: skip
    for line in lines:
        _look(adapter, line, path, context, found, privacy, exclusions, finder)
    found.context = context.encoded()
    return found


def blanked(found: LinesPass, forgotten: set[bytes], redactor: LineRedactor) -> list[bytes]:
    """The lines as they are copied."""
    lost = {text for texts in found.texts for mark, text in texts.items() if mark in forgotten}
    done: list[bytes] = []
    for line, end, hidden, texts in zip(found.lines, found.endings, found.hidden, found.texts, strict=True):
        kept = redactor.line((line.data or b"") + end, hidden=hidden)
        if lost:
            without = blank(kept, lost)
            mine = {text for mark, text in texts.items() if mark in forgotten}
            kept = blank_strings(without) if mine and without == kept else without
        done.append(kept)
    return done


def state_at(path: Path, offset: int) -> FileState:
    """The state of a transcript that was read up to an offset. Raises OSError."""
    if store_of(path) is not None:
        return rows_state_at(path, offset)
    with open_regular(path) as file:
        head = file.read(min(MARK_BYTES, offset))
        start = max(0, offset - MARK_BYTES)
        file.seek(start)
        tail = file.read(offset - start)
    return FileState(
        offset=offset,
        head_bytes=len(head),
        head=sha256(head).digest(),
        tail_bytes=len(tail),
        tail=sha256(tail).digest(),
    )


def _look(
    adapter: LineAdapter, line: FileLine, path: Path, context: Context, found: LinesPass, privacy: Privacy,
    exclusions: Exclusions, finder: ProjectFinder,
) -> None:  # fmt: skip
    """Notes of one line what was said in it, when, where, and whether it may be copied."""
    data = line.data or b""
    record = _record(data)
    facts = facts_of(record)
    spoken = [
        one
        for one in adapter.said(data, context, LinePosition(path, line.start))
        if isinstance(one, TranscriptMessage)
    ]
    cwd = facts.cwd or next((one.cwd for one in spoken if one.cwd), "")
    if cwd and cwd != found.cwd:
        found.cwd, found.repository = cwd, finder.of(cwd).repository
    times = list(times_of(record))
    before, found.moment = found.moment, max(times, default=found.moment)
    hidden = any(map(privacy.hides, times)) or exclusions.hides(found.cwd, found.repository, found.moment)
    if not times:  # it was written between the last time that is known and now
        hidden |= any(last >= before for _, last in privacy.spans)
    found.hidden.append(hidden)
    texts: dict[bytes, str] = {}
    for one in spoken:
        for role, text in one.texts.items():
            kept = redact(without_private(text) if role == "user" else text).text
            if not hidden and kept.strip() and not one.subagent:
                found.said.append((role, kept))
            texts.update((sha256(piece.encode()).digest(), piece) for piece in split_message(kept))
    found.texts.append(texts)
    if not hidden:
        found.facts.append(facts)


def _record(line: bytes) -> dict[str, object]:
    try:
        record = parse_json(line)
    except ValueError:
        return {}
    return record if is_object(record) else {}


def _is_record(line: bytes) -> bool:
    try:
        return is_object(parse_json(line))
    except ValueError:
        return False
