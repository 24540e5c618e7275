"""Vector index: nearest neighbours by a scan over one bit per dimension, then exact comparison of the best.

For each window the index has its rowid, its chunk's rowid, and the signs of its numbers as 64-bit words: 64 bytes at 384
dimensions, 64 MB for a million. A search has three steps and takes a few milliseconds:

    all windows      the query's signs against theirs (XOR and population count)        keeps `POOL` times what is wanted
    the pool         the query's numbers against their signs                            keeps `EXACT` times what is wanted
    the rest         the vectors themselves                                              in their exact order

The index is a copy in memory of the `windows` table as of one committed state, so no file beside the database can be stale or
damaged. `refresh` brings it up to date after writes by any process:

    added      windows have higher rowids than all that were there before
    removed    `index_state.removals` counts them, `removed_windows` names the latest; their places become holes, without signs
    else       (more removed than are named, vectors dropped, a row changed) the table is read again

Windows are in blocks of `BLOCK`, so that growing copies nothing and a scan's intermediate results stay in the processor's
cache. See docs/decisions/0038-vectors-at-a-million.md.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct

from crystal_core.database import Database
from crystal_core.errors import VaultDamaged
from crystal_core.schema import REMOVALS_NAMED
from crystal_core.sqlite_file import integers
from crystal_core.state.vectors import FLOAT16_BYTES, signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

POOL = 64
"""Windows in the pool per neighbour wanted."""
EXACT = 6
"""Windows compared exactly per neighbour wanted."""
EXACT_MIN = 240
"""Windows compared exactly, at least."""
FILTERED = 2
"""Factor of windows compared exactly behind a filter."""
PASSED = 16
"""Size of a pool that is filtered window by window, as a multiple of those compared exactly."""
ASKED_AT_ONCE = 512
"""Windows of that pool filtered at once."""
SIZE_USUAL = 250_000
"""Beyond this many windows, where neighbours get closer together, pool and exact comparisons grow with the square root."""
BLOCK = 32_768
"""Windows in one block."""
SAMPLED, SAMPLED_MIN = 16, 32_768
"""From `SAMPLED_MIN` distances on, every `SAMPLED`th is read to estimate a limit of the smallest ones."""

Column = Literal["rowids", "chunks", "words"]
Admits = Callable[["NDArray[np.int64]"], "NDArray[np.bool_]"]
"""For each of these chunks, by rowid, whether it may be found."""

_WORD_BITS = 64
_HOLES_MAX = 0.25
"""With a greater share of holes, the table is read again."""
_SPARSE = 8
"""If filters admit less than one window in this many, only those are scanned."""
_WIDEN = 4


class Neighbour(Struct, frozen=True):
    """A chunk (by rowid) and the cosine between the query and its nearest window."""

    chunk: int
    similarity: float


class _Block:
    """Up to `BLOCK` windows in the order of their rowids. The system allocates memory when it is written."""

    def __init__(self, words: int) -> None:
        self.size = 0
        self.rowids: NDArray[np.int64] = np.empty(BLOCK, np.int64)
        self.chunks: NDArray[np.int64] = np.empty(BLOCK, np.int64)
        """0 for a hole."""
        self.words: NDArray[np.uint64] = np.empty((words, BLOCK), np.uint64)

    def add(
        self, rowids: "NDArray[np.int64]", chunks: "NDArray[np.int64]", words: "NDArray[np.uint64]"
    ) -> None:
        span = slice(self.size, self.size + len(rowids))
        self.rowids[span], self.chunks[span], self.words[:, span] = rowids, chunks, words
        self.size = span.stop

    def remove(self, rowids: "NDArray[np.int64]") -> int:
        """Turn this block's windows with these rowids into holes, and count them."""
        places = np.searchsorted(self.rowids[: self.size], rowids)
        found = places < self.size
        places = places[found][self.rowids[places[found]] == rowids[found]]
        places = places[self.chunks[places] != 0]
        self.chunks[places] = 0
        self.words[:, places] = 0
        return len(places)

    def end_at_a_window(self) -> bool:
        """Drop the holes at the end; False if nothing remains."""
        windows = np.flatnonzero(self.chunks[: self.size])
        self.size = int(windows[-1]) + 1 if len(windows) else 0
        return self.size > 0


