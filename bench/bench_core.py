"""The memory's database: how fast conversations and mirror entries come in, and what forgetting and opening cost.

All on a file with `synchronous=FULL`, in transactions of about 500 chunks of 1,000 characters, everything included: text,
Porter-stemmed full-text index, vector, signs, provenance, digest, acks, fsync, checkpoints.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Row, timed, value_at_least, value_at_most
from bench.memories import (
    BATCH,
    DEVICE,
    INCARNATION,
    PIECES_PER_CAPTURE,
    SECRET,
    Passages,
    captures,
    fill,
    random_passages,
)
from crystal_core.cutting.messages import split_message
from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_mirror.operations import Capture, Forget, decode_operation, encode_operation
from crystal_mirror.types import Origin

PROTOTYPE_CHUNKS_PER_SECOND = 669.0
"""Mirror apply of the published prototype, as measured on it."""
MODEL = "directions/1/384"


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _fresh(folder: Path, number: int) -> Replica:
    return Replica.open(folder / f"{number}.db", SECRET)


def _apply(folder: Path, number: int, memory: Passages) -> float:
    """Seconds to apply the passages, as mirror entries bring them, to a new database; its closing included."""
    replica = _fresh(folder, number)

    def work() -> None:
        fill(replica, memory, MODEL)
        replica.close()

    return _seconds(work)


def _ingest(folder: Path, number: int, messages: list[str]) -> float:
    """Seconds from messages to committed rows: cut, packed, encoded, parsed, applied; nothing embedded."""
    replica = _fresh(folder, number)

    def work() -> None:
        sequence = 0
        pieces = [piece for message in messages for piece in split_message(message)]
        operations = [encode_operation(operation) for operation in captures(pieces)]
        per_batch = BATCH // PIECES_PER_CAPTURE
        for start in range(0, len(operations), per_batch):
            with replica.transaction() as transaction:
                for data in operations[start : start + per_batch]:
                    origin = Origin(DEVICE, INCARNATION, sequence)
                    transaction.apply(origin, decode_operation(data), lambda _: ())
                    transaction.mark_done(origin)
                    sequence += 1
        replica.close()

    return _seconds(work)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _forgets(replica: Replica, count: int) -> list[float]:
    """Seconds of each of `count` forgets, the scrubbing of the file included."""
    rows = replica.database.rows("SELECT forget_hash FROM chunks ORDER BY forget_hash LIMIT ?", (count,))
    sequence = replica.ack(DEVICE, INCARNATION)
    samples: list[float] = []
    for (forget_hash,) in rows:
        sequence += 1
        origin = Origin(DEVICE, INCARNATION, sequence)

        def work(origin: Origin = origin, operation: Forget = Forget((forget_hash,))) -> None:  # noqa: B008
            with replica.transaction() as transaction:
                transaction.apply(origin, operation, lambda _: ())
                transaction.mark_done(origin)

        samples.append(_seconds(work))
    return samples


def _provisional(replica: Replica, operations: list[Capture]) -> float:
    """Operations a second that a device makes findable by itself, each in a transaction of its own."""

    def work() -> None:
        for number, operation in enumerate(operations):
            replica.index_provisional(Origin(b"provisional-here", INCARNATION, number), operation)

    return len(operations) / _seconds(work)


def run(quick: bool) -> list[Row]:
    size, repeat = (4_000, 1) if quick else (30_000, 5)
    memory = random_passages(size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        applied = [size / _apply(folder, number, memory) for number in range(repeat)]
        ingested = [size / _ingest(folder, 100 + number, memory.texts) for number in range(repeat)]
        replica = Replica.open(folder / "0.db", SECRET)
        recomputed = timed(replica.recompute_digest, repeat=1 if quick else 3, warm_up=0).median
        provisional = _provisional(replica, captures(random_passages(400, seed=2).texts))
        forgotten = _forgets(replica, 5 if quick else 31)
        replica.close()
        opened = timed(lambda: Database.open(folder / "1.db" if repeat > 1 else folder / "0.db").close())
        in_memory = timed(lambda: Database.open(":memory:").close())
        rows = [
            Row(
                name="mirror apply, chunks of 1,000 characters with vectors",
                value=_median(applied),
                unit="chunks/s",
                baseline="prototype",
                baseline_value=PROTOTYPE_CHUNKS_PER_SECOND,
                target=value_at_least(10_000),
                note=f"into a new database, up to {size:,} chunks",
            ),
            Row(
                name="ingest without embedding",
                value=_median(ingested),
                unit="chunks/s",
                target=value_at_least(5_000),
                note="one process on one core",
            ),
            Row(
                name="state digest from all rows",
                value=size / recomputed,
                unit="chunks/s",
            ),
            Row(
                name="make pending captures findable, a transaction each",
                value=provisional,
                unit="operations/s",
                note=f"{PIECES_PER_CAPTURE} chunks in each",
            ),
            Row(
                name="forget one text, its bytes scrubbed",
                value=1000 * _median(forgotten),
                unit="ms",
                note=f"among {size:,} chunks; slowest {1000 * max(forgotten):.0f} ms",
            ),
            Row(name="open a memory", value=1000 * opened.median, unit="ms"),
            Row(
                name="make a memory in memory",
                value=1000 * in_memory.median,
                unit="ms",
                target=value_at_most(10),
            ),
        ]
        if not quick:
            large = random_passages(100_000, seed=3)
            rows.insert(
                1,
                Row(
                    name="mirror apply of 100,000 chunks, from the first to the last",
                    value=100_000 / _apply(folder, 200, large),
                    unit="chunks/s",
                    baseline="prototype",
                    baseline_value=PROTOTYPE_CHUNKS_PER_SECOND,
                    target=value_at_least(10_000),
                ),
            )
    return rows
