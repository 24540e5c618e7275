"""Postings: which chunks hold a term and how often, and their ranks by BM25, for a process that has NumPy.

FTS5 takes 0.5 to 1.2 µs to rank a chunk, most of it to look up how long the chunk is. Here it only lists the chunks (0.1 to
0.25 µs each), their lengths are kept in memory, 4 bytes a chunk, and NumPy ranks them: the same ranks in a third of the time.

Lengths are read as they are needed. A rowid means another text only after chunks were removed or changed, by whatever process:
`index_state.lost` counts that, and all lengths are then read again. Only chunks that FTS5 lists in the snapshot of the search
are ranked, so what was forgotten is not found.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from crystal_core.database import Database
from crystal_core.search import bm25
from crystal_core.sqlite_file import integers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOOKED_AT = 16
"""Ranked chunks that are put in order, for each one wanted, where a restriction may leave most of them out."""
_CHECKED_AT_ONCE = 256
"""Ranked chunks that a restriction is checked for at once."""
_SEVEN_BITS, _MORE = 0x7F, 0x80
"""In a byte of SQLite's variable-length integers: the bits of its value, and the bit that says that another byte follows."""


def at_hand() -> bool:
    """Whether NumPy is loaded already: importing it takes longer than many a search by words."""
    return "numpy" in sys.modules


