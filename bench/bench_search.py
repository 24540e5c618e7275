"""Search over 100,000 chunks: the vector half against sqlite-vec's scan, recall, the whole search, and a cold process.

The whole search is by turn, as people have it; its processor time is compared with a search by message.

Queries are sentences and words that stand in no chunk's two subjects; see `memories` for the chunks.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.harness import Row, percentile, ratio_at_most, value_at_least, value_at_most
from bench.memories import DAY, NOW, embedded, filled, passages, sentences
from bench.vector_baselines import Faiss, SqliteVec, Usearch
from crystal_core.database import Database
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.by import By
from crystal_core.search.filters import Scope
from crystal_core.search.search import Searcher
from crystal_core.search.vector_index import VectorIndex

SUBJECTS = 3000
NEIGHBOURS = 40
"""What a search for ten hits asks of the vector half."""
COLD_MILLISECONDS_MAX = 120

_COLD = """
import json, sys, time
import numpy as np
vector = np.frombuffer(bytes.fromhex(sys.argv[3]), np.float32)
class Given:
    identity, dimensions = sys.argv[2], len(vector)
    def embed_query(self, text): return vector
start = time.perf_counter()
from crystal_core.database import Database
from crystal_core.search.search import search
result = search(Database.open(sys.argv[1]), sys.argv[4], now_ms=int(sys.argv[5]), embedder=Given())
print(json.dumps([1000 * (time.perf_counter() - start), result.mode.value, len(result.hits)]))
"""


def times(work: Callable[[int], object], count: int) -> list[float]:
    """Milliseconds of each call."""
    samples: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        work(number)
        samples.append(1000 * (time.perf_counter() - start))
    return samples


def processor_times(work: Callable[[int], object], count: int) -> list[float]:
    """Milliseconds of each call that this process was at work: what the machine does besides does not count."""
    samples: list[float] = []
    for number in range(count):
        start = time.process_time()
        work(number)
        samples.append(1000 * (time.process_time() - start))
    return samples


def _recall(database: Database, index: VectorIndex, scan: SqliteVec, queries: NDArray[np.float32]) -> float:
    """The share of the ten nearest, by sqlite-vec's exact scan, that are among our first ten."""
    found = 0
    for query in queries:
        rows = database.rows(
            "SELECT chunk FROM windows WHERE rowid IN (SELECT value FROM json_each(?))",
            (json.dumps(scan.nearest(query, 10)),),
        )
        found += len(
            {row[0] for row in rows} & {one.chunk for one in index.nearest(database, query, NEIGHBOURS)[:10]}
        )
    return found / (10 * len(queries))


def _cold(path: Path, identity: str, query: str, vector: NDArray[np.float32]) -> float:
    """Milliseconds of search in a new process, numpy and the query's vector given: the model's cost is its own."""
    arguments = [sys.executable, "-c", _COLD, str(path), identity, vector.tobytes().hex(), query, str(NOW)]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    milliseconds, mode, hits = json.loads(output)
    if mode != "hybrid" or not hits:
        raise RuntimeError(f"the cold search was {mode} with {hits} hits")
    return float(milliseconds)


def short_queries(texts: list[str], count: int) -> list[str]:
    generator = random.Random(4)
    words = [word.strip(".,:;()") for text in texts for word in text.split() if len(word) > 3]
    return [" ".join(generator.sample(words, generator.randint(1, 4))) for _ in range(count)]


