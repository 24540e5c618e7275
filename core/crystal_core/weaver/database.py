"""The Dream Weaver's database ``weaver.db``: pieces read, calls to the model, answers.

    run     OPEN ──► DONE                     at most one is OPEN for an agent and method
              │ └──► STOPPED (by the budget) ──► OPEN, with a new leg
              └────► ABANDONED                (a full run was asked for in its place)
    batch   OPEN ──► DONE                     at most one is OPEN in a run; what it reads is fixed when it begins
    call    ASKED ──► ANSWERED                an answer is here, durable, before anything is made of it
              └─────► LOST, FAILED            LOST may have been paid and counts in full; FAILED cost nothing

A call still ASKED when a run continues was cut off by a crash and may have been paid, so it counts in full too. A leg is the
part of a run under one budget: it continues after a crash, and a new one begins after the budget has stopped the run.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from crystal_core.errors import SchemaTooNew, VaultDamaged
from crystal_core.llm.port import Completion
from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_core.weaver.records import CallState, Method, Run, RunState, Spent, WeaverBatch

DOCUMENTS = 0
"""Batch number of the calls for a run's documents; batches count from 1."""

_SCHEMA = """
CREATE TABLE run (id TEXT PRIMARY KEY, agent TEXT NOT NULL, method TEXT NOT NULL, mode TEXT NOT NULL, since INTEGER NOT NULL,
                  state TEXT NOT NULL, leg INTEGER NOT NULL, begun_at INTEGER NOT NULL, identity_new INTEGER NOT NULL)
                  WITHOUT ROWID, STRICT;
CREATE INDEX run_by_agent ON run (agent, method, state);
CREATE TABLE batch (run TEXT NOT NULL, number INTEGER NOT NULL, day TEXT NOT NULL, state TEXT NOT NULL, outcome BLOB,
                    PRIMARY KEY (run, number)) WITHOUT ROWID, STRICT;
CREATE TABLE source (run TEXT NOT NULL, number INTEGER NOT NULL, place INTEGER NOT NULL, key BLOB NOT NULL,
                     session BLOB NOT NULL, mark BLOB NOT NULL, PRIMARY KEY (run, number, place)) WITHOUT ROWID, STRICT;
CREATE INDEX source_by_mark ON source (mark);
CREATE TABLE call (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, number INTEGER NOT NULL, step TEXT NOT NULL,
                   leg INTEGER NOT NULL, state TEXT NOT NULL, bound INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
                   tokens_out INTEGER NOT NULL, model TEXT NOT NULL, cut INTEGER NOT NULL, answer TEXT) STRICT;
CREATE INDEX call_by_place ON call (run, number, step);
CREATE TABLE document (agent TEXT NOT NULL, name TEXT NOT NULL, sha256 BLOB NOT NULL, method TEXT NOT NULL,
                       PRIMARY KEY (agent, name)) WITHOUT ROWID, STRICT;
CREATE TABLE assumed (agent TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE self (one INTEGER PRIMARY KEY CHECK (one = 1), id BLOB NOT NULL) STRICT;
INSERT INTO self VALUES (1, randomblob(8));
"""


def _damaged(text: str) -> VaultDamaged:
    return VaultDamaged(
        text,
        hint="Move it away: what was woven stays in the files, and the next run reads everything anew.",
    )


_FILE = SqliteFile(
    application_id=0x43525757,  # "CRWW"
    schema=_SCHEMA,
    busy_milliseconds=10_000,
    damaged=_damaged,
    too_new=SchemaTooNew,
)


