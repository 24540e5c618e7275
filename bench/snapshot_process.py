"""One end of a snapshot in a process of its own, for `bench_snapshot`: `python -m bench.snapshot_process WHAT DATABASE FOLDER`.

    export     the memory's parts into files of the folder
    load       the folder's parts into a new memory, a transaction for each, as a new device does
    sqlite     the same rows, ready to bind, into a new memory of the same schema by nothing but prepared statements

Prints seconds (of the wall and of processors), the peak of resident bytes, chunks and the state digest, as JSON.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.memories import SECRET
from crystal_core.database import Database, Row
from crystal_core.replica import Replica
from crystal_core.snapshots.parts import decode_part
from crystal_core.state.vectors import dimensions

_OCCURRENCE = (
    "rowid, chunk, agent, session, message, part, role, created_at, project, repository, source, device"
)
_STATEMENTS = (
    (
        "INSERT INTO chunks (rowid, id, forget_hash, text) VALUES (?, ?, ?, ?)",
        "SELECT rowid, id, forget_hash, text FROM chunks WHERE rowid > ? ORDER BY rowid LIMIT ?",
    ),
    (
        "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)",
        "SELECT rowid, text FROM chunks WHERE rowid > ? ORDER BY rowid LIMIT ?",
    ),
    (
        "INSERT INTO windows (rowid, chunk, part, bits) VALUES (?, ?, ?, ?)",
        "SELECT rowid, chunk, part, bits FROM windows WHERE rowid > ? ORDER BY rowid LIMIT ?",
    ),
    (
        "INSERT INTO vectors (rowid, embedding) VALUES (?, ?)",
        "SELECT rowid, embedding FROM vectors WHERE rowid > ? ORDER BY rowid LIMIT ?",
    ),
    (
        f"INSERT INTO occurrences ({_OCCURRENCE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant of ours
        f"SELECT {_OCCURRENCE} FROM occurrences WHERE rowid > ? ORDER BY rowid LIMIT ?",  # noqa: S608 - the same
    ),
)
"""How a table is written, and how its next rows are read. In a memory that was loaded, rowids count without gaps."""


@dataclass
class _Clock:
    """Seconds of a span, on the wall and of all processors."""

    seconds: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> "_Clock":
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def _export(database: Path, folder: Path) -> _Clock:
    replica = Replica.open(database, SECRET)
    with _Clock() as clock, replica.export() as moment:
        for number, part in enumerate(moment.parts()):
            (folder / f"{number:06d}").write_bytes(part)
    return clock


def _load(database: Path, folder: Path) -> _Clock:
    replica = Replica.open(database, SECRET)
    with _Clock() as clock:
        for file in sorted(folder.iterdir()):
            with replica.transaction() as transaction:
                transaction.load(file.read_bytes())
        replica.close()
    return clock


def _sqlite(database: Path, folder: Path) -> _Clock:
    """`database` is a loaded memory, from which the rows are taken; the new one stands beside it."""
    with Database.open(database) as source, Database.open(database.with_suffix(".plain")) as target:
        vectors = dimensions(source)
        groups = list(_ready_rows(source, folder))
        target.run("UPDATE index_state SET dimensions = ?", (vectors,))
        with _Clock() as clock:
            for group in groups:
                with target.transaction():
                    target.run("UPDATE index_state SET deferred = 1")
                    for (insert, _), rows in zip(_STATEMENTS, group, strict=True):
                        target.run_many(insert, rows)
                    target.run("UPDATE index_state SET deferred = 0")
            target.close()
        return clock


def _ready_rows(source: Database, folder: Path) -> Iterator[list[list[Row]]]:
    """For each part the rows that it brought, table by table."""
    chunks = windows = occurrences = 0
    for file in sorted(folder.iterdir()):
        part = decode_part(file.read_bytes())
        new = (len(part.texts), len(part.texts), sum(part.windows), sum(part.windows), len(part.chunk_of))
        places = (chunks, chunks, windows, windows, occurrences)
        if any(new):
            yield [
                source.rows(select, (place, count))
                for (_, select), place, count in zip(_STATEMENTS, places, new, strict=True)
            ]
        chunks, windows, occurrences = chunks + new[0], windows + new[2], occurrences + new[4]


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main(what: str, database: Path, folder: Path) -> None:
    clock = {"export": _export, "load": _load, "sqlite": _sqlite}[what](database, folder)
    peak = _peak_bytes()
    replica = Replica.open(database, SECRET)
    chunks, digest = replica.database.value("SELECT count(*) FROM chunks"), replica.digest().hex()
    replica.close()
    print(json.dumps({**asdict(clock), "peak": peak, "chunks": chunks, "digest": digest}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
