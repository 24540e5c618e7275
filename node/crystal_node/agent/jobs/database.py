"""``jobs.db``: the last run of each job and how it ended, which jobs are paused, and requests to run one.

The background service writes runs, commands write requests, at the same time, each in a transaction of its own. Nothing here
is the only copy of anything: a damaged file is put aside and a new one made. With ``synchronous=NORMAL`` a killed process loses
nothing, a power cut perhaps the record of the last run.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import apsw

from crystal_core.sqlite_file import MEMORY, SqliteFile, immediate
from crystal_node.base.errors import LocalStorage, NoSuchEntry
from crystal_node.base.jobs import Job, JobOutcome, JobStatus

SAID_CHARS_MAX = 500

_SCHEMA = """
CREATE TABLE job (name TEXT PRIMARY KEY, what TEXT NOT NULL, every REAL NOT NULL, heavy INTEGER NOT NULL,
                  listed INTEGER NOT NULL, paused INTEGER NOT NULL DEFAULT 0, wanted INTEGER NOT NULL DEFAULT 0,
                  served INTEGER NOT NULL DEFAULT 0, started INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0,
                  worked INTEGER NOT NULL DEFAULT 0, outcome TEXT NOT NULL DEFAULT 'never', said TEXT NOT NULL DEFAULT '',
                  failures INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0, put_off TEXT NOT NULL DEFAULT '')
                  WITHOUT ROWID, STRICT;
CREATE TABLE agent (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;
"""
_SELECT = (
    "SELECT name, what, every, heavy, paused, wanted, served, started, ended, worked, outcome, said, failures, next, put_off "
    "FROM job "
)
_ALL = _SELECT + "WHERE listed ORDER BY name"
_ONE = _SELECT + "WHERE name = ?"


def _too_new(_: str) -> LocalStorage:
    return LocalStorage(
        "jobs.db was made by a later version of Crystal", hint="Update Crystal on this machine."
    )


_FILE = SqliteFile(
    application_id=0x4352594A,  # "CRYJ"
    schema=_SCHEMA,
    busy_milliseconds=5_000,
    damaged=apsw.CorruptError,
    too_new=_too_new,
    synchronous="NORMAL",
    secure_delete=False,
)


class JobStore:
    """The file, opened by one process. Close it."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._version = self._data_version()

    @classmethod
    def open(cls, path: Path) -> "JobStore":
        """Opens or makes it. Raises LocalStorage if a later version made it."""
        try:
            return cls(_opened(path))
        except (apsw.NotADBError, apsw.CorruptError):
            _put_aside(path)
            return cls(_opened(path))

    @classmethod
    def in_memory(cls) -> "JobStore":
        """A database of this process: ``crystal sync --watch`` keeps no record."""
        return cls(_opened(MEMORY))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "JobStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- written by the background service ---

    def register(self, jobs: Iterable[Job]) -> None:
        """Lists exactly these jobs. Records of others are kept, in case they come back."""
        with immediate(self._db):
            self._db.execute("UPDATE job SET listed = 0")
            self._db.executemany(
                "INSERT INTO job (name, what, every, heavy, listed) VALUES (?, ?, ?, ?, 1) ON CONFLICT (name) DO UPDATE "
                "SET what = excluded.what, every = excluded.every, heavy = excluded.heavy, listed = 1",
                [(job.name, job.what, float(job.every), int(job.heavy)) for job in jobs],
            )

    @contextmanager
    def together(self) -> Generator[None]:
        """What is written within is written at once."""
        with immediate(self._db):
            yield

    def begun(self, name: str, moment: int) -> None:
        """Records that a run began. A run without an end was killed."""
        self._change(name, "started = ?", moment)

    def ended(
        self,
        name: str,
        moment: int,
        outcome: JobOutcome,
        said: str,
        *,
        failures: int,
        next_run: int,
        served: int,
    ) -> None:
        worked = moment if outcome is JobOutcome.DONE else None
        self._change(
            name,
            "started = 0, ended = ?, outcome = ?, said = ?, failures = ?, next = ?, served = max(served, ?), "
            "worked = coalesce(?, worked), put_off = ''",
            moment,
            outcome.value,
            said[:SAID_CHARS_MAX],
            failures,
            next_run,
            served,
            worked,
        )

    def scheduled(self, name: str, next_run: int, put_off: str) -> None:
        self._change(name, "next = ?, put_off = ?", next_run, put_off)

    def note(self, **values: str) -> None:
        """Stores facts of the service's process, by name."""
        with immediate(self._db):
            self._db.executemany(
                "INSERT OR REPLACE INTO agent (name, value) VALUES (?, ?)", [*values.items()]
            )

    # --- requests of a person ---

    def pause(self, name: str, *, paused: bool) -> None:
        """Raises NoSuchEntry."""
        self._known(name)
        self._change(name, "paused = ?", int(paused))

    def ask_for(self, name: str) -> int:
        """Requests a run and returns the request's number; it is over when ``served`` reaches it. Raises NoSuchEntry."""
        self._known(name)
        found = self._db.execute(
            "UPDATE job SET wanted = wanted + 1 WHERE name = ? RETURNING wanted", (name,)
        )
        return int(next(iter(found))[0])

    # --- queries ---

    def all(self) -> list[JobStatus]:
        """All listed jobs, by name."""
        rows = self._db.execute(_ALL)
        return [_standing(row) for row in rows]

    def one(self, name: str) -> JobStatus:
        """Raises NoSuchEntry."""
        self._known(name)
        rows = self._db.execute(_ONE, (name,))
        return _standing(next(iter(rows)))

    def noted(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._db.execute("SELECT name, value FROM agent")}

    def changed(self) -> bool:
        """Whether another process wrote since the last call."""
        version = self._data_version()
        before, self._version = self._version, version
        return version != before

    # --- inside ---

    def _data_version(self) -> int:
        return int(next(iter(self._db.execute("PRAGMA data_version")))[0])

    def _known(self, name: str) -> None:
        found = self._db.execute("SELECT 1 FROM job WHERE name = ? AND listed", (name,)).fetchone()
        if found is None:
            raise NoSuchEntry(f"there is no job {name!r}", hint="`crystal jobs list` shows the names.")

    def _change(self, name: str, assignments: str, *values: object) -> None:
        self._db.execute(f"UPDATE job SET {assignments} WHERE name = ?", (*values, name))  # noqa: S608  constants of ours


def _opened(path: Path | str) -> apsw.Connection:
    """Raises apsw.CorruptError if the file cannot be used."""
    db = _FILE.open(path)
    # The file is small, and damage in a single row would keep the service from starting.
    found = db.execute("PRAGMA quick_check(1)").get
    if found != "ok":
        db.close()
        raise apsw.CorruptError(str(found))
    return db


def put_aside(path: Path) -> Path:
    """Where a damaged file is kept until a person deletes it."""
    return path.with_name(f"{path.name}.damaged")


def _put_aside(path: Path) -> None:
    path.replace(put_aside(path))
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _standing(row: tuple[object, ...]) -> JobStatus:
    (
        name,
        what,
        every,
        heavy,
        paused,
        wanted,
        served,
        started,
        ended,
        worked,
        outcome,
        said,
        failures,
        due,
        off,
    ) = row
    return JobStatus(
        str(name),
        str(what),
        _float(every),
        bool(heavy),
        bool(paused),
        _int(wanted),
        _int(served),
        _int(started),
        _int(ended),
        _int(worked),
        JobOutcome(str(outcome)),
        str(said),
        _int(failures),
        _int(due),
        str(off),
    )


def _int(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _float(value: object) -> float:
    assert isinstance(value, int | float), value
    return float(value)
