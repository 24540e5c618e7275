"""BM25 with given weights, over the whole index or over a few texts, where FTS5's own would cost too much.

FTS5's `bm25()` reads every occurrence of every word of the query to know how rare it is: 10 ms and more for one common word in
a million chunks. `crystal_rank(table, weight, …)` takes a weight for each phrase of the query and otherwise computes the same.
For a few texts, a temporary index in memory is faster than a search of the large one.
"""

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from crystal_core.database import Database
from crystal_core.schema import TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Generator

    import apsw

_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_WEIGHT_MIN = 1e-6
"""FTS5's constants."""

_prepared: WeakSet[Database] = WeakSet()


def prepare(database: Database) -> None:
    """Register `crystal_rank` with the connection, and create `temp.words`, which `holding` reads.

    Call outside of transactions. Created in a snapshot, both would be rolled back with it, and all prepared statements of the
    connection would be prepared again, which costs a search a tenth of its time.
    """
    if database in _prepared:
        return
    before = database.connection.total_changes()
    database.connection.register_fts5_function("crystal_rank", _rank)
    database.run("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab (main, chunks_fts, row)")
    database.temporary_changes += database.connection.total_changes() - before
    if not database.in_transaction():
        _prepared.add(database)


def holding(database: Database, word: str) -> int | None:
    """Return the number of chunks with a word; None for what the index takes as none or several words.

    Call `prepare` first. Takes about 15 ns per chunk.
    """
    import apsw

    words: list[str] = TOKENIZER.split()
    tokenizer, arguments = words[0], words[1:]
    cut = database.connection.fts5_tokenizer(tokenizer, arguments)
    found = cut(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False)
    tokens = cast("list[tuple[str, ...]]", found)
    if len(tokens) != 1 or len(tokens[0]) != 1:
        return None
    return int(database.value("SELECT doc FROM temp.words WHERE term = ?", tokens[0]) or 0)


def weight(holding: float, total: int) -> float:
    """Return the weight of a word that is in `holding` of `total` texts."""
    return (
        max(math.log((total - holding + 0.5) / (holding + 0.5)), _WEIGHT_MIN)
        if holding < total
        else _WEIGHT_MIN
    )


def rank_expression(table: str, weights: Sequence[float]) -> str:
    """Return SQL for a row's rank: lower is better, as in FTS5."""
    return f"crystal_rank({', '.join([table, *(repr(float(number)) for number in weights)])})"


@contextmanager
def index_of(database: Database, rowids: Iterable[int]) -> "Generator[str]":
    """Create a temporary full-text index over these chunks and yield its name. Belongs in a snapshot."""
    before = database.connection.total_changes()
    database.run(
        f"CREATE VIRTUAL TABLE temp.few_texts USING fts5 (text, content = '', tokenize = '{TOKENIZER}')"
    )
    try:
        database.run(
            "INSERT INTO temp.few_texts (rowid, text)"
            " SELECT rowid, text FROM chunks WHERE rowid IN (SELECT value FROM json_each(?))",
            (json.dumps(list(rowids)),),
        )
        yield "few_texts"
    finally:
        database.run("DROP TABLE temp.few_texts")
        database.temporary_changes += database.connection.total_changes() - before


def _rank(api: "apsw.FTS5ExtensionApi", *weights: Any) -> float:
    # Called for thousands of rows in one search, so every call into SQLite counts.
    average = api.aux_data
    if average is None:
        average = api.aux_data = max(api.column_total_size(0), 1) / max(api.row_count, 1)
    length = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * api.column_size(0) / average)
    if len(weights) == 1:
        times = api.inst_count
        return float(-weights[0] * times * (_SATURATION + 1) / (times + length))
    total = 0.0
    for phrase, own in enumerate(weights):
        times = len(api.phrase_column_offsets(phrase, 0))
        if times:
            total += own * times * (_SATURATION + 1) / (times + length)
    return -total
