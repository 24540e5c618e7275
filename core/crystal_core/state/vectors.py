"""Storage of vectors: float16, as on the wire and in the digest, and one bit per dimension beside it.

Vectors that are not finite are refused: they cannot be compared.

NumPy is loaded by the first call that needs it, not by importing this module; a few vectors are stored without it.
"""

import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from crystal_core.database import Database
from crystal_core.errors import UnusableVectors
from crystal_core.schema import DIMENSIONS_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT16_BYTES = 2
FEW = 32
"""Up to so many vectors at once are checked without NumPy, if it is not loaded: new messages bring so few, and NumPy would take
11 MB of each device's background service. Without it a vector takes some 30 µs."""
_POSITIVE = ("0", "1")
_NOT_A_NUMBER = "a vector came with a value that is not a finite number"


def dimensions(database: Database) -> int:
    """Return the dimensions of the stored vectors; 0 while there are none."""
    return int(database.value("SELECT dimensions FROM index_state"))


def signs(vectors: "NDArray[np.floating[Any]]") -> "NDArray[np.uint8]":
    """Return one bit per number, set if above zero; each row packed into bytes, padded with zeros."""
    import numpy as np

    return np.packbits(vectors > 0, axis=-1, bitorder="little")


def store(database: Database, chunks: Sequence[tuple[int, Sequence[bytes]]]) -> None:
    """Store the windows' float16 vectors of chunks (by rowid) that have none yet. Belongs in a transaction.

    Raises UnusableVectors if their size differs from that of the stored vectors, or if a number is not finite.
    """
    flat = [vector for _, windows in chunks for vector in windows]
    if len({len(vector) for vector in flat}) > 1:
        raise UnusableVectors("vectors of several sizes came")
    store_block(
        database, [chunk for chunk, _ in chunks], [len(windows) for _, windows in chunks], b"".join(flat)
    )


def store_block(database: Database, chunks: Sequence[int], windows: Sequence[int], vectors: bytes) -> None:
    """As `store`, for vectors in one block: `windows` of them for each of the chunks."""
    total = sum(windows)
    if not total:
        return
    size = len(vectors) // total
    kept = dimensions(database)
    if not kept and size % FLOAT16_BYTES == 0 and 0 < size <= DIMENSIONS_MAX * FLOAT16_BYTES:
        kept = size // FLOAT16_BYTES
        database.run("UPDATE index_state SET dimensions = ?", (kept,))
    if len(vectors) != total * kept * FLOAT16_BYTES:
        raise UnusableVectors(f"vectors of another size than {kept} float16 numbers came")
    few = total <= FEW and "numpy" not in sys.modules
    rows_of = rows_of_few if few else rows_by_numpy
    rows = list(rows_of(vectors, kept))
    first = 1 + (database.value("SELECT max(rowid) FROM windows") or 0)
    rowids = range(first, first + total)
    places = [(chunk, part) for chunk, count in zip(chunks, windows, strict=True) for part in range(count)]
    database.run_many(
        "INSERT INTO windows (rowid, chunk, part, bits) VALUES (?, ?, ?, ?)",
        [
            (rowid, chunk, part, bits)
            for rowid, (chunk, part), (_, bits) in zip(rowids, places, rows, strict=True)
        ],
    )
    database.run_many(
        "INSERT INTO vectors (rowid, embedding) VALUES (?, ?)",
        [(rowid, vector) for rowid, (vector, _) in zip(rowids, rows, strict=True)],
    )


_Row = tuple[memoryview, bytes | memoryview]
"""A vector as it came, and its signs."""


