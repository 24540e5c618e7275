"""When this device last captured, sent and received, and since when its rounds fail: notes in the journal for ``status``.

Nothing depends on a note. It is written within a transaction that is made anyway, or in one of its own at most once a minute
(every ten seconds while rounds transfer something); if it cannot be written (a full disk), work goes on without it. Times are
milliseconds by this device's clock.

::

    rounds:   WELL --a round fails--> FAILING since then --another round fails, for whatever reason--> stays
                   <------------------ a round succeeds ----------------------------------------------
"""

from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

import apsw
import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.errors import ExitCode, describe
from crystal_node.device.journal import SqliteJournal

if TYPE_CHECKING:
    from crystal_mirror.round import RoundReport

NOTED_MS = 60_000
"""Minimum time between transactions of notes alone."""
MOVED_MS = 10_000
"""The same after a round that transferred something, which has written much itself."""
STRANGE_LINES = 20
"""So many unknown lines of a tool in a row are reported: its format may have changed."""
STRANGE_TOLD_MS = 7 * 24 * 3_600_000
"""For so long after the last of them."""
PROBLEMS_MAX = 50
"""How many unreadable transcripts are kept."""
TEXT_CHARS_MAX = 500

_META = "node.moment."
_META_TROUBLE = "node.trouble"
_META_PROBLEMS = "node.capture-problems"
_META_STRANGE = "node.capture-strange"


class Activity(StrEnum):
    """What is noted: messages recorded, sent, received, or acknowledged as durable; a completed round; a run of the Dream
    Weaver; a backup."""

    CAPTURE = "capture"
    PUSH = "push"
    PULL = "pull"
    ACK = "ack"
    ROUND = "round"
    WEAVE = "weave"
    BACKUP = "backup"


class RoundFailure(msgspec.Struct, frozen=True, array_like=True):
    """Why rounds fail, and since when."""

    since: int
    at: int
    exit_code: int
    message: str
    hint: str


class UnreadableTranscript(msgspec.Struct, frozen=True, array_like=True):
    """A transcript that could not be read, and why."""

    path: str
    why: str


class UnknownLines(msgspec.Struct, frozen=True, array_like=True):
    """Lines of one tool that were not understood since a message of it was last read: how many, position and fault of the
    first, times of the first and the last."""

    tool: str
    lines: int
    path: str
    offset: int
    why: str
    since: int
    at: int

    def is_told(self, now_ms: int) -> bool:
        """Whether people are told."""
        return self.lines >= STRANGE_LINES and now_ms - self.at < STRANGE_TOLD_MS


_strange = msgspec.msgpack.Decoder(list[UnknownLines])
_trouble = msgspec.msgpack.Decoder(RoundFailure)
_problems = msgspec.msgpack.Decoder(list[UnreadableTranscript])
_encoder = msgspec.msgpack.Encoder()


def note(journal: SqliteJournal, moment: Activity, now_ms: int) -> None:
    """Notes an activity: in the current transaction, else in one of its own at most once a minute."""
    if journal.in_transaction:
        journal.meta_set(_META + moment.value, b"%d" % now_ms)
    elif not 0 <= now_ms - (_read(journal, moment) or 0) < NOTED_MS:
        _write(journal, {moment: now_ms})


def read_moments(journal: SqliteJournal) -> dict[Activity, int]:
    """The time of each activity that ever happened."""
    found = {moment: _read(journal, moment) for moment in Activity}
    return {moment: at for moment, at in found.items() if at is not None}


def read_trouble(journal: SqliteJournal) -> RoundFailure | None:
    """Why the last round failed; None if it succeeded."""
    data = journal.meta_get(_META_TROUBLE)
    try:
        return _trouble.decode(data) if data else None
    except UNDECODABLE:
        return None  # of another version; the next round tells


def read_problems(journal: SqliteJournal) -> list[UnreadableTranscript]:
    """Transcripts that could not be read when last tried."""
    data = journal.meta_get(_META_PROBLEMS)
    try:
        return _problems.decode(data) if data else []
    except UNDECODABLE:
        return []