class WeaverDatabase:
    """The open file, for one thread at a time. A lock lets one process weave a home at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path | str) -> "WeaverDatabase":
        """Open or create the file. Raises VaultDamaged, SchemaTooNew."""
        return cls(_FILE.open(path))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "WeaverDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        with immediate(self._db):
            yield

    @property
    def id(self) -> str:
        """Random id, which distinguishes this database from another machine's or a lost one."""
        return bytes(_one(self._db, "SELECT id FROM self")).hex()

    def assumed_until(self, agent: str) -> int:
        """Return the time up to which another database has read; 0 if there was none."""
        return int(_one(self._db, "SELECT until FROM assumed WHERE agent = ?", (agent,)) or 0)

    def assume(self, agent: str, until: int) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO assumed VALUES (?, ?)", (agent, until))

    def unfinished(self, agent: str, method: Method) -> Run | None:
        """Return the agent's run that is not over."""
        row = self._db.execute(
            "SELECT id, agent, method, mode, since, state, leg, identity_new FROM run "
            "WHERE agent = ? AND method = ? AND state IN (?, ?) ORDER BY begun_at DESC",
            (agent, method, RunState.OPEN, RunState.STOPPED),
        ).fetchone()
        return None if row is None else _run(row)

    def begin(self, run: Run, now_ms: int) -> None:
        with self.transaction():
            self._db.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.id,
                    run.agent,
                    run.method,
                    run.mode,
                    run.since,
                    run.state,
                    run.leg,
                    now_ms,
                    int(run.identity_new),
                ),
            )

    def set_run(self, run: str, state: RunState, leg: int) -> None:
        with self.transaction():
            self._db.execute("UPDATE run SET state = ?, leg = ? WHERE id = ?", (state, leg, run))

    def done_keys(self, agent: str, methods: Iterable[Method], run: str = "") -> set[bytes]:
        """Return the pieces that runs of these methods have read or are reading: all not abandoned, or only ``run``."""
        wanted = tuple(methods)
        rows = self._db.execute(
            "SELECT DISTINCT s.key FROM source s JOIN batch b ON b.run = s.run AND b.number = s.number "  # noqa: S608
            "JOIN run r ON r.id = s.run WHERE r.agent = ? AND (? = '' OR r.id = ?) "
            "AND (b.state = 'done' OR r.state IN ('open', 'stopped')) "
            f"AND r.method IN ({', '.join('?' * len(wanted))})",
            (agent, run, run, *wanted),
        )
        return {bytes(key) for (key,) in rows}

    def open_batch(self, run: str) -> WeaverBatch | None:
        row = self._db.execute(
            "SELECT number, day FROM batch WHERE run = ? AND state = 'open'", (run,)
        ).fetchone()
        if row is None:
            return None
        number, day = row
        keys = self._db.execute(
            "SELECT key FROM source WHERE run = ? AND number = ? ORDER BY place", (run, number)
        )
        return WeaverBatch(run, number, day, tuple(bytes(key) for (key,) in keys))

    def outcomes(self, run: str, day: str = "") -> list[tuple[str, bytes]]:
        """Return day and outcome of each finished batch of a run, or of one of its days."""
        rows = self._db.execute(
            "SELECT day, outcome FROM batch WHERE run = ? AND state = 'done' AND (? = '' OR day = ?) ORDER BY number",
            (run, day, day),
        )
        return [(day, outcome) for day, outcome in rows]

    def all_outcomes(self, agent: str, method: Method) -> list[tuple[str, str, bytes]]:
        """Return run, day and outcome of each batch since the last finished full run, by day."""
        row = self._db.execute(
            "SELECT max(begun_at) FROM run WHERE agent = ? AND method = ? AND mode = 'full' AND since = 0 AND state = 'done'",
            (agent, method),
        ).fetchone()
        first = 0 if row is None or row[0] is None else row[0]
        rows = self._db.execute(
            "SELECT b.run, b.day, b.outcome FROM batch b JOIN run r ON r.id = b.run WHERE r.agent = ? AND r.method = ? "
            "AND r.begun_at >= ? AND b.state = 'done' ORDER BY b.day = 'undated' DESC, b.day, r.begun_at, b.number",
            (agent, method, first),
        )
        return [(run, day, outcome) for run, day, outcome in rows]

    def outcomes_of_day(self, agent: str, day: str) -> list[bytes]:
        """Return the outcomes of all runs for a day, because its limits apply however often it is woven."""
        rows = self._db.execute(
            "SELECT b.outcome FROM batch b JOIN run r ON r.id = b.run "
            "WHERE r.agent = ? AND b.day = ? AND b.state = 'done' ORDER BY b.number",
            (agent, day),
        )
        return [outcome for (outcome,) in rows]

    def begin_batch(self, run: str, day: str, pieces: Iterable[tuple[bytes, bytes, bytes]]) -> WeaverBatch:
        """Begin a batch. ``pieces``: key, session's mark and the keyed hash under which the text can be forgotten."""
        kept = tuple(pieces)
        with self.transaction():
            number = 1 + _one(self._db, "SELECT coalesce(max(number), 0) FROM batch WHERE run = ?", (run,))
            self._db.execute("INSERT INTO batch VALUES (?, ?, ?, 'open', NULL)", (run, number, day))
            self._db.executemany(
                "INSERT INTO source VALUES (?, ?, ?, ?, ?, ?)",
                [(run, number, place, *piece) for place, piece in enumerate(kept)],
            )
        return WeaverBatch(run, number, day, tuple(key for key, _, _ in kept))

    def shorten_batch(self, batch: WeaverBatch, kept: int) -> WeaverBatch:
        """Reduce the batch to its first pieces; the others wait for the next one."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM source WHERE run = ? AND number = ? AND place >= ?",
                (batch.run, batch.number, kept),
            )
        return WeaverBatch(batch.run, batch.number, batch.day, batch.keys[:kept])

    def finish_batch(self, batch: WeaverBatch, outcome: bytes) -> None:
        with self.transaction():
            self._db.execute(
                "UPDATE batch SET state = 'done', outcome = ? WHERE run = ? AND number = ?",
                (outcome, batch.run, batch.number),
            )

    def read_from(self, mark: bytes) -> list[tuple[Run, WeaverBatch]]:
        """Return the batches that have read a text, by its keyed hash."""
        rows = self._db.execute(
            "SELECT DISTINCT r.id, r.agent, r.method, r.mode, r.since, r.state, r.leg, r.identity_new, b.number, b.day "
            "FROM source s JOIN run r ON r.id = s.run JOIN batch b ON b.run = s.run AND b.number = s.number WHERE s.mark = ?",
            (mark,),
        )
        return [(_run(row[:8]), WeaverBatch(row[0], row[8], row[9], ())) for row in rows]

    def outcome_of(self, batch: WeaverBatch) -> bytes | None:
        row = self._db.execute(
            "SELECT outcome FROM batch WHERE run = ? AND number = ?", (batch.run, batch.number)
        ).fetchone()
        return None if row is None else row[0]

    def forget(self, batch: WeaverBatch, outcome: bytes) -> None:
        """Replace a batch's outcome and delete all answers about it."""
        with self.transaction():
            self._db.execute(
                "UPDATE call SET answer = '' WHERE run = ? AND number = ?", (batch.run, batch.number)
            )
            self._db.execute(
                "UPDATE batch SET state = 'done', outcome = ? WHERE run = ? AND number = ?",
                (outcome, batch.run, batch.number),
            )

    def unmark(self, batch: WeaverBatch) -> None:
        """Delete the keyed hashes of the texts that a batch has read."""
        with self.transaction():
            self._db.execute(
                "UPDATE source SET mark = x'' WHERE run = ? AND number = ?", (batch.run, batch.number)
            )

    def scrub(self) -> None:
        """Remove the bytes of forgotten texts from the write-ahead log."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def sessions_done(self, run: str) -> int:
        return int(_one(self._db, "SELECT count(DISTINCT session) FROM source WHERE run = ?", (run,)))

    def answers(self, run: str, number: int, step: str) -> list[Completion]:
        """Return the answers at this step, in order; there is a second one if the first was unreadable."""
        rows = self._db.execute(
            "SELECT answer, tokens_in, tokens_out, model, cut FROM call "
            "WHERE run = ? AND number = ? AND step = ? AND state = 'answered' ORDER BY id",
            (run, number, step),
        )
        return [Completion(text, took, gave, model, bool(cut)) for text, took, gave, model, cut in rows]

    def ask(self, run: Run, number: int, step: str, bound: int) -> int:
        """Record a call that may cost up to ``bound`` tokens, before it is sent. Returns its id."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO call (run, number, step, leg, state, bound, tokens_in, tokens_out, model, cut) "
                "VALUES (?, ?, ?, ?, ?, ?, 0, 0, '', 0)",
                (run.id, number, step, run.leg, CallState.ASKED, bound),
            )
            return self._db.last_insert_rowid()

    def answered(self, call: int, completion: Completion) -> None:
        """Store an answer durably, so that it is never requested again."""
        with self.transaction():
            self._db.execute(
                "UPDATE call SET state = ?, tokens_in = ?, tokens_out = ?, model = ?, cut = ?, answer = ? WHERE id = ?",
                (
                    CallState.ANSWERED,
                    completion.tokens_in,
                    completion.tokens_out,
                    completion.model,
                    int(completion.cut),
                    completion.text,
                    call,
                ),
            )

    def unanswered(self, call: int, *, paid: bool) -> None:
        with self.transaction():
            self._db.execute(
                "UPDATE call SET state = ? WHERE id = ?",
                (CallState.LOST if paid else CallState.FAILED, call),
            )

    def spent(self, run: str, leg: int | None = None) -> Spent:
        """Return the tokens used by a run, or by one leg of it."""
        row = self._db.execute(
            "SELECT coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), "
            "coalesce(sum(CASE WHEN state IN ('asked', 'lost') THEN bound ELSE 0 END), 0), "
            "coalesce(sum(state IN ('asked', 'lost')), 0) FROM call WHERE run = ? AND (? IS NULL OR leg = ?)",
            (run, leg, leg),
        ).fetchone()
        assert row is not None
        return Spent(*row)

    def written(self, agent: str, name: str) -> tuple[bytes, Method] | None:
        """Return SHA-256 and method of a document as last written."""
        row = self._db.execute(
            "SELECT sha256, method FROM document WHERE agent = ? AND name = ?", (agent, name)
        ).fetchone()
        return None if row is None else (bytes(row[0]), Method(row[1]))

    def set_written(self, agent: str, name: str, digest: bytes, method: Method) -> None:
        with self.transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?)", (agent, name, digest, method)
            )


def _run(row: tuple[Any, ...]) -> Run:
    run, agent, method, mode, since, state, leg, identity_new = row
    return Run(run, agent, Method(method), mode, since, RunState(state), leg, bool(identity_new))


def _one(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> Any:
    row = db.execute(statement, values).fetchone()
    return row[0] if row else None