def rows_of_few(vectors: bytes, size: int) -> Iterator[_Row]:
    """Raises UnusableVectors."""
    numbers = struct.Struct(f"<{size}e")
    for at in range(0, len(vectors), numbers.size):
        row: tuple[float, ...] = numbers.unpack_from(vectors, at)
        if not all(map(math.isfinite, row)):
            raise UnusableVectors(_NOT_A_NUMBER)
        bits = int("".join([_POSITIVE[number > 0] for number in reversed(row)]), 2)
        yield memoryview(vectors)[at : at + numbers.size], bits.to_bytes((size + 7) // 8, "little")


def rows_by_numpy(vectors: bytes, size: int) -> Iterable[_Row]:
    """Raises UnusableVectors."""
    import numpy as np

    matrix = np.frombuffer(vectors, "<f2").reshape(-1, size)
    if not np.isfinite(matrix).all():
        raise UnusableVectors(_NOT_A_NUMBER)
    return zip(_rows(matrix), _rows(signs(matrix)), strict=True)


def _rows(matrix: "NDArray[Any]") -> Iterator[memoryview]:
    """Iterate over the bytes of each row, without copying."""
    view = matrix.data.cast("B")
    size = matrix.strides[0]
    return (view[at : at + size] for at in range(0, len(view), size))


def float16_vectors(database: Database, chunk: int) -> list[bytes]:
    """Return the float16 bytes of a chunk's windows, in order, exactly as they came."""
    rows = database.rows(
        "SELECT embedding FROM windows JOIN vectors USING (rowid) WHERE chunk = ? ORDER BY part", (chunk,)
    )
    return [vector for (vector,) in rows]


def float16_vectors_between(database: Database, first: int, last: int) -> dict[int, list[bytes]]:
    """Return the float16 bytes of the windows of all chunks (by rowid) from `first` to `last`."""
    found: dict[int, list[bytes]] = {}
    for chunk, vector in database.rows(
        "SELECT chunk, embedding FROM windows JOIN vectors USING (rowid) WHERE chunk BETWEEN ? AND ?"
        " ORDER BY chunk, part",
        (first, last),
    ):
        found.setdefault(chunk, []).append(vector)
    return found


_LACKING = (
    "FROM chunks WHERE provisional = 0 AND rowid > (SELECT embedded FROM index_state)"
    " AND NOT EXISTS (SELECT 1 FROM windows WHERE chunk = chunks.rowid)"
    " AND NOT EXISTS (SELECT 1 FROM actions WHERE chunk = chunks.rowid) ORDER BY rowid LIMIT ?"
)


def without_vectors(database: Database, limit: int) -> list[tuple[bytes, str]]:
    """Return content hash and text of replicated chunks without vectors, oldest first. Tool calls are to have none."""
    rows = database.rows(f"SELECT id, text {_LACKING}", (limit,))
    return [(content, text) for content, text in rows]


def pass_over(database: Database, content: bytes) -> int | None:
    """Has the first chunk without vectors count as if it had some, until vectors are dropped or an earlier chunk has none.
    Returns its rowid. If another chunk than `content` is the first, returns None and changes nothing."""
    found = database.row(f"SELECT rowid, id {_LACKING}", (1,))
    if found is None or found[1] != content:
        return None
    database.run("UPDATE index_state SET embedded = ?", (found[0],))
    note_embedded(database)
    return int(found[0])


def passed_over(database: Database, chunks: Sequence[int]) -> int:
    """How many of these chunks (by rowid) `pass_over` gave up and are still without vectors."""
    return int(
        database.value(
            "SELECT count(*) FROM chunks WHERE provisional = 0 AND rowid IN (SELECT value FROM json_each(?))"
            " AND rowid <= (SELECT embedded FROM index_state)"
            " AND NOT EXISTS (SELECT 1 FROM windows WHERE chunk = chunks.rowid)"
            " AND NOT EXISTS (SELECT 1 FROM actions WHERE chunk = chunks.rowid)",
            (json.dumps(list(chunks)),),
        )
    )


def note_lacking(database: Database, chunks: Sequence[int]) -> None:
    """Record that replicated chunks (by rowid) have no vectors. Their places are known: tool calls are to have none."""
    first = database.value(
        "SELECT min(value) FROM json_each(?) WHERE value NOT IN (SELECT chunk FROM actions)",
        (json.dumps(list(chunks)),),
    )
    if first is not None:
        database.run("UPDATE index_state SET embedded = ?1 WHERE embedded > ?1", (first - 1,))


def note_embedded(database: Database) -> None:
    """Record the first chunk without vectors, so that later queries start there."""
    lacking = database.value(f"SELECT rowid {_LACKING}", (1,))
    if lacking is None:
        lacking = 1 + (database.value("SELECT max(rowid) FROM chunks") or 0)
    database.run("UPDATE index_state SET embedded = ?", (lacking - 1,))