class VectorIndex:
    """The signs of all vectors of one database. Belongs to one thread at a time, like the database."""

    def __init__(self) -> None:
        self.dimensions = 0
        self.size = 0
        """Windows in it, without the holes."""
        self._blocks: list[_Block] = []
        self._version: tuple[int, int] | None = None
        self._removals = -1
        self._highest = 0
        """No chunk's rowid is higher."""

    def refresh(self, database: Database) -> None:
        """Bring the index to the committed state of the surrounding snapshot.

        Not for write transactions, whose rows may yet be rolled back.
        """
        version = database.version()
        if version == self._version:
            return
        dimensions, removals = database.rows("SELECT dimensions, removals FROM index_state")[0]
        if dimensions != self.dimensions or not self._follow_removals(database, removals):
            self.dimensions, self.size, self._highest, self._blocks = int(dimensions), 0, 0, []
        self._removals = int(removals)
        if self.dimensions:
            self._append(database)
        self._version = version

    def nearest(
        self,
        database: Database,
        query: "NDArray[np.float32]",
        count: int,
        *,
        only: "NDArray[np.int64] | None" = None,
        without: "NDArray[np.int64] | None" = None,
        admits: Admits | None = None,
        listed: bool = False,
    ) -> list[Neighbour]:
        """Return the `count` chunks nearest to `query`, nearest first; `only` and `without` are chunks by rowid.

        `admits` filters the nearest by signs and should admit one in `PASSED` or more; if it admits too few, fewer than
        `count` are found. With `listed` it costs next to nothing, and the whole pool is asked about at once. Belongs in the
        snapshot of the last `refresh`. A chunk counts once, by its nearest window.
        """
        if not self.size or count < 1:
            return []
        admitted = self._admitted(only, without)
        exact, wanted = self._effort(count, admitted)
        if admits is not None:
            exact *= FILTERED
            wanted = max(wanted, exact * PASSED)
        pool = self._pool(query, admitted, wanted)
        if admits is not None and listed:
            pool, admits = pool[admits(self._gathered("chunks", pool))], None
        if len(pool) > exact:
            pool = pool[np.argsort(-self._estimates(query, pool), kind="stable")]
        if admits is not None:
            pool = self._passed(pool, admits, exact)
        owners, similarities = np.empty(0, np.int64), np.empty(0, np.float32)
        best: dict[int, float] = {}
        compared = 0
        while compared < len(pool) and len(best) < count:
            # Once, unless the windows of few long texts fill the first places.
            places = np.sort(pool[compared:exact])  # so that their vectors are read in storage order
            products = _products(self._vectors(database, self._gathered("rowids", places)), query)
            owners = np.concatenate((owners, self._gathered("chunks", places)))
            similarities = np.concatenate((similarities, products))
            best = _first_of_each(owners, similarities, count)
            compared, exact = exact, exact * _WIDEN
        return [Neighbour(chunk, similarity) for chunk, similarity in best.items()]

    def similarities(
        self, database: Database, query: "NDArray[np.float32]", chunks: Sequence[int]
    ) -> dict[int, float]:
        """Return the cosine of each of these chunks that has vectors, by its nearest window."""
        if self.dimensions != len(query):
            return {}
        owners, vectors = self._of_chunks(database, chunks)
        return _greatest(owners, _products(vectors, query).tolist())

    def likeness(self, database: Database, chunk: int, others: Sequence[int]) -> dict[int, float]:
        """Return the cosine between a chunk and each of the others that has vectors, by their nearest windows."""
        owners, vectors = self._of_chunks(database, [chunk, *others])
        own = np.array([owner == chunk for owner in owners], bool)
        found: dict[int, float] = {}
        for vector in vectors[own]:
            for owner, cosine in _greatest(owners, _products(vectors, vector).tolist()).items():
                found[owner] = max(cosine, found.get(owner, cosine))
        return found

    def _of_chunks(
        self, database: Database, chunks: Sequence[int]
    ) -> "tuple[list[int], NDArray[np.float32]]":
        """Return the vectors of chunks, and whose each is."""
        windows = database.rows(
            "SELECT rowid, chunk FROM windows WHERE chunk IN (SELECT value FROM json_each(?)) ORDER BY rowid",
            (json.dumps(list(chunks)),),
        )
        if not windows:
            return [], np.empty((0, max(self.dimensions, 1)), np.float32)
        vectors = self._vectors(database, np.array([row[0] for row in windows]))
        return [int(row[1]) for row in windows], vectors

    def _passed(self, pool: "NDArray[np.int64]", admits: Admits, enough: int) -> "NDArray[np.int64]":
        """Return the first windows of the pool whose chunks are admitted: `enough` and a few, or all."""
        passed: list[NDArray[np.int64]] = [pool[:0]]
        found = 0
        for start in range(0, len(pool), ASKED_AT_ONCE):
            places = pool[start : start + ASKED_AT_ONCE]
            passed.append(places[admits(self._gathered("chunks", places))])
            found += len(passed[-1])
            if found >= enough:
                break
        return np.concatenate(passed)

    def _effort(self, count: int, admitted: "NDArray[np.bool_] | None") -> tuple[int, int]:
        """Return how many windows are compared exactly, and the size of the pool that they come from."""
        searched = self.size if admitted is None else int(np.count_nonzero(admitted))
        effort = max(1.0, math.sqrt(searched / SIZE_USUAL))
        exact = int(max(count * EXACT, EXACT_MIN) * effort)
        pool = max(int(count * POOL * effort), exact * FILTERED)
        # Behind a filter the best are further away, and their order by signs is less certain.
        return (exact, pool) if searched == self.size else (exact * FILTERED, pool)

    def _pool(
        self, query: "NDArray[np.float32]", admitted: "NDArray[np.bool_] | None", wanted: int
    ) -> "NDArray[np.int64]":
        """Return the places of the `wanted` windows that share most signs with the query, in no order."""
        if admitted is None:
            if self._places() <= wanted:
                return np.arange(self._places())
            return smallest(self._distances(query), wanted)
        places = np.flatnonzero(admitted)
        if len(places) <= wanted:
            return places
        if len(places) * _SPARSE < len(admitted):
            different = self._gathered("words", places) ^ self._query_words(query)
            return places[smallest(np.bitwise_count(different).sum(axis=0, dtype=np.uint16), wanted)]
        return places[smallest(self._distances(query)[places], wanted)]

    def _admitted(
        self, only: "NDArray[np.int64] | None", without: "NDArray[np.int64] | None"
    ) -> "NDArray[np.bool_] | None":
        """Return per place whether its window may be found; None if all may."""
        if only is None and (without is None or not len(without)) and self.size == self._places():
            return None
        chunks = np.full(self._highest + 1, only is None)
        if only is not None:
            chunks[only[only <= self._highest]] = True
        if without is not None:
            chunks[without[without <= self._highest]] = False
        chunks[0] = False
        return np.concatenate([chunks[block.chunks[: block.size]] for block in self._blocks])

    def _query_words(self, query: "NDArray[np.float32]") -> "NDArray[np.uint64]":
        """Return the query's signs as a column."""
        return _as_words(signs(query).tobytes(), 1, self._words())

    def _distances(self, query: "NDArray[np.float32]") -> "NDArray[np.uint16]":
        """Return per place the Hamming distance between the signs of its window and of the query."""
        words = self._query_words(query)[:, 0]
        totals = np.zeros(self._places(), np.uint16)
        different = np.empty(BLOCK, np.uint64)
        counted = np.empty(BLOCK, np.uint8)
        start = 0
        for block in self._blocks:
            size = block.size
            total = totals[start : start + size]
            for column, word in zip(block.words, words, strict=True):
                np.bitwise_xor(column[:size], word, out=different[:size])
                np.bitwise_count(different[:size], out=counted[:size])
                np.add(total, counted[:size], out=total)
            start += size
        return totals

    def _estimates(self, query: "NDArray[np.float32]", places: "NDArray[np.int64]") -> "NDArray[np.float32]":
        """Return per window the query's product with its signs, closer to the exact order than the Hamming distance."""
        packed = np.ascontiguousarray(self._gathered("words", places).T).view(np.uint8)
        bits = np.unpackbits(packed, axis=1, count=self.dimensions, bitorder="little")
        return _products(bits, query)

    def _gathered(self, column: Column, places: "NDArray[np.int64]") -> "NDArray[Any]":
        """Return a column's values at these places. All blocks but the last are full."""
        if not len(self._blocks) > 1:
            whole: NDArray[Any] = getattr(self._blocks[0], column)[..., places]
            return whole
        owner, within = places // BLOCK, places % BLOCK
        first: NDArray[Any] = getattr(self._blocks[0], column)
        found = np.empty((*first.shape[:-1], len(places)), first.dtype)
        owners: list[int] = np.flatnonzero(np.bincount(owner)).tolist()
        for number in owners:
            here = np.flatnonzero(owner == number)
            found[..., here] = getattr(self._blocks[number], column).take(within[here], axis=-1)
        return found

    def _vectors(self, database: Database, rowids: "NDArray[np.int64]") -> "NDArray[np.float32]":
        query = """
            SELECT vectors.embedding FROM json_each(?) AS wanted CROSS JOIN vectors ON vectors.rowid = wanted.value
        """
        found = b"".join(row[0] for row in database.rows(query, (json.dumps(rowids.tolist()),)))
        if len(found) != len(rowids) * self.dimensions * FLOAT16_BYTES:
            raise VaultDamaged(f"{database.path} is damaged: a window has no vector")
        return np.frombuffer(found, "<f2").astype(np.float32).reshape(len(rowids), self.dimensions)

    def _places(self) -> int:
        return (len(self._blocks) - 1) * BLOCK + self._blocks[-1].size if self._blocks else 0

    def _words(self) -> int:
        return -(-self.dimensions // _WORD_BITS)

    def _last(self) -> int:
        """Return the highest rowid in the index, 0 if there is none."""
        return int(self._blocks[-1].rowids[self._blocks[-1].size - 1]) if self._blocks else 0

    def _follow_removals(self, database: Database, removals: int) -> bool:
        """Turn the windows removed since the last call into holes; False if the table must be read again.

        A removed rowid is reused only if it was above all that remained. So without the holes at its end, the index ends
        below all rows added since.
        """
        count = removals - self._removals
        if count == 0:
            return True
        if not 0 < count <= REMOVALS_NAMED or self._removals < 0:
            return False
        named = integers(
            database.value(
                "SELECT group_concat(window) FROM removed_windows WHERE number > ?", (self._removals,)
            )
        )
        if len(named) != count:
            return False
        named = np.unique(named)
        self.size -= sum(block.remove(named) for block in self._blocks)
        while self._blocks and not self._blocks[-1].end_at_a_window():
            self._blocks.pop()
        return self._places() - self.size <= _HOLES_MAX * self._places()

    def _append(self, database: Database) -> None:
        while True:
            room = -self._places() % BLOCK or BLOCK
            listed, owners, bits = database.rows(
                "SELECT group_concat(rowid), group_concat(chunk), CAST(group_concat(bits, '') AS BLOB)"
                " FROM (SELECT rowid, chunk, bits FROM windows WHERE rowid > ? ORDER BY rowid LIMIT ?)",
                (self._last(), room),
            )[0]
            rowids, chunks = integers(listed), integers(owners)
            added = len(rowids)
            if not added:
                return
            if len(bits) != added * -(-self.dimensions // 8):
                raise VaultDamaged(f"{database.path} is damaged: the signs of a window have the wrong length")
            if room == BLOCK:
                self._blocks.append(_Block(self._words()))
            self._blocks[-1].add(rowids, chunks, _as_words(bits, added, self._words()))
            self.size += added
            self._highest = max(self._highest, int(chunks.max()))
            if added < room:
                return


def _first_of_each(
    owners: "NDArray[np.int64]", similarities: "NDArray[np.float32]", count: int
) -> dict[int, float]:
    """Return the `count` chunks with the most similar windows, in order; of equal ones the one with the lowest rowid first."""
    best: dict[int, float] = {}
    order = np.lexsort((owners, -similarities))
    for chunk, similarity in zip(owners[order].tolist(), similarities[order].tolist(), strict=True):
        best.setdefault(chunk, similarity)
        if len(best) == count:
            break
    return best


def _greatest(owners: Sequence[int], cosines: Sequence[float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for owner, cosine in zip(owners, cosines, strict=True):
        found[owner] = max(cosine, found.get(owner, cosine))
    return found


def _products(rows: "NDArray[Any]", query: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return each row times the query. Not by BLAS, whose threads wait for each other: 12 ms and more on a busy machine."""
    products: NDArray[np.float32] = np.einsum("ij,j->i", rows, query)
    return products


def smallest(distances: "NDArray[np.uint16]", count: int) -> "NDArray[np.int64]":
    """Return the places of the `count` smallest of more distances, in no order; of equal ones the last.

    Ten times as fast as `argpartition`: a distance is one of few numbers, so how often each occurs is counted. Of many
    distances, a sample gives a limit, and only those within it are counted if they suffice.
    """
    near = np.flatnonzero(distances <= _about(distances, count)) if len(distances) >= SAMPLED_MIN else None
    if near is None or len(near) < count:
        near = np.arange(len(distances))
    among = distances[near]
    limit = np.searchsorted(np.cumsum(np.bincount(among)), count)
    below = near[among < limit]
    return np.concatenate((below, near[among == limit][len(below) - count :]))


def _about(distances: "NDArray[np.uint16]", count: int) -> int:
    """Return a distance within which at least `count` lie and a few more, estimated from every `SAMPLED`th."""
    wanted = count // SAMPLED
    return int(
        np.searchsorted(np.cumsum(np.bincount(distances[::SAMPLED])), wanted + 3 * math.isqrt(wanted) + 3)
    )


def _as_words(packed: bytes, rows: int, words: int) -> "NDArray[np.uint64]":
    """Return packed bits of `rows` vectors as 64-bit words, one vector per column, padded with zeros."""
    width = len(packed) // rows
    padded = np.zeros((rows, words * 8), np.uint8)
    padded[:, :width] = np.frombuffer(packed, np.uint8).reshape(rows, width)
    return np.ascontiguousarray(padded.view(np.uint64).T)
