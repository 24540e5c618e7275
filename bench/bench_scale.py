"""Search over 1,000,000 chunks: nearest vectors beside others' exact scans, memory, filters, whole searches, new chunks.

Takes some minutes, most of them to fill the vault. usearch's graph is compared at 100,000 (`bench_search`): a million take
it longer to build than all the rest here. Vectors are those of real sentences, by the built-in model, mixed, with something of
their own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.bench_search import NEIGHBOURS, short_queries, times
from bench.harness import Row, percentile, ratio_at_most, value_at_least, value_at_most
from bench.memories import DAY, NOW, SECRET, embedded, fill, passages, sentences
from bench.vector_baselines import Faiss, SqliteVec
from crystal_core.database import Database
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.replica import Replica
from crystal_core.search.filters import EVERYWHERE, Scope
from crystal_core.search.search import Searcher
from crystal_core.search.vector_index import VectorIndex

SUBJECTS = 10_000
FILLED_AT_ONCE = 20_000
SPREAD = 0.3
NEW = 1000
ONE_IN = 1000
SESSION = f"{3:036d}"
"""A session of 200 chunks."""


def run(quick: bool) -> list[Row]:
    size, subjects, asked = (20_000, 300, 20) if quick else (1_000_000, SUBJECTS, 200)
    texts = sentences()
    with tempfile.TemporaryDirectory() as name, BuiltinEmbedder() as embedder:
        vectors = embedded(embedder, texts[: subjects + asked])
        questions, queries = texts[subjects : subjects + asked], vectors[subjects:]
        replica = Replica.open(Path(name) / "crystal.db", SECRET)
        exact = Faiss(vectors.shape[1])
        blocks: list[NDArray[np.float16]] = []
        for first in range(0, size, FILLED_AT_ONCE):
            memory = passages(
                FILLED_AT_ONCE,
                texts[:subjects],
                vectors[:subjects],
                seed=first + 1,
                first=first,
                spread=SPREAD,
            )
            fill(replica, memory, embedder.identity, first=first)
            blocks.append(memory.vectors.astype(np.float16))
        with Database.open(Path(name) / "crystal.db") as database:
            index = VectorIndex()
            index.refresh(database)
            os.sync()  # what was just written is not still being written while it is read
            index.nearest(database, queries[0], NEIGHBOURS)
            nearest = times(lambda i: index.nearest(database, queries[i], NEIGHBOURS), asked)
            for block in blocks:
                exact.add(block.astype(np.float32))
            rows = _vectors(database, index, exact, blocks, queries, nearest)
            rows.append(_memory(Path(name) / "crystal.db"))
            del exact, blocks
            searcher = Searcher(database, embedder)
            rows += _searches(searcher, [*questions, *short_queries(questions, asked)], size)
            rows.append(_new_chunks(replica, searcher, embedder.identity, vectors, size))
        replica.close()
    return rows


_PROCESS = """
import json, sys, time
import numpy as np
from bench.vector_baselines import private_megabytes
from crystal_core.search.vector_index import VectorIndex
from crystal_core.database import Database
with Database.open(sys.argv[1]) as database:
    before, start = private_megabytes(), time.perf_counter()
    index = VectorIndex()
    index.refresh(database)
    loaded = time.perf_counter() - start
    for query in np.random.default_rng(1).standard_normal((20, index.dimensions), dtype=np.float32):
        index.nearest(database, query, 40)
    print(json.dumps([private_megabytes() - before, loaded]))