def note_problems(
    journal: SqliteJournal, found: Iterable[tuple[str, str]], *, looked_at: Iterable[str] | None
) -> None:
    """Keeps what a capture pass could not read. ``looked_at``: the paths that it was given; None for all.

    Writes only if the list has changed.
    """
    before = read_problems(journal)
    fresh = [UnreadableTranscript(path, why[:TEXT_CHARS_MAX]) for path, why in found]
    if looked_at is not None:
        seen = [*looked_at, *(problem.path for problem in fresh)]
        fresh += [problem for problem in before if not any(_is_in(problem.path, path) for path in seen)]
    kept = sorted(fresh, key=lambda problem: problem.path)[:PROBLEMS_MAX]
    if kept != before:
        with suppress(apsw.Error), journal.transaction() as transaction:
            transaction.meta_set(_META_PROBLEMS, _encoder.encode(kept) if kept else None)


def read_strange(journal: SqliteJournal) -> list[UnknownLines]:
    """Unknown lines of each tool, as they were last noted."""
    data = journal.meta_get(_META_STRANGE)
    try:
        return _strange.decode(data) if data else []
    except UNDECODABLE:
        return []


def note_strange(journal: SqliteJournal, found: Iterable[UnknownLines]) -> None:
    """Replaces what was noted. Writes only if it has changed."""
    kept = sorted(found, key=lambda one: one.tool)
    if kept != read_strange(journal):
        with suppress(apsw.Error), journal.transaction() as transaction:
            transaction.meta_set(_META_STRANGE, _encoder.encode(kept) if kept else None)


class RoundNotes:
    """Notes of one process's rounds, written rarely; what waits is written with the next note or by ``flush``."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal
        self._waiting: dict[Activity, int] = {}
        self._written_at: int | None = None

    def succeeded(self, report: "RoundReport", now_ms: int) -> None:
        """Notes a round that completed."""
        done = {
            Activity.ROUND: True,
            Activity.PUSH: bool(report.bytes_pushed),
            Activity.PULL: bool(
                report.bytes_pulled or report.operations_applied or report.operations_collected
            ),
            Activity.ACK: bool(report.settled),
        }
        self._waiting |= {moment: now_ms for moment, was in done.items() if was}
        pause = MOVED_MS if len(self._waiting) > 1 else NOTED_MS
        in_trouble = self._journal.meta_get(_META_TROUBLE) is not None
        if in_trouble or self._written_at is None or not 0 <= now_ms - self._written_at < pause:
            self._written_at = now_ms
            self.flush()

    def failed(self, error: Exception, now_ms: int) -> None:
        """Notes a round that failed. A home held by another process, and a bug, do not count."""
        failure = describe(error)
        if failure.exit_code in (ExitCode.BUSY, ExitCode.UNEXPECTED):
            return
        before = read_trouble(self._journal)
        same = before is not None and before.exit_code == failure.exit_code
        if same and before is not None and 0 <= now_ms - before.at < NOTED_MS:
            return
        since = before.since if before is not None and before.since <= now_ms else now_ms
        message, hint = failure.message[:TEXT_CHARS_MAX], failure.hint[:TEXT_CHARS_MAX]
        trouble = RoundFailure(since, now_ms, failure.exit_code, message, hint)
        with suppress(apsw.Error), self._journal.transaction() as transaction:
            transaction.meta_set(_META_TROUBLE, _encoder.encode(trouble))

    def flush(self) -> None:
        """Writes what waits, and that rounds succeed."""
        if self._waiting:
            _write(self._journal, self._waiting, well=True)
            self._waiting = {}


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _read(journal: SqliteJournal, moment: Activity) -> int | None:
    value = journal.meta_get(_META + moment.value)
    return int(value) if value is not None and value.isdigit() else None


def _write(journal: SqliteJournal, moments: dict[Activity, int], *, well: bool = False) -> None:
    with suppress(apsw.Error), journal.transaction() as transaction:
        for moment, at in moments.items():
            transaction.meta_set(_META + moment.value, b"%d" % at)
        if well:
            transaction.meta_set(_META_TROUBLE, None)
