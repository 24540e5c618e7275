"""``recall.db``: what agents' sessions were given, so that nothing is given twice, and what it was worth.

Marks are four bytes of a hash of session and id: enough to recognise a record within its session, too little to show what it
was. The log has the ids of what was given for a month, and the first words of prompts, but no recorded text. What is deleted is
overwritten. Nothing here is the only copy of anything: a damaged file is replaced by a new one whenever the damage is met.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

import apsw
from msgspec import Struct

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_node.base.errors import LocalStorage
from crystal_node.search.recall.hook import Recalled

PROMPT_CHARS = 100

KEPT_MILLISECONDS = 14 * 86_400_000
LOG_KEPT_MILLISECONDS = 30 * 86_400_000
LOG_ENTRIES_MAX = 5_000
"""Of about 300 bytes each; the oldest go."""
MARK_BYTES = 4
_DAY = 86_400_000

_SCHEMA = """
CREATE TABLE given (session BLOB NOT NULL, mark INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (session, mark))
    WITHOUT ROWID, STRICT;
CREATE INDEX given_by_time ON given (at);
"""
_LOG = """
CREATE TABLE entry (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, session TEXT NOT NULL, event TEXT NOT NULL,
    mode TEXT NOT NULL, prompt TEXT NOT NULL, prompt_id TEXT NOT NULL, tokens INTEGER NOT NULL,
    judged INTEGER NOT NULL) STRICT;
CREATE INDEX entry_by_time ON entry (at);
CREATE INDEX entry_by_session ON entry (session);
CREATE INDEX entry_unjudged ON entry (at) WHERE judged = 0;
CREATE TABLE record (entry INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, why TEXT NOT NULL,
    relevance REAL NOT NULL, score REAL NOT NULL, used INTEGER, PRIMARY KEY (entry, place)) WITHOUT ROWID, STRICT;