"""


def _memory(path: Path) -> Row:
    """Of a process that loads the signs and searches: what it takes beyond what it had before."""
    arguments = [sys.executable, "-c", _PROCESS, str(path)]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=120).stdout
    private, loaded = json.loads(output)
    return Row(
        name="memory of the vector half beyond the page cache",
        value=private,
        unit="MB",
        target=value_at_most(100),
        note=f"SQLite's own cache included; a new process loads the signs in {1000 * loaded:.0f} ms",
    )


def _vectors(
    database: Database,
    index: VectorIndex,
    exact: Faiss,
    blocks: list[NDArray[np.float16]],
    queries: NDArray[np.float32],
    nearest: list[float],
) -> list[Row]:
    scanned = SqliteVec(database, Path(database.path).with_name("scanned.db"))
    scans = times(lambda i: scanned.nearest(queries[i], 10), 5)
    scanned.close()
    flat = times(lambda i: exact.nearest(queries[i], 10), 20)
    # A chunk's rowid is one more than its place: all have one window.
    found = [{one.chunk - 1 for one in index.nearest(database, query, NEIGHBOURS)[:10]} for query in queries]
    recall = np.mean(
        [len(set(exact.nearest(query, 10)) & ours) / 10 for query, ours in zip(queries, found, strict=True)]
    )
    generator = np.random.default_rng(5)
    size = index.size
    only = np.sort(generator.choice(size, max(size // ONE_IN, 10), replace=False))
    places: list[int] = only.tolist()
    kept = np.stack([blocks[place // FILLED_AT_ONCE][place % FILLED_AT_ONCE] for place in places]).astype(
        np.float32
    )
    rowids = (only + 1).astype(np.int64)
    filtered = times(lambda i: index.nearest(database, queries[i], NEIGHBOURS, only=rowids), len(queries))
    hits = 0.0
    for query in queries:
        best = set(rowids[np.argsort(-(kept @ query))[:10]].tolist())
        ours = index.nearest(database, query, NEIGHBOURS, only=rowids)
        hits += len(best & {one.chunk for one in ours[:10]}) / 10
    return [
        Row(
            name="vector half, p95",
            value=percentile(nearest, 95),
            unit="ms",
            baseline="sqlite-vec's scan, p50",
            baseline_value=percentile(scans, 50),
            target=value_at_most(40),
            note=f"{size:,} vectors of 384; p50 {percentile(nearest, 50):.1f} ms",
        ),
        Row(
            name="the same, p50",
            value=percentile(nearest, 50),
            unit="ms",
            baseline="faiss flat, p50",
            baseline_value=percentile(flat, 50),
        ),
        Row(
            name="recall@10 against the exact scan",
            value=float(recall),
            unit="",
            target=value_at_least(0.99),
            note=f"{len(queries)} queries",
        ),
        Row(
            name=f"vector half behind a filter that keeps one in {ONE_IN:,}, p95",
            value=percentile(filtered, 95),
            unit="ms",
            baseline="without a filter",
            baseline_value=percentile(nearest, 95),
            target=ratio_at_most(1),
        ),
        Row(name="recall@10 behind it", value=hits / len(queries), unit="", target=value_at_least(0.999)),
    ]


def _searches(searcher: Searcher, queries: list[str], size: int) -> list[Row]:
    def asked(scope: Scope) -> Callable[[int], object]:
        return lambda i: searcher.search(queries[i], now_ms=NOW, scope=scope)

    asked(EVERYWHERE)(0)
    everything = times(asked(EVERYWHERE), len(queries))
    rows = [
        Row(
            name="hybrid search, warm, p95",
            value=percentile(everything, 95),
            unit="ms",
            target=value_at_most(40),
            note=f"{size:,} chunks, embedding included; p50 {percentile(everything, 50):.1f} ms",
        )
    ]
    for named, scope in (
        ("one session", Scope(session=SESSION)),
        ("the last 17 hours, one in a thousand", Scope(since_ms=NOW - DAY * 2 * 365 // ONE_IN)),
    ):
        narrowed = times(asked(scope), len(queries))
        rows.append(
            Row(
                name=f"the same, of {named}, p95",
                value=percentile(narrowed, 95),
                unit="ms",
                baseline="without a filter",
                baseline_value=percentile(everything, 95),
                target=ratio_at_most(1),
            )
        )
    return rows


def _new_chunks(
    replica: Replica,
    searcher: Searcher,
    identity: str,
    vectors: NDArray[np.float32],
    size: int,
) -> Row:
    memory = passages(NEW, ["news"], vectors[:1], seed=7, first=10 * size, spread=SPREAD)
    start = time.perf_counter()
    fill(replica, memory, identity, first=10 * size)
    found = searcher.search(f"Note {10 * size + NEW - 1}", now_ms=NOW)
    seconds = time.perf_counter() - start
    if not found.hits or memory.texts[-1] not in {hit.text for hit in found.hits}:
        raise RuntimeError("a new chunk was not found")
    return Row(
        name=f"{NEW:,} new chunks come and are found",
        value=seconds,
        unit="s",
        target=value_at_most(1),
        note="by another connection than the one that wrote them",
    )
