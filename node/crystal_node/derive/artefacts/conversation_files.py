"""Files of a conversation, and of a day.

The files of a changed conversation are made when it has been quiet for ten minutes, or every hour while it goes on; at once if
it lost a text. Steps, each of which can be repeated:

    which files there will be is noted  ->  they are written  ->  files no longer wanted are removed
    ->  its days are noted, and that it has no changes left  ->  the logs of those days are written

A file that a person changed stays as it is, which is reported once; if it is removed, it is made again. It is replaced only if
it may hold a text that was forgotten since, and that is reported, too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from crystal_core.database import Database
from crystal_mirror.files.ports import DiskFull, FileTrouble
from crystal_node.derive.artefacts.conversation import SHOWN, Conversation, ConversationPiece
from crystal_node.derive.artefacts.daily import DayLine, daily_log
from crystal_node.derive.artefacts.dates import UNDATED, day_of
from crystal_node.derive.artefacts.summaries import Extract, ModelSummary, summary
from crystal_node.derive.artefacts.transcripts import transcript
from crystal_node.derive.artefacts.writer import ArtefactOutcome, ArtefactWriter
from crystal_node.derive.catalog.agents import StagingState, has_files, has_staged_files
from crystal_node.derive.catalog.database import Catalog
from crystal_node.sync.files.artefacts import (
    ArtefactPlace,
    daily_place,
    staged_transcript,
    summary_name,
    summary_place,
    transcript_place,
)

QUIET_MS = 10 * 60 * 1000
GOING_ON_MS = 3600 * 1000
LOOK_MS = 3600 * 1000
"""Interval of checking that all files exist."""
DAYS_MAX = 1000
"""Days of a conversation with a line in a daily log."""

_DUE = """
SELECT id, last_at <= ?1 OR changed_at <= ?1 FROM conversation
WHERE dirty_since > 0 AND (lost = 1 OR last_at <= ?1 OR changed_at <= ?1 OR dirty_since <= ?2 OR dirty_since > ?5)
AND (problem = '' OR changed_at <= ?1 OR changed_at > ?5) AND id > ?3 ORDER BY id LIMIT ?4
"""
_REQUEST = f"""
SELECT c.text, o.project FROM occurrences o JOIN chunks c ON c.rowid = o.chunk
WHERE o.rowid = ? AND o.agent = ? AND o.session = ? AND {SHOWN}
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class DueConversation:
    """A conversation whose files are to be made. ``quiet``: nothing was added for a while."""

    conversation: int
    quiet: bool


@dataclass
class Made:
    """What was done. ``written``: files that changed."""

    conversations: int = 0
    written: int = 0
    removed: int = 0

    def add(self, outcome: ArtefactOutcome) -> None:
        self.written += outcome in (ArtefactOutcome.WRITTEN, ArtefactOutcome.REPLACED)


@dataclass
class _Share:
    """A conversation's part of a day. ``request``: rowid of the person's first message, 0 if none."""

    first_at: int
    last_at: int
    pieces: int = 0
    request: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    agent: str
    session: str
    lost: bool
    state: StagingState


@dataclass
class _Passing:
    """Collects what the summary and the days need, while the pieces are written."""

    zone: tzinfo
    extract: Extract = field(default_factory=Extract)
    days: dict[str, _Share] = field(default_factory=dict[str, _Share])

    def over(self, pieces: Conversation) -> Iterator[ConversationPiece]:
        for rowid, piece in pieces.numbered():
            self.extract.take(piece)
            self._share(rowid, piece)
            yield piece

    def _share(self, rowid: int, piece: ConversationPiece) -> None:
        day = day_of(piece.created_at, self.zone)
        if day is None:
            return
        name = day.isoformat()
        share = self.days.get(name)
        if share is None:
            if len(self.days) >= DAYS_MAX:
                return
            share = self.days[name] = _Share(piece.created_at, piece.created_at)
        share.first_at = min(share.first_at, piece.created_at)
        share.last_at = max(share.last_at, piece.created_at)
        share.pieces += 1
        if piece.role == "user" and not share.request:
            share.request = rowid


