"""Nearest vectors in a few milliseconds: a scan over one bit per dimension, then the exact order of the best of it.

The index holds, for each window, its rowid, its chunk's, and the signs of its numbers as 64-bit words: 64 bytes at 384
dimensions. A search narrows down in three steps:

    all windows      the query's signs against theirs (XOR and population count)        keeps `POOL` times what is wanted
    the pool         the query's numbers against their signs                            keeps `EXACT` times what is wanted
    the rest         the vectors themselves, from sqlite-vec's table                    in their exact order

The index is a copy of the `windows` table as of one committed state. `refresh` brings it up to date: added windows have
higher rowids than all before, anything else moves `index_state.removals` and makes it read the table anew. It lives in
memory only; there is nothing to repair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crystal_core.database import Database
from crystal_core.errors import VaultDamaged
from crystal_core.numbers import integers
from crystal_core.vectors import signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

POOL = 64
"""Windows in the pool for each neighbour that is wanted."""
EXACT = 6
"""Windows compared exactly for each neighbour that is wanted."""
EXACT_MIN = 240
"""Windows compared exactly in any case."""

_WORD_BITS = 64
_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A chunk (by rowid) and the cosine of its nearest window to the query."""

    chunk: int
    similarity: float


class VectorIndex:
    """The signs of all vectors of one database. Belongs to one thread at a time, as the database does."""

    def __init__(self) -> None:
        self.dimensions = 0
        self.size = 0
        self._version: tuple[int, int] | None = None
        self._removals = -1
        self._rowids: NDArray[np.int64] = np.empty(0, np.int64)
        self._chunks: NDArray[np.int64] = np.empty(0, np.int64)
        self._words: NDArray[np.uint64] = np.empty((0, 0), np.uint64)

    def refresh(self, database: Database) -> None:
        """Make the index equal to the committed state that the surrounding snapshot shows.

        Raises RuntimeError inside a write transaction, whose rows may yet be rolled back.
        """
        version = database.version()
        if version == self._version:
            return
        dimensions, removals = database.rows("SELECT dimensions, removals FROM index_state")[0]
        if (dimensions, removals) != (self.dimensions, self._removals):
            self.dimensions, self._removals, self.size = int(dimensions), int(removals), 0
            self._words = np.empty((-(-self.dimensions // _WORD_BITS), 0), np.uint64)
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
    ) -> list[Neighbour]:
        """The `count` chunks nearest to `query`, nearest first; `only` and `without` are chunks by rowid.

        Belongs in the snapshot of the last `refresh`. A chunk counts once, by its nearest window.
        """
        if not self.size or count < 1:
            return []
        chunks = self._chunks[: self.size]
        allowed = _mask(chunks, only, without)
        windows = np.arange(self.size) if allowed is None else np.flatnonzero(allowed)
        exact = max(count * EXACT, EXACT_MIN)
        windows = _smallest(windows, lambda some: self._distances(query)[some], max(count * POOL, exact))
        windows = _smallest(windows, lambda some: -self._estimates(query, some), exact)
        similarities = _products(self._vectors(database, self._rowids[windows]), query)
        best: dict[int, float] = {}
        for place in np.argsort(-similarities, kind="stable"):
            best.setdefault(int(chunks[windows[place]]), float(similarities[place]))
            if len(best) == count:
                break
        return [Neighbour(chunk, similarity) for chunk, similarity in best.items()]

    def _distances(self, query: "NDArray[np.float32]") -> "NDArray[np.uint16]":
        """Per window, the number of dimensions in which its sign differs from the query's."""
        words = _as_words(signs(query).tobytes(), 1, len(self._words))
        total = np.zeros(self.size, np.uint16)
        different = np.empty(self.size, np.uint64)
        counted = np.empty(self.size, np.uint8)
        for column, word in zip(self._words, words[:, 0], strict=True):
            np.bitwise_xor(column[: self.size], word, out=different)
            np.bitwise_count(different, out=counted)
            total += counted
        return total

    def _estimates(self, query: "NDArray[np.float32]", windows: "NDArray[np.int64]") -> "NDArray[np.float32]":
        """Per window, the query's product with its signs: closer to the true order than the number of equal signs."""
        packed = np.ascontiguousarray(self._words[:, windows].T).view(np.uint8)
        bits = np.unpackbits(packed, axis=1, count=self.dimensions, bitorder="little")
        return _products(bits, query)

    def _vectors(self, database: Database, rowids: "NDArray[np.int64]") -> "NDArray[np.float32]":
        # One lookup each: sqlite-vec answers `rowid IN (…)` several times slower.
        query = "SELECT embedding FROM chunks_vec WHERE rowid = ?"
        found = [row[0] for row in database.rows_of_many(query, [(int(rowid),) for rowid in rowids])]
        if len(found) != len(rowids):
            raise VaultDamaged(f"{database.path} is damaged: a window has no vector")
        return np.frombuffer(b"".join(found), "<f4").reshape(len(found), self.dimensions)

    def _append(self, database: Database) -> None:
        last = int(self._rowids[self.size - 1]) if self.size else 0
        listed, owners, bits = database.rows(
            "SELECT group_concat(rowid), group_concat(chunk), CAST(group_concat(bits, '') AS BLOB)"
            " FROM (SELECT rowid, chunk, bits FROM windows WHERE rowid > ? ORDER BY rowid)",
            (last,),
        )[0]
        rowids, chunks = integers(listed), integers(owners)
        added = len(rowids)
        if not added:
            return
        if len(bits) != added * -(-self.dimensions // 8):
            raise VaultDamaged(f"{database.path} is damaged: the signs of a window have the wrong length")
        self._reserve(self.size + added)
        span = slice(self.size, self.size + added)
        self._rowids[span], self._chunks[span] = rowids, chunks
        self._words[:, span] = _as_words(bits, added, len(self._words))
        self.size += added

    def _reserve(self, size: int) -> None:
        if size <= self._words.shape[1] and size <= len(self._rowids):
            return
        room = size if not self.size else int(size * _GROWTH)
        kept = slice(0, self.size)
        rowids, chunks = np.empty(room, np.int64), np.empty(room, np.int64)
        words = np.empty((len(self._words), room), np.uint64)
        rowids[kept], chunks[kept], words[:, kept] = (
            self._rowids[kept],
            self._chunks[kept],
            self._words[:, kept],
        )
        self._rowids, self._chunks, self._words = rowids, chunks, words


def _products(rows: "NDArray[Any]", query: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Each row times the query. Not by BLAS: its threads wait for each other, 12 ms and more on a busy machine."""
    products: NDArray[np.float32] = np.einsum("ij,j->i", rows, query)
    return products


def _smallest(
    windows: "NDArray[np.int64]", ranks: "Callable[[NDArray[np.int64]], NDArray[Any]]", count: int
) -> "NDArray[np.int64]":
    """The `count` windows with the smallest ranks, in no order; ranks are not asked for if these are all."""
    if len(windows) <= count:
        return windows
    return windows[np.argpartition(ranks(windows), count)[:count]]


def _as_words(packed: bytes, rows: int, words: int) -> "NDArray[np.uint64]":
    """Packed bits of `rows` vectors as 64-bit words, one vector a column; missing bits are zero."""
    width = len(packed) // rows
    padded = np.zeros((rows, words * 8), np.uint8)
    padded[:, :width] = np.frombuffer(packed, np.uint8).reshape(rows, width)
    return np.ascontiguousarray(padded.view(np.uint64).T)


def _mask(
    chunks: "NDArray[np.int64]", only: "NDArray[np.int64] | None", without: "NDArray[np.int64] | None"
) -> "NDArray[np.bool_] | None":
    """Per window, whether its chunk may be found; None if all may."""
    if only is None and (without is None or not len(without)):
        return None
    highest = int(chunks.max())
    allowed = np.full(highest + 1, only is None)
    if only is not None:
        allowed[only[only <= highest]] = True
    if without is not None:
        allowed[without[without <= highest]] = False
    return allowed[chunks]
