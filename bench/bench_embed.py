"""The built-in embedder: rate against onnxruntime's own on the same windows, cold start, memory of a process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Row, interleaved, percentile, ratio_at_least, timed, value_at_least, value_at_most
from crystal_core.embed import builtin
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.manifest import GRAPH_FILE, TOKENIZER_FILE
from crystal_core.embed.session import PROCESS_ENVIRONMENT, Session, open_session

THREADS = 2
_MESSAGE_TOKENS = 60
"""About 300 characters."""
COLD_MILLISECONDS_MAX = 200
RESIDENT_MEGABYTES_MAX = 150

_MODEL = Path(builtin.__file__).resolve().parent / "model"
_LENGTHS = (200, 40, 12, 90, 254, 160, 25, 700)
"""Tokens of the texts, about: what a conversation looks like. The last is longer than one window."""

_WORDS = (
    "time",
    "work",
    "and",
    "house",
    "water",
    "people",
    "city",
    "music",
    "garden",
    "river",
    "paper",
    "story",
    "light",
)

_COLD = """
import json, sys, time
start = time.perf_counter()
from crystal_core.embed.builtin import BuiltinEmbedder
BuiltinEmbedder(threads=1).embed_query("what did we decide about the outbox?")
print(json.dumps(1000 * (time.perf_counter() - start)))
"""

_MEMORY = """
import json, pathlib
from crystal_core.embed.builtin import BuiltinEmbedder
def resident():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
embedder = BuiltinEmbedder(threads=2)
embedder.embed_query("what did we decide about the outbox?")
figures = [resident()]
embedder.embed_windows(["A sentence that is neither short nor long. " * n for n in range(25)] * 4)
figures.append(resident())
embedder.release()
figures.append(resident())
print(json.dumps(figures))
"""


def run(quick: bool) -> list[Row]:
    """About 40 s, and 5 s when `quick`."""
    os.environ.update(PROCESS_ENVIRONMENT)
    return [*_rates(quick), *_queries(quick), *_processes(quick)]


def _rates(quick: bool) -> list[Row]:
    import numpy as np
    from tokenizers import Tokenizer

    texts = [_text(length, number) for number in range(1 if quick else 6) for length in _LENGTHS]
    tokenizer = Tokenizer.from_file(str(_MODEL / TOKENIZER_FILE))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rows: list[Any] = []
    for text in texts:
        start, *tokens, end = tokenizer.encode(text).ids
        for first, last in builtin.window_spans(len(tokens)):
            rows.append(np.array([[start, *tokens[first:last], end]], np.int32))
    rows.sort(key=lambda row: -row.size)
    lengths = sorted({row.size for row in rows}, reverse=True)
    batches = [np.concatenate([row for row in rows if row.size == length]) for length in lengths]
    session = open_session(_MODEL / GRAPH_FILE)
    threaded = open_session(_MODEL / GRAPH_FILE, threads=THREADS)
    with BuiltinEmbedder(threads=THREADS) as embedder, ThreadPoolExecutor(THREADS) as pool:
        embedder.check()
        times = interleaved(
            {
                "ours": lambda: embedder.embed_windows(texts),
                "onnxruntime, window by window": lambda: list(pool.map(partial(_run, session), rows)),
                "onnxruntime, batches of equal length": lambda: [_run(threaded, batch) for batch in batches],
            },
            repeat=3 if quick else 9,
        )
    ours = times.pop("ours")
    best = min(times, key=lambda name: times[name].median)
    tokens_in_all = sum(row.size for row in rows)
    rates = [
        Row(
            name=f"embed, {THREADS} threads, text to stored vectors",
            value=len(rows) / ours.median,
            unit="windows/s",
            baseline=best,
            baseline_value=len(rows) / times[best].median,
            target=ratio_at_least(0.9),
            note=f"{tokens_in_all / ours.median:,.0f} tokens/s; {len(rows)} windows of {len(texts)} texts",
        )
    ]
    with BuiltinEmbedder(threads=1) as embedder:
        chunk = _text(200, 0)
        one = timed(lambda: embedder.embed_windows([chunk] * 4), repeat=3 if quick else 9)
    messages = [_text(_MESSAGE_TOKENS, number) for number in range(64)]
    with BuiltinEmbedder(threads=THREADS) as embedder:
        many = timed(lambda: embedder.embed_windows(messages), repeat=3 if quick else 9)
    rates += [
        Row(name="embed, chunks of 200 tokens, one thread", value=4 / one.median, unit="chunks/s"),
        Row(
            name=f"embed, messages of {len(messages[0])} characters, {THREADS} threads",
            value=len(messages) / many.median,
            unit="messages/s",
            target=value_at_least(100),
        ),
    ]
    return rates


def _queries(quick: bool) -> list[Row]:
    with BuiltinEmbedder(threads=1) as embedder:
        warm = timed(
            lambda: embedder.embed_query("what did we decide about the outbox?"), repeat=20 if quick else 200
        )
    return [
        Row(
            name="embed a query, warm",
            value=1000 * warm.median,
            unit="ms",
            note=f"p95 {1000 * warm.percentile(95):.1f} ms",
        )
    ]


def _processes(quick: bool) -> list[Row]:
    cold: Sequence[float] = [_python(_COLD) for _ in range(3 if quick else 9)]
    rows = [
        Row(
            name="embed a query, cold process, after Python's own start",
            value=percentile(cold, 50),
            unit="ms",
            target=value_at_most(COLD_MILLISECONDS_MAX),
            note="libraries, model, tokenizer, query",
        )
    ]
    if Path("/proc/self/status").exists():
        loaded, used, released = _python(_MEMORY)
        rows.append(
            Row(
                name="resident memory of a process that has embedded",
                value=used,
                unit="MB",
                target=value_at_most(RESIDENT_MEGABYTES_MAX),
                note=f"{loaded:.0f} MB after the first query, {released:.0f} MB after release",
            )
        )
    return rows


def _text(tokens: int, number: int) -> str:
    """Words that are one token each, other ones for each text."""
    return " ".join(_WORDS[(number * 5 + n * (3 + number)) % len(_WORDS)] for n in range(tokens - 2))


def _run(session: Session, ids: Any) -> Any:
    return session.run(None, {"ids": ids})


def _python(code: str) -> Any:
    environment = {**os.environ, **PROCESS_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, timeout=120, env=environment
    )
    return json.loads(done.stdout)