CREATE INDEX record_by_id ON record (id);
CREATE TABLE day (day INTEGER PRIMARY KEY, prompts INTEGER NOT NULL, silent INTEGER NOT NULL) STRICT;
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), mark TEXT NOT NULL) STRICT;
"""
"""The log. ``prompt``: its first words until it was captured, then ``prompt_id`` is its text's. ``judged``: 1 once the answer
was looked at. ``day``: days since 1970, its prompts, and those at which nothing was said. ``mark``: up to which forget it is
good."""

_ENTRIES = """
SELECT number, at, session, event, mode, prompt, prompt_id, tokens, judged, place, id, why, relevance, score, used
FROM entry LEFT JOIN record ON entry = number
"""


def _add_log(db: apsw.Connection) -> None:
    for _ in db.execute(_LOG):
        pass


def _too_new(_: str) -> LocalStorage:
    return LocalStorage(
        "recall.db was made by a later version of Crystal", hint="Update Crystal on this machine."
    )


_FILE = SqliteFile(
    application_id=0x43525952,  # "CRYR"
    schema=_SCHEMA,
    migrations=(_add_log,),
    busy_milliseconds=50,
    damaged=apsw.CorruptError,
    too_new=_too_new,
    synchronous="OFF",
)


class LoggedRecord(Struct, frozen=True):
    """A record that was given. ``used``: whether the answer used its words; None if that is not known (yet)."""

    place: int
    id: str
    why: str
    relevance: float
    score: float
    used: bool | None


class Logged(Struct, frozen=True):
    """What was given at one moment. ``prompt``: its first words, or "" where ``prompt_id`` names the captured one."""

    number: int
    at: int
    session: str
    event: str
    mode: str
    prompt: str
    prompt_id: str
    tokens: int
    judged: bool
    records: list[LoggedRecord]


class Noted(Struct, frozen=True):
    """What one answer changed in the log: its entry, None if it gave nothing; and its day, None if it answered no prompt."""

    entry: int | None
    day: int | None


class DayCount(Struct, frozen=True):
    """The prompts of some days that were looked up, and those at which nothing was said."""

    prompts: int
    silent: int


T = TypeVar("T")


class RecallDatabase:
    """One process's hold of the file. Close it."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    @classmethod
    def open(cls, path: Path) -> "RecallDatabase":
        """Opens or makes it. Raises LocalStorage if a later version made it, apsw.Error."""
        try:
            return cls(_FILE.open(path), path)
        except (apsw.NotADBError, apsw.CorruptError):
            return cls(_new_file(path), path)

    def given(self, session: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that the session was given."""
        key = _session(session)

        def read() -> set[int]:
            found = self._db.execute("SELECT mark FROM given WHERE session = ?", (key,))
            return {mark for (mark,) in cast("Iterable[tuple[int]]", found)}

        marks = self._whole(read)
        return {name for name in ids if _mark(session, name) in marks}

    def note(self, session: str, ids: Iterable[str], now_ms: int) -> None:
        """Note what the session was given, and remove old notes."""
        rows = [(_session(session), _mark(session, name), now_ms) for name in ids]

        def write() -> None:
            self._db.execute("DELETE FROM given WHERE at < ?", (now_ms - KEPT_MILLISECONDS,))
            self._db.executemany("INSERT OR REPLACE INTO given VALUES (?, ?, ?)", rows)

        self._changed(write)

    def strike(self, session: str, ids: Iterable[str]) -> None:
        """Remove notes: the session was not given these after all."""
        rows = [(_session(session), _mark(session, name)) for name in ids]
        self._changed(lambda: self._db.executemany("DELETE FROM given WHERE session = ? AND mark = ?", rows))

    def clear(self, session: str) -> None:
        """Forget what the session was given: its context was emptied."""
        key = (_session(session),)
        self._changed(lambda: self._db.execute("DELETE FROM given WHERE session = ?", key))

    def add(self, recalled: Recalled, prompt: str, now_ms: int) -> Noted:
        """Log what was given, or that nothing was; remove what is old or too much."""
        entry: int | None = None

        def write() -> None:
            nonlocal entry
            entry = None
            self._db.execute("DELETE FROM day WHERE day < ?", ((now_ms - LOG_KEPT_MILLISECONDS) // _DAY,))
            if recalled.mode:
                self._db.execute(
                    "INSERT INTO day VALUES (?1, 1, ?2)"
                    " ON CONFLICT (day) DO UPDATE SET prompts = prompts + 1, silent = silent + ?2",
                    (now_ms // _DAY, not recalled.given),
                )
            if recalled.given:
                # A log that was never compared begins here: what was forgotten before cannot be in it. With another mark
                # than the log's something was forgotten meanwhile: it is compared again.
                self._db.execute(
                    "INSERT INTO mark VALUES (1, ?)"
                    " ON CONFLICT (one) DO UPDATE SET mark = '' WHERE mark <> excluded.mark",
                    (recalled.forget_mark,),
                )
                entry = self._insert(recalled, prompt, now_ms)
                self._trim(now_ms)

        self._changed(write)
        return Noted(entry, now_ms // _DAY if recalled.mode else None)

    def take_back(self, noted: Noted) -> None:
        """Take out of the log what ``add`` put there: it was not given after all."""

        def write() -> None:
            if noted.day is not None:
                self._db.execute(
                    "UPDATE day SET prompts = max(prompts - 1, 0), silent = max(silent - ?, 0) WHERE day = ?",
                    (noted.entry is None, noted.day),
                )
            if noted.entry is not None:
                self._remove([noted.entry])

        self._changed(write)

    def entries(self, *, since_ms: int = 0, session: str = "", unjudged: bool = False) -> list[Logged]:
        """The log, the latest first."""
        query = f"{_ENTRIES} WHERE at >= ?"
        bindings: tuple[int | str, ...] = (since_ms,)
        if session:
            query, bindings = f"{query} AND session = ?", (*bindings, session)
        if unjudged:
            query = f"{query} AND judged = 0"
        query = f"{query} ORDER BY at DESC, number DESC, place"
        return _logged(
            self._whole(lambda: cast("list[Sequence[object]]", self._db.execute(query, bindings).fetchall()))
        )

    def judge(self, entry: Logged, used: dict[int, bool | None], prompt_id: str, *, over: bool) -> None:
        """Note by place which records the answer used, and whether that is all there will be to see."""

        def write() -> None:
            rows = [(value, entry.number, place) for place, value in used.items()]
            self._db.executemany("UPDATE record SET used = ? WHERE entry = ? AND place = ?", rows)
            if prompt_id:
                self._db.execute(
                    "UPDATE entry SET prompt = '', prompt_id = ? WHERE number = ?", (prompt_id, entry.number)
                )
            if over:  # a prompt that was never captured is not kept longer either
                self._db.execute("UPDATE entry SET prompt = '' WHERE number = ?", (entry.number,))
            self._db.execute("UPDATE entry SET judged = ? WHERE number = ?", (over, entry.number))

        self._changed(write)

    def ids(self) -> list[str]:
        """All ids in the log, of records and of prompts."""
        query = "SELECT id FROM record UNION SELECT prompt_id FROM entry WHERE prompt_id <> ''"
        return self._whole(
            lambda: [name for (name,) in cast("list[tuple[str]]", self._db.execute(query).fetchall())]
        )

    def drop(self, ids: Iterable[str], mark: str) -> None:
        """Remove what the log has of these texts. It is good up to that mark then."""
        rows = [(name,) for name in ids]

        def write() -> None:
            self._db.executemany("DELETE FROM record WHERE id = ?", rows)
            self._db.executemany("UPDATE entry SET prompt_id = '' WHERE prompt_id = ?", rows)
            # Which prompt was forgotten cannot be told before it was captured: none of these is kept.
            self._db.execute("UPDATE entry SET prompt = '' WHERE prompt <> ''")
            self._db.execute("INSERT OR REPLACE INTO mark VALUES (1, ?)", (mark,))

        self._changed(write)
        checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
        self._whole(lambda: cast("list[tuple[int, int, int]]", self._db.execute(checkpoint).fetchall()))

    def mark(self) -> str:
        """Up to which forget the log is good; "" if it was never compared."""
        row = self._whole(lambda: self._db.execute("SELECT mark FROM mark").fetchone())
        return str(row[0]) if row else ""

    def days(self, since_ms: int) -> DayCount:
        """The prompts since the day of that moment."""
        query = "SELECT coalesce(sum(prompts), 0), coalesce(sum(silent), 0) FROM day WHERE day >= ?"
        row = self._whole(lambda: self._db.execute(query, (since_ms // _DAY,)).fetchone())
        return DayCount(int(row[0]), int(row[1])) if row else DayCount(0, 0)

    def close(self) -> None:
        self._db.close()

    def _insert(self, recalled: Recalled, prompt: str, now_ms: int) -> int:
        about = (now_ms, recalled.session, recalled.event, recalled.mode, prompt, "", recalled.tokens, 0)
        self._db.execute(
            "INSERT INTO entry (at, session, event, mode, prompt, prompt_id, tokens, judged)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            about,
        )
        number = self._db.last_insert_rowid()
        self._db.executemany(
            "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, NULL)",
            [
                (number, place, each.id, each.why, each.relevance, each.score)
                for place, each in enumerate(recalled.given)
            ],
        )
        return number

    def _trim(self, now_ms: int) -> None:
        old = "SELECT number FROM entry WHERE at < ?"
        many = "SELECT number FROM entry ORDER BY number DESC LIMIT -1 OFFSET ?"
        for query, most in ((old, now_ms - LOG_KEPT_MILLISECONDS), (many, LOG_ENTRIES_MAX)):
            self._remove(
                [
                    number
                    for (number,) in cast("list[tuple[int]]", self._db.execute(query, (most,)).fetchall())
                ]
            )

    def _remove(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        self._db.executemany("DELETE FROM record WHERE entry = ?", rows)
        self._db.executemany("DELETE FROM entry WHERE number = ?", rows)

    def _changed(self, act: Callable[[], object]) -> None:
        """Make a change, whole or not at all."""

        def write() -> None:
            with immediate(self._db):
                act()

        self._whole(write)

    def _whole(self, act: Callable[[], T]) -> T:
        """The result of ``act``, on a new file if damage shows only now."""
        try:
            return act()
        except (apsw.NotADBError, apsw.CorruptError):
            self._db.close()
            self._db = _new_file(self._path)
            return act()


def _logged(rows: Sequence[Sequence[object]]) -> list[Logged]:
    found: dict[int, Logged] = {}
    for row in rows:
        number, at, session, event, mode, prompt, prompt_id, tokens, judged = cast(
            "tuple[int, int, str, str, str, str, str, int, int]", row[:9]
        )
        about = (at, session, event, mode, prompt, prompt_id, tokens, bool(judged))
        entry = found.setdefault(number, Logged(number, *about, []))
        if row[9] is not None:
            place, name, why, relevance, score, used = cast(
                "tuple[int, str, str, float, float, int | None]", row[9:]
            )
            known = None if used is None else bool(used)
            entry.records.append(LoggedRecord(place, name, why, relevance, score, known))
    return list(found.values())


def _new_file(path: Path) -> apsw.Connection:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    return _FILE.open(path)


def _session(session: str) -> bytes:
    return sha256(session.encode("utf-8", "surrogatepass")).digest()[:16]


def _mark(session: str, name: str) -> int:
    digest = sha256(f"{session}\0{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:MARK_BYTES], "big")
