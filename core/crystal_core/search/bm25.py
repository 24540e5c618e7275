"""BM25 with given weights, over the whole index or over a few texts, where FTS5's own would cost too much.

FTS5's `bm25()` reads every occurrence of every word of the query to know how rare it is: 10 ms and more for one common word in
a million chunks. `crystal_rank(table, weight, …)` takes a weight for each phrase of the query and otherwise computes the same.
For a few texts, a temporary index in memory is faster than a search of the large one.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet

from crystal_core.database import Database
from crystal_core.schema import TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Generator

    import apsw

SATURATION = 1.2
LENGTH_SHARE = 0.75
_WEIGHT_MIN = 1e-6
"""FTS5's constants."""

TIMES_BITS = 12
TIMES_MAX = (1 << TIMES_BITS) - 1
"""Higher counts of a word are taken as this one: from here on they hardly change the rank."""
COUNTED_EACH_MAX = 63 // TIMES_BITS
"""Terms whose counts fit into one of SQLite's integers."""

ADMITTED = "crystal_admitted(rowid)"
"""The condition that a chunk is one of those that `admit` was given last."""

_prepared: WeakSet[Database] = WeakSet()
_admitted: "WeakKeyDictionary[Database, bytearray]" = WeakKeyDictionary()


def prepare(database: Database) -> None:
    """Register the functions of this module with the connection, and create the tables that say which chunks hold a word.

    Call outside of transactions. Created in a snapshot, both would be rolled back with it, and all prepared statements of the
    connection would be prepared again, which costs a search a tenth of its time.
    """
    if database in _prepared:
        return
    before = database.connection.total_changes()
    connection = database.connection
    connection.register_fts5_function("crystal_rank", _rank)
    connection.register_fts5_function("crystal_totals", _totals)
    # A getter in C, like `lookup` below: no Python code runs for a row.
    times = cast("Callable[..., int]", operator.attrgetter("inst_count"))
    connection.register_fts5_function("crystal_times", times)
    connection.register_fts5_function("crystal_times_of_each", _times_of_each)
    _admitted[database] = admitted = bytearray()
    lookup = cast("Callable[..., int]", admitted.__getitem__)
    connection.create_scalar_function("crystal_admitted", lookup, 1, deterministic=True)
    database.run(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab (main, chunks_fts, row);"
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.instances USING fts5vocab (main, chunks_fts, instance)"
    )
    database.temporary_changes += database.connection.total_changes() - before
    if not database.in_transaction():
        _prepared.add(database)


def holding(database: Database, word: str) -> int | None:
    """Return the number of chunks with a word; None for what the index takes as none or several words.

    Call `prepare` first. Takes about 15 ns per chunk.
    """
    found = token(database, word)
    if found is None:
        return None
    return int(database.value("SELECT doc FROM temp.words WHERE term = ?", (found,)) or 0)


def token(database: Database, word: str) -> str | None:
    """Return a word as it stands in the index; None for what the index takes as none or several words."""
    import apsw

    words: list[str] = list(TOKENIZER.split())
    tokenizer, arguments = words[0], words[1:]
    cut = database.connection.fts5_tokenizer(tokenizer, arguments)
    found = cut(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False)
    tokens = cast("list[tuple[str, ...]]", found)
    return tokens[0][0] if len(tokens) == 1 and len(tokens[0]) == 1 else None


def admit(database: Database, chunks: Iterable[int], highest: int) -> None:
    """Make `ADMITTED` true of these chunks alone, until the next call. No chunk has a higher rowid than `highest`."""
    admitted = _admitted[database]
    admitted[:] = bytes(highest + 1)
    for chunk in chunks:
        admitted[chunk] = 1


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


def _totals(api: "apsw.FTS5ExtensionApi", *_: Any) -> str:
    return json.dumps([api.row_count, api.column_total_size(0)])


def _times_of_each(api: "apsw.FTS5ExtensionApi", *_: Any) -> int:
    """How often each phrase of the expression is in a row, the first one in the highest bits."""
    # Called for thousands of rows in one search: a comparison takes a third of the time of `min`.
    offsets, packed = api.phrase_column_offsets, 0
    for phrase in range(api.phrase_count):
        times = len(offsets(phrase, 0))
        packed = packed << TIMES_BITS | (times if times < TIMES_MAX else TIMES_MAX)  # noqa: FURB136
    return packed


def _rank(api: "apsw.FTS5ExtensionApi", *weights: Any) -> float:
    # Called for thousands of rows in one search, so every call into SQLite counts.
    average = api.aux_data
    if average is None:
        average = api.aux_data = max(api.column_total_size(0), 1) / max(api.row_count, 1)
    length = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * api.column_size(0) / average)
    if len(weights) == 1:
        times = api.inst_count
        return float(-weights[0] * times * (SATURATION + 1) / (times + length))
    total = 0.0
    for phrase, own in enumerate(weights):
        times = len(api.phrase_column_offsets(phrase, 0))
        if times:
            total += own * times * (SATURATION + 1) / (times + length)
    return -total