class Postings(Struct, frozen=True):
    """The chunks that hold a term, and how often each does; in ascending order of rowids."""

    chunks: "NDArray[np.int64]"
    times: "NDArray[np.int64]"

    def among(self, chunks: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return how often each of these chunks, which are in ascending order, holds the term."""
        import numpy as np

        found = np.zeros(len(chunks), np.int64)
        if len(self.chunks):
            places = np.minimum(np.searchsorted(self.chunks, chunks), len(self.chunks) - 1)
            here = self.chunks[places] == chunks
            found[here] = self.times[places[here]]
        return found


class Lengths:
    """How many words each chunk has, and all of them on average, as of one committed state."""

    def __init__(self) -> None:
        import numpy as np

        self._version: tuple[int, int] | None = None
        self._lost = -1
        self._totals: tuple[int, float] | None = None
        self._words = np.zeros(0, np.int32)
        """By rowid; 0 if it is not known."""

    def refresh(self, database: Database) -> None:
        """Bring what is known to the state of the surrounding snapshot."""
        version = database.version()
        if version == self._version:
            return
        lost = int(database.value("SELECT lost FROM index_state"))
        if lost != self._lost:
            self._words = self._words[:0]
        self._version, self._lost, self._totals = version, lost, None

    def totals(self, database: Database, term: str) -> tuple[int, float]:
        """Return the number of chunks and their average length; `term` is in one of them."""
        if self._totals is None:
            said = database.value(
                "SELECT crystal_totals(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1", (term,)
            )
            rows, words = json.loads(said)
            self._totals = int(rows), max(words, 1) / max(rows, 1)
        return self._totals

    def of(self, database: Database, chunks: "NDArray[np.int64]") -> "NDArray[np.int32]":
        """Return the lengths of these chunks."""
        import numpy as np

        highest = int(chunks.max(initial=0))
        if highest >= len(self._words):
            known, self._words = self._words, np.zeros(highest + 1 + highest // 8, np.int32)
            self._words[: len(known)] = known
        unknown = chunks[self._words[chunks] == 0]
        if len(unknown):
            listed, sizes = database.rows(
                "SELECT group_concat(id), CAST(group_concat(sz, '') AS BLOB) FROM (SELECT size.id, sz"
                " FROM json_each(?) AS wanted CROSS JOIN chunks_fts_docsize AS size ON size.id = wanted.value)",
                (json.dumps(unknown.tolist()),),
            )[0]
            self._words[integers(listed)] = _numbers(sizes or b"")
        return self._words[chunks]


def _numbers(packed: bytes) -> "NDArray[np.int64]":
    """Return the variable-length integers of SQLite that stand one behind the other."""
    import numpy as np

    read = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(read < _MORE)
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1)) if len(ends) else ends
    numbers = np.zeros(len(ends), np.int64)
    for more in range(int((ends - begins).max(initial=0)) + 1):
        here = begins + more <= ends
        numbers[here] = (numbers[here] << 7) | (read[begins[here] + more] & _SEVEN_BITS)
    return numbers


_lengths: "WeakKeyDictionary[Database, Lengths]" = WeakKeyDictionary()


def lengths(database: Database) -> Lengths:
    """Return the lengths of the surrounding snapshot."""
    found = _lengths.get(database)
    if found is None:
        found = _lengths[database] = Lengths()
    found.refresh(database)
    return found


def holders(database: Database, term: str) -> Postings:
    """Return all that hold a term."""
    token = None if " " in term else bm25.token(database, term.strip('"'))
    if token is None:
        return matching(database, "chunks_fts", term)
    import numpy as np

    # Once for each time that a chunk holds it.
    said = integers(database.value("SELECT group_concat(doc) FROM temp.instances WHERE term = ?", (token,)))
    begins = np.flatnonzero(np.diff(said, prepend=-1))
    return Postings(said[begins], np.diff(begins, append=len(said)))


def matching(
    database: Database,
    table: str,
    expression: str,
    condition: str = "",
    bindings: Sequence[object] = (),
    *,
    newest: int = -1,
    expected: float = math.inf,
    each: bool = False,
) -> Postings:
    """Return what matches an FTS5 expression and meets a condition on `rowid`, and how often its terms are in each.

    With `newest`, only so many of the newest: if fewer are `expected`, all are read, upwards, for which FTS5 takes two thirds
    of the time of reading downwards. With `each`, the times are for `of_each`, of at most `bm25.COUNTED_EACH_MAX` terms.
    """
    times = "crystal_times_of_each" if each else "crystal_times"
    where = f" AND {condition}" if condition else ""
    up = newest < 0 or expected < newest
    # By its LIMIT, SQLite asks for the times before it joins them.
    query = (
        f"SELECT group_concat(chunk), group_concat(times) FROM (SELECT rowid AS chunk, {times}({table}) AS times"  # noqa: S608
        f" FROM {table} WHERE {table} MATCH ?{where} ORDER BY rowid{'' if up else ' DESC'} LIMIT ?)"
    )
    listed, counted = database.rows(query, (expression, *bindings, -1 if up else newest))[0]
    chunks, counts = integers(listed), integers(counted)
    if not up:
        return Postings(chunks[::-1], counts[::-1])
    first = max(len(chunks) - newest, 0) if newest >= 0 else 0
    return Postings(chunks[first:], counts[first:])


def in_all(listed: Sequence[Postings], newest: int) -> Postings:
    """Return the newest chunks that are in all of these lists, with the times of the first."""
    held = listed[0].chunks
    for other in listed[1:]:
        held = held[other.among(held) > 0]
    held = held[-newest:]
    return Postings(held, listed[0].among(held))


def of_each(found: Postings, terms: int) -> "list[NDArray[np.int64]]":
    """Return how often each of an expression's terms is in the chunks."""
    last = terms - 1
    return [found.times >> bm25.TIMES_BITS * (last - term) & bm25.TIMES_MAX for term in range(terms)]


def ranked(
    database: Database, terms: Sequence[tuple[float, Postings]], average: float
) -> "tuple[NDArray[np.int64], NDArray[np.float64]]":
    """Return the chunks that hold one of the terms, and their BM25, in ascending order of rowids. Terms come with weights."""
    import numpy as np

    listed = np.sort(np.concatenate([postings.chunks for _, postings in terms]))
    chunks = listed[np.diff(listed, prepend=-1) > 0]  # np.unique, by hashes, takes ten times as long
    sizes = lengths(database).of(database, chunks)
    # In FTS5's order, so that every bit is the same.
    length = bm25.SATURATION * (1 - bm25.LENGTH_SHARE + bm25.LENGTH_SHARE * sizes / average)
    scores = np.zeros(len(chunks))
    for weight, postings in terms:
        places = np.searchsorted(chunks, postings.chunks)
        times = postings.times.astype(np.float64)
        scores[places] += weight * (times * (bm25.SATURATION + 1) / (times + length[places]))
    return chunks, scores


def best(
    database: Database,
    found: "tuple[NDArray[np.int64], NDArray[np.float64]]",
    limit: int,
    condition: str = "",
    bindings: Sequence[object] = (),
) -> list[tuple[int, float]]:
    """Return the `limit` best that meet a condition on `rowid`, best first; of equal ones the newest."""
    import numpy as np

    chunks, scores = found
    most = _LOOKED_AT * limit if condition else limit
    if len(scores) > most:
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
        chunks, scores = chunks[scores >= least], scores[scores >= least]
    order = np.lexsort((-chunks, -scores))
    ranked_chunks: list[int] = chunks[order].tolist()
    ranked_scores: list[float] = scores[order].tolist()
    pairs = list(zip(ranked_chunks, ranked_scores, strict=True))
    if not condition:
        return pairs[:limit]
    passed: list[tuple[int, float]] = []
    for start in range(0, len(pairs), _CHECKED_AT_ONCE):
        some = pairs[start : start + _CHECKED_AT_ONCE]
        meeting = set(meets(database, (chunk for chunk, _ in some), condition, bindings))
        passed += [pair for pair in some if pair[0] in meeting]
        if len(passed) >= limit:
            return passed[:limit]
    if len(pairs) < len(found[0]):
        return best(database, found, len(found[0]), condition, bindings)[
            :limit
        ]  # the filter admits less than it seemed
    return passed


def meets(database: Database, chunks: Iterable[int], condition: str, bindings: Sequence[object]) -> list[int]:
    """Return those of the chunks that meet a condition on `rowid`."""
    query = f"SELECT rowid FROM (SELECT value AS rowid FROM json_each(?)) WHERE {condition}"  # noqa: S608
    return [int(row[0]) for row in database.rows(query, (json.dumps(list(chunks)), *bindings))]
