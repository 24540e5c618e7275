"""Snapshots: how fast a new device has everything, how they are made, what they take; what an entry costs in a large memory.

Loading is measured beside plain SQLite: rows that are ready to bind, prepared statements, the same schema with all its
indexes (FTS5), the same pragmas and the same transactions. What loading does beyond that is decompression, parsing,
checking, hashes and the state digest. Both ends run in processes of their own, whose peak of resident memory the kernel tells.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness import Row, ratio_at_least, ratio_at_most, value_at_most
from bench.memories import DEVICE, INCARNATION, SECRET, Passages, captures, fill, random_passages
from crystal_core.replica import Replica
from crystal_core.snapshots.parts import decode_part
from crystal_crypto.compression import compress
from crystal_mirror.types import EntryState, Origin, Position

MODEL = "directions/1/384"
ROOT = Path(__file__).resolve().parent.parent
RESIDENT_MB_MAX = 200
PASSAGES_AT_ONCE = 50_000
ENTRY_BYTES = 16 * 1024
"""Sealed bytes that a device keeps of an entry with eight chunks."""


@dataclass(frozen=True)
class _Run:
    """What a process of `snapshot_process` printed."""

    seconds: float
    cpu: float
    peak: int
    chunks: int
    digest: str


def _process(what: str, database: Path, folder: Path) -> _Run:
    done = subprocess.run(
        [sys.executable, "-m", "bench.snapshot_process", what, str(database), str(folder)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return _Run(**json.loads(done.stdout))


def _grow(replica: Replica, size: int) -> None:
    """Add passages until there are `size` chunks."""
    while (count := int(replica.database.value("SELECT count(*) FROM chunks"))) < size:
        fill(replica, random_passages(min(PASSAGES_AT_ONCE, size - count), seed=count + 1), MODEL)


def _entries(replica: Replica, count: int, seed: int) -> list[float]:
    """Seconds of each of `count` entries with one capture of eight chunks: applied, acked, kept, committed to the disk."""
    memory: Passages = random_passages(8 * count, seed=seed)
    halves = dict(zip(memory.texts, memory.vectors.astype("<f2"), strict=True))
    samples: list[float] = []
    for number, operation in enumerate(captures(memory.texts, first=10_000_000 + seed)):
        origin = Origin(DEVICE, INCARNATION, replica.ack(DEVICE, INCARNATION) + 1)
        began = time.perf_counter()
        with replica.transaction() as transaction:
            transaction.apply(origin, operation, lambda text: [halves[text].tobytes()])
            transaction.mark_done(origin)
            transaction.keep_entry(1, seed + number, bytes(ENTRY_BYTES), EntryState.SENT)
            transaction.set_position(Position(1, seed + number + 1, bytes(32)))
        samples.append(time.perf_counter() - began)
    return samples


def _content_bytes(folder: Path) -> int:
    """What the texts take compressed, session by session, and the vectors."""
    sessions: dict[tuple[int, str], list[bytes]] = {}
    vectors = 0
    for number, file in enumerate(sorted(folder.iterdir())):
        rows = decode_part(file.read_bytes())
        vectors += len(rows.vectors)
        for chunk, place in zip(rows.chunk_of, rows.place_of, strict=True):
            if chunk < len(rows.texts):
                sessions.setdefault((number, rows.places[place].session), []).append(rows.texts[chunk])
    return vectors + sum(len(compress(text) or text) for text in map(b"".join, sessions.values()))


def _ends(folder: Path, database: Path, size: int, repeat: int) -> list[Row]:
    parts = folder / "parts"
    parts.mkdir()
    exports = [_process("export", database, parts) for _ in range(repeat)]
    loads: list[_Run] = []
    plains: list[_Run] = []
    for number in range(repeat):
        loaded = folder / f"loaded-{number}.db"
        loads.append(_process("load", loaded, parts))
        plains.append(_process("sqlite", loaded, parts))
        for file in folder.glob(f"loaded-{number}.*"):
            file.unlink()
    if {run.digest for run in loads} != {exports[0].digest}:
        raise RuntimeError("what was loaded is not what was exported")
    taken = sum(file.stat().st_size for file in parts.iterdir())
    return [
        Row(
            name=f"cold start: load a snapshot of {size:,} chunks with vectors of 384 numbers",
            value=size / median(run.seconds for run in loads),
            unit="chunks/s",
            baseline="SQLite, ready rows, same schema and transactions",
            baseline_value=size / median(run.seconds for run in plains),
            target=ratio_at_least(0.9),
            note=f"best runs {size / min(run.seconds for run in loads):,.0f} and"
            f" {size / min(run.seconds for run in plains):,.0f}; of processor time"
            f" {median(run.cpu for run in loads) / median(run.cpu for run in plains):.2f} of SQLite's",
        ),
        Row(
            name="the same, peak of resident memory",
            value=max(run.peak for run in loads) / 1e6,
            unit="MB",
            target=value_at_most(RESIDENT_MB_MAX),
        ),
        Row(
            name="read a snapshot's parts out of the memory",
            value=size / median(run.seconds for run in exports),
            unit="chunks/s",
            note=f"{taken / 1e6:.0f} MB in {len(list(parts.iterdir()))} parts",
        ),
        Row(
            name="the same, peak of resident memory",
            value=max(run.peak for run in exports) / 1e6,
            unit="MB",
            target=value_at_most(RESIDENT_MB_MAX),
        ),
        Row(
            name="a snapshot's parts",
            value=taken / 1e6,
            unit="MB",
            baseline="compressed texts and vectors",
            baseline_value=_content_bytes(parts) / 1e6,
            target=ratio_at_most(1.05),
        ),
    ]


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    sizes = [2_000, 6_000] if quick else [10_000, 100_000, 1_000_000]
    cold = sizes[1]
    rows: list[Row] = []
    steady: list[float] = []
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as name:
        folder = Path(name)
        database = folder / "crystal.db"
        replica = Replica.open(database, SECRET)
        for number, size in enumerate(sizes):
            _grow(replica, size)
            if size == cold:
                rows = _ends(folder, database, size, 1 if quick else 5)
            steady.append(median(_entries(replica, 20 if quick else 201, 2_000_000 * (number + 1))))
        replica.close()
    return rows + [
        Row(
            name=f"apply one entry of 8 chunks, {size:,} chunks standing",
            value=1000 * seconds,
            unit="ms",
            baseline=f"{sizes[0]:,} standing",
            baseline_value=1000 * steady[0],
            target=ratio_at_most(2.0) if number else None,
            note="committed to the disk",
        )
        for number, (size, seconds) in enumerate(zip(sizes, steady, strict=True))
    ]