def run(quick: bool) -> list[Row]:
    size, subjects, asked = (10_000, 300, 40) if quick else (100_000, SUBJECTS, 200)
    texts = sentences()
    with tempfile.TemporaryDirectory() as name, BuiltinEmbedder() as embedder:
        vectors = embedded(embedder, texts[: subjects + asked])
        memory = passages(size, texts[:subjects], vectors[:subjects])
        path = Path(name) / "crystal.db"
        replica = filled(path, memory, embedder.identity)
        database = replica.database
        questions, query_vectors = texts[subjects : subjects + asked], vectors[subjects:]
        short = short_queries(questions, asked)

        index = VectorIndex()
        index.refresh(database)
        index.nearest(database, query_vectors[0], NEIGHBOURS)
        scan = SqliteVec(database, Path(name) / "scanned.db")
        scans = times(lambda i: scan.nearest(query_vectors[i], 10), min(asked, 20))
        flat, graph = Faiss(vectors.shape[1]), Usearch(vectors.shape[1])
        for other in (flat, graph):
            other.add(memory.vectors)
        flat_times = times(lambda i: flat.nearest(query_vectors[i], 10), min(asked, 20))
        graph_times = times(lambda i: graph.nearest(query_vectors[i], 10), asked)
        graph_recall = np.mean(
            [len({*flat.nearest(query, 10)} & {*graph.nearest(query, 10)}) / 10 for query in query_vectors]
        )
        nearest = times(lambda i: index.nearest(database, query_vectors[i], NEIGHBOURS), asked)
        recall = _recall(database, index, scan, query_vectors)
        scan.close()

        searcher = Searcher(database, embedder)
        searcher.search(questions[0], now_ms=NOW)
        by_question = times(lambda i: searcher.search(questions[i], now_ms=NOW), asked)
        by_words = times(lambda i: searcher.search(short[i], now_ms=NOW), asked)
        hybrid = by_question + by_words
        both = [*questions, *short]
        searcher.search(questions[0], now_ms=NOW, by=By.MESSAGE)
        worked = processor_times(lambda i: searcher.search(both[i], now_ms=NOW), 2 * asked)
        by_message = processor_times(lambda i: searcher.search(both[i], now_ms=NOW, by=By.MESSAGE), 2 * asked)
        fifth = Scope(agent="agent-3")
        of_agent = processor_times(lambda i: searcher.search(short[i], now_ms=NOW, scope=fifth), asked)
        of_all = processor_times(lambda i: searcher.search(short[i], now_ms=NOW), asked)
        of_month = times(
            lambda i: searcher.search(short[i], now_ms=NOW, scope=Scope(since_ms=NOW - 30 * DAY)), asked
        )
        cold = [_cold(path, embedder.identity, short[i], query_vectors[i]) for i in range(2 if quick else 7)]
        replica.close()
    return [
        Row(
            name="vector half, p95",
            value=percentile(nearest, 95),
            unit="ms",
            baseline="sqlite-vec's scan, p50",
            baseline_value=percentile(scans, 50),
            target=value_at_most(5),
            note=f"{size:,} vectors of 384; p50 {percentile(nearest, 50):.1f} ms",
        ),
        Row(
            name="the same, p50",
            value=percentile(nearest, 50),
            unit="ms",
            baseline="faiss flat, p50",
            baseline_value=percentile(flat_times, 50),
        ),
        Row(
            name="the same, p50",
            value=percentile(nearest, 50),
            unit="ms",
            baseline="usearch, p50",
            baseline_value=percentile(graph_times, 50),
            note=f"its recall@10 is {graph_recall:.3f}",
        ),
        Row(
            name="recall@10 against the exact scan",
            value=recall,
            unit="",
            target=value_at_least(0.99),
            note=f"{asked} queries",
        ),
        Row(
            name="hybrid search, warm, p95",
            value=percentile(hybrid, 95),
            unit="ms",
            target=value_at_most(25),
            note=(
                f"embedding included; p50 {percentile(hybrid, 50):.1f} ms; p95 of sentences"
                f" {percentile(by_question, 95):.1f}, of one to four words {percentile(by_words, 95):.1f}"
            ),
        ),
        Row(
            name="the same, processor time, p95",
            value=percentile(worked, 95),
            unit="ms",
            baseline="by message",
            baseline_value=percentile(by_message, 95),
            target=value_at_most(16),
            note=f"p50 {percentile(worked, 50):.1f} ms; what else runs on the machine does not count",
        ),
        Row(
            name="the same, p50",
            value=percentile(worked, 50),
            unit="ms",
            baseline="by message",
            baseline_value=percentile(by_message, 50),
        ),
        Row(
            name="one to four words, of one agent in five: processor time, p50",
            value=percentile(of_agent, 50),
            unit="ms",
            baseline="of all agents",
            baseline_value=percentile(of_all, 50),
            target=ratio_at_most(1.0),
            note=f"p95 {percentile(of_agent, 95):.1f} ms, of all {percentile(of_all, 95):.1f}",
        ),
        Row(name="the same, of the last month, p95", value=percentile(of_month, 95), unit="ms"),
        Row(
            name="search's share of a cold process",
            value=percentile(cold, 50),
            unit="ms",
            target=value_at_most(COLD_MILLISECONDS_MAX),
            note="opening, loading the signs, searching; without interpreter, numpy and model",
        ),
    ]