class ConversationFiles:
    """Makes the files of changed conversations. ``tell`` is told what a person should know. One thread at a time."""

    def __init__(
        self,
        works: Catalog,
        database: Database,
        writer: ArtefactWriter,
        *,
        zone: tzinfo,
        names: Mapping[bytes, str],
        tell: Callable[[str], None],
    ) -> None:
        self._works, self._database, self._writer = works, database, writer
        self._zone, self._names, self._tell = zone, names, tell

    def prepare(self, now_ms: int) -> None:
        """Marks files to be made again for other reasons than new rows: another time zone, a missing file."""
        works, zone = self._works, str(self._zone).encode()
        if works.meta("zone") != zone:
            with works.transaction():
                works.run("UPDATE conversation SET dirty_since = ?, changed_at = 0 WHERE made = 1", (now_ms,))
                works.set_meta("zone", zone)
        for path, conversation, agent, kept in self._to_look_at(now_ms):
            if self._writer.is_changed(path) if kept else self._writer.is_there(path):
                continue
            with works.transaction():
                works.run("UPDATE work SET kept = 0 WHERE path = ?", (path,))
                if conversation:
                    works.run(
                        "UPDATE conversation SET dirty_since = ?, changed_at = 0 WHERE id = ?",
                        (now_ms, conversation),
                    )
                else:
                    day = path.rpartition("/")[2].removesuffix(".md")
                    works.run(
                        "INSERT INTO stale_day VALUES (?, ?, 0, '') ON CONFLICT DO NOTHING", (agent, day)
                    )

    def _to_look_at(self, now_ms: int) -> list[tuple[str, int, str, int]]:
        """Files that a person changed; every hour all files, to find those that were removed."""
        works = self._works
        looked = int(works.meta("looked") or b"0")
        if 0 <= now_ms - looked < LOOK_MS:
            return works.rows("SELECT path, conversation, agent, kept FROM work WHERE kept = 1")
        works.set_meta("looked", b"%d" % now_ms)
        return works.rows("SELECT path, conversation, agent, kept FROM work WHERE path LIKE 'agents/%'")

    def due(self, now_ms: int, *, after: int = 0, limit: int = 50) -> list[DueConversation]:
        """Conversations whose files are due, by number, after ``after``."""
        # A time later than now is of a clock that was set back since: do not wait for it.
        rows = self._works.rows(_DUE, (now_ms - QUIET_MS, now_ms - GOING_ON_MS, after, limit, now_ms))
        return [DueConversation(conversation, bool(quiet)) for conversation, quiet in rows]

    def make(self, conversation: int, *, now_ms: int, digest: ModelSummary | None = None) -> Made:
        """Makes a conversation's files. A file that cannot be written is reported, noted, and retried later.

        Raises:
            NoRoom: the disk is full.
        """
        row = self._row(conversation)
        if row is None:
            return Made()
        try:
            with self._database.snapshot():
                return self._make(row, digest)
        except DiskFull:
            raise
        except FileTrouble as error:
            problem = str(error)
            before = self._works.value("SELECT problem FROM conversation WHERE id = ?", (row.id,))
            self._works.run(
                "UPDATE conversation SET problem = ?, changed_at = ? WHERE id = ?", (problem, now_ms, row.id)
            )
            if before != problem:
                self._tell(f"a file of {row.agent[:40]!r} cannot be written: {problem}")
            return Made()

    def make_days(self) -> Made:
        """Writes the daily logs that changed. Raises NoRoom."""
        made = Made()
        for agent, day, lost, problem in self._works.rows("SELECT * FROM stale_day ORDER BY agent, day"):
            try:
                with self._database.snapshot():
                    self._make_day(agent, day, bool(lost), made)
            except DiskFull:
                raise
            except FileTrouble as error:
                if str(error) != problem:
                    self._tell(f"the log of {day} of {agent[:40]!r} cannot be written: {error}")
                self._works.run(
                    "UPDATE stale_day SET problem = ? WHERE agent = ? AND day = ?", (str(error), agent, day)
                )
                continue
            self._works.run("DELETE FROM stale_day WHERE agent = ? AND day = ?", (agent, day))
        return made

    def conversation(self, conversation: int) -> Conversation | None:
        """The conversation's pieces; read it within one snapshot of the database."""
        row = self._row(conversation)
        return (
            None if row is None else Conversation(self._database, row.agent, row.session, self._rowids(row))
        )

    def _make(self, row: _Row, digest: ModelSummary | None) -> Made:
        made = Made(conversations=1)
        rowids = self._rowids(row)
        pieces = Conversation(self._database, row.agent, row.session, rowids)
        passing = _Passing(self._zone)
        wanted: set[str] = set()
        if rowids and has_staged_files(row.state):
            place = staged_transcript(row.agent, row.session)
            self._note(place, row, wanted)
            # Staged files are not for people to change: a change there is replaced.
            made.add(
                self._writer.write(place, transcript(row.agent, row.session, pieces), whatever_is_there=True)
            )
        if rowids and has_files(row.state):
            place = transcript_place(row.agent, row.session)
            self._note(place, row, wanted)
            self._write(place, transcript(row.agent, row.session, passing.over(pieces)), row, made)
            if not passing.extract.pieces:  # a person's own file is there: nothing has been read
                for _ in passing.over(pieces):
                    pass
            place = summary_place(row.agent, row.session, min(passing.days, default=UNDATED))
            self._note(place, row, wanted)
            text = summary(
                row.agent, row.session, passing.extract, zone=self._zone, names=self._names, digest=digest
            )
            self._write(place, [text], row, made)
        self._remove_others(row, wanted, made)
        self._done(row, passing.days, gone=not rowids)
        return made

    def _write(
        self, place: ArtefactPlace, content: "Iterator[bytes] | list[bytes]", row: _Row, made: Made
    ) -> None:
        outcome = self._writer.write(place, content, whatever_is_there=row.lost)
        made.add(outcome)
        self._told(place.path, outcome)

    def _make_day(self, agent: str, day: str, lost: bool, made: Made) -> None:
        place = daily_place(agent, day)
        state = self._works.value("SELECT state FROM agent WHERE agent = ?", (agent,))
        lines = list(self._lines(agent, day)) if state is not None and has_files(StagingState(state)) else []
        if lines:
            self._works.run(
                "INSERT INTO work VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING", (place.path, agent)
            )
            outcome = self._writer.write(
                place, [daily_log(agent, day, self._zone, lines)], whatever_is_there=lost
            )
            made.add(outcome)
            self._told(place.path, outcome)
        else:
            self._remove(place.path, lost, made)

    def _lines(self, agent: str, day: str) -> Iterator[DayLine]:
        for session, first_at, last_at, pieces, request, start in self._works.rows(
            "SELECT c.session, d.first_at, d.last_at, d.pieces, d.request,"
            " (SELECT min(day) FROM day WHERE conversation = c.id)"
            " FROM day d JOIN conversation c ON c.id = d.conversation WHERE c.agent = ? AND d.day = ?",
            (agent, day),
        ):
            found = self._database.row(_REQUEST, (request, agent, session)) if request else None
            text, project = found if found is not None else ("", "")
            yield DayLine(first_at, last_at, pieces, project, text, summary_name(session, start))

    def _note(self, place: ArtefactPlace, row: _Row, wanted: set[str]) -> None:
        wanted.add(place.path)
        self._works.run(
            "INSERT INTO work VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING", (place.path, row.agent, row.id)
        )

    def _told(self, path: str, outcome: ArtefactOutcome) -> None:
        if outcome is ArtefactOutcome.KEPT and self._works.run(
            "UPDATE work SET kept = 1 WHERE path = ? AND kept = 0", (path,)
        ):
            self._tell(f"{path} was changed by somebody and stays as it is; remove it to have it made again")
        elif outcome is ArtefactOutcome.REPLACED:
            self._works.run("UPDATE work SET kept = 0 WHERE path = ?", (path,))
            self._tell(
                f"{path} was changed by somebody; it is made again, because a text in it was forgotten"
            )

    def _remove_others(self, row: _Row, wanted: set[str], made: Made) -> None:
        for (path,) in self._works.rows("SELECT path FROM work WHERE conversation = ?", (row.id,)):
            if path not in wanted:
                self._remove(path, row.lost or path.startswith("staging/"), made)

    def _remove(self, path: str, whatever_is_there: bool, made: Made) -> None:
        outcome = self._writer.remove(path, whatever_is_there=whatever_is_there)
        made.removed += outcome in (ArtefactOutcome.WRITTEN, ArtefactOutcome.REPLACED)
        if outcome is ArtefactOutcome.KEPT:
            self._tell(f"{path} is not kept up any more; it was changed by somebody and stays as it is")
        self._works.run("DELETE FROM work WHERE path = ?", (path,))

    def _done(self, row: _Row, days: Mapping[str, _Share], *, gone: bool) -> None:
        works = self._works
        with works.transaction():
            before = {day for (day,) in works.rows("SELECT day FROM day WHERE conversation = ?", (row.id,))}
            works.run("DELETE FROM day WHERE conversation = ?", (row.id,))
            works.run_many(
                "INSERT INTO day VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (row.id, day, share.first_at, share.last_at, share.pieces, share.request)
                    for day, share in days.items()
                ],
            )
            works.run_many(
                "INSERT INTO stale_day VALUES (?1, ?2, ?3, '') ON CONFLICT DO UPDATE SET lost = max(lost, ?3)",
                [(row.agent, day, int(row.lost)) for day in sorted(before | days.keys())],
            )
            if gone:
                works.run("DELETE FROM conversation WHERE id = ?", (row.id,))
                works.run("DELETE FROM digest WHERE conversation = ?", (row.id,))
                return
            works.run(
                "UPDATE conversation SET dirty_since = 0, lost = 0, problem = '', staged = ?, made = ? WHERE id = ?",
                (int(has_staged_files(row.state)), int(has_files(row.state)), row.id),
            )

    def _row(self, conversation: int) -> _Row | None:
        rows = self._works.rows(
            "SELECT c.id, c.agent, c.session, c.lost, a.state FROM conversation c JOIN agent a ON a.agent = c.agent"
            " WHERE c.id = ?",
            (conversation,),
        )
        if not rows:
            return None
        number, agent, session, lost, state = rows[0]
        return _Row(number, agent, session, bool(lost), StagingState(state))

    def _rowids(self, row: _Row) -> list[int]:
        rows = self._works.rows("SELECT occurrence FROM piece WHERE conversation = ? ORDER BY 1", (row.id,))
        return [rowid for (rowid,) in rows]
