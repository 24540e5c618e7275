"""``state/search.db``: what language models said of searches, for a week, so that a search asked again asks nobody.

An answer is three expansions of a query and judgements by the text's id; no text of the memory, and no query, which stands as a
hash with its intent and the model. Judgements hold for a query and a text, so new texts make none of them wrong.

An id is a hash of a text, and expansions are made with a query that may have quoted one: so a forget empties the file, which
notes by a ``mark`` up to which forget it is good. Each opening compares: a search's, the background job's, `crystal sync`'s.
Answers that were under way meanwhile are not kept. What is deleted is overwritten; a damaged file is replaced by a new one.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import apsw
import msgspec

from crystal_core.deep.answers import Expansions
from crystal_core.deep.engine import Known
from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_crypto.errors import CrystalError
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.jobs import Job
from crystal_node.device.device import Device
from crystal_node.search.finding.deep_outcome import forget_mark

KEPT_MS = 7 * 86_400_000
ANSWERS_MAX = 500
"""Of about 4 KiB each; the oldest go."""
FORGET_EVERY_SECONDS = 300.0
_BUSY_MILLISECONDS = 5_000

_SCHEMA = """
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), mark TEXT NOT NULL) STRICT;
CREATE TABLE answer (key BLOB PRIMARY KEY, made_at INTEGER NOT NULL, said BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE INDEX answer_by_age ON answer (made_at);
"""


class _Unusable(CrystalError):
    """Never shown: a new file is begun, or none is used."""

    hint = "Run the search again."


_FILE = SqliteFile(
    application_id=0x43525951,  # "CRYQ"
    schema=_SCHEMA,
    busy_milliseconds=_BUSY_MILLISECONDS,
    damaged=_Unusable,
    too_new=_Unusable,
    synchronous="NORMAL",
)


class _Said(msgspec.Struct, array_like=True):
    expansions: tuple[str, str, str] | None
    judgements: dict[str, int]


def key_of(model: str, version: int, query: str, intent: str) -> bytes:
    return sha256(json.dumps([model, version, query, intent]).encode()).digest()


class DeepCache:
    """The file, opened for each call: a search takes seconds, and nothing is held open meanwhile.

    Nothing is raised because of the file: what cannot be read is not known, what cannot be written is not kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: bytes, mark: str, now_ms: int) -> Known:
        with suppress(apsw.Error, OSError, _Unusable, msgspec.MsgspecError), self._opened(mark) as db:
            row = db.execute(
                "SELECT said FROM answer WHERE key = ? AND made_at BETWEEN ? AND ?",
                (key, now_ms - KEPT_MS, now_ms),
            ).fetchone()
            if row is not None:
                said = from_msgpack(row[0], _Said)
                return Known(
                    None if said.expansions is None else Expansions(*said.expansions), said.judgements
                )
        return Known()

    def put(self, key: bytes, mark: str, known: Known, now_ms: int) -> None:
        """The age of an answer is that of its first part."""
        words = known.expansions
        said = _Said(
            None if words is None else (words.lexical, words.rephrased, words.hypothetical),
            dict(known.judgements),
        )
        with suppress(apsw.Error, OSError, _Unusable), self._opened(mark) as db, immediate(db):
            db.execute("DELETE FROM answer WHERE made_at NOT BETWEEN ? AND ?", (now_ms - KEPT_MS, now_ms))
            db.execute(
                "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET said = excluded.said",
                (key, now_ms, msgspec.msgpack.encode(said)),
            )
            db.execute(
                "DELETE FROM answer WHERE key IN (SELECT key FROM answer ORDER BY made_at DESC LIMIT -1 OFFSET ?)",
                (ANSWERS_MAX,),
            )

    def follow(self, mark: str) -> bool:
        """Empties the file if something was forgotten since it was filled; whether it was."""
        if not self._path.exists():
            return False
        try:
            with self._opened(mark) as db:
                return db.changes() > 0
        except (apsw.Error, OSError, _Unusable):
            return False

    @contextmanager
    def _opened(self, mark: str) -> Generator[apsw.Connection]:
        """The file, good for this mark."""
        try:
            db = _FILE.open(self._path)
        except _Unusable:
            self._remove()
            db = _FILE.open(self._path)
        try:
            kept = db.execute("SELECT mark FROM mark").fetchone()
            if kept is None or kept[0] != mark:
                with immediate(db):
                    db.execute("INSERT OR REPLACE INTO mark VALUES (1, ?)", (mark,))
                    db.execute("DELETE FROM answer")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            yield db
        except (apsw.CorruptError, apsw.NotADBError):
            db.close()
            self._remove()
            raise
        finally:
            db.close()

    def _remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)


def jobs(device: Device) -> list[Job]:
    """The background job by which a forget reaches the file though nobody searches."""
    path = device.settings.home.search_database

    async def follow() -> str:
        if DeepCache(path).follow(forget_mark(device.replica.database)):
            return "answers of language models forgotten"
        return ""

    return [
        Job(
            name="forget-answers",
            what="Lets go of language models' answers to searches when something was forgotten.",
            every=FORGET_EVERY_SECONDS,
            run=follow,
            due=path.exists,
        )
    ]
