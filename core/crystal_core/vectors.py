"""Vectors at rest: float16 on the wire and in the digest, float32 in sqlite-vec's table, one bit per dimension beside it.

Every float16 is a float32 too, so widening and narrowing lose nothing. Vectors that are not finite are refused: they
would compare with nothing, and do not survive the way back to float16.

numpy is loaded by the first call that touches a vector, not by importing this module.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crystal_core.database import Database
from crystal_core.errors import UnusableVectors
from crystal_core.schema import DIMENSIONS_MAX, vector_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT16_BYTES = 2


def dimensions(database: Database) -> int:
    """Numbers in each vector kept; 0 while there is none."""
    return int(database.value("SELECT dimensions FROM index_state"))


def signs(vectors: "NDArray[np.float32]") -> "NDArray[np.uint8]":
    """One bit per number, set where it is above zero; each row packed into bytes, the last one filled with zeros."""
    import numpy as np

    return np.packbits(vectors > 0, axis=-1, bitorder="little")


def store(database: Database, chunks: Sequence[tuple[int, Sequence[bytes]]]) -> None:
    """Keep the windows' float16 vectors of chunks (by rowid) that have none yet. Belongs in a transaction.

    Raises UnusableVectors if their size is not that of the vectors kept, or if a number is not finite.
    """
    import numpy as np

    flat = [vector for _, windows in chunks for vector in windows]
    if not flat:
        return
    size = len(flat[0])
    kept = dimensions(database)
    if not kept and size % FLOAT16_BYTES == 0 and 0 < size <= DIMENSIONS_MAX * FLOAT16_BYTES:
        kept = size // FLOAT16_BYTES
        database.run(vector_table(kept))
    if any(len(vector) != kept * FLOAT16_BYTES for vector in flat):
        raise UnusableVectors(f"vectors of another size than {kept} float16 numbers came")
    matrix = np.frombuffer(b"".join(flat), "<f2").astype("<f4").reshape(len(flat), kept)
    if not np.isfinite(matrix).all():
        raise UnusableVectors("a vector came with a value that is not a finite number")
    bits = signs(matrix)
    first = 1 + (database.value("SELECT max(rowid) FROM windows") or 0)
    places = [(chunk, part) for chunk, windows in chunks for part in range(len(windows))]
    database.run_many(
        "INSERT INTO windows (rowid, chunk, part, bits) VALUES (?, ?, ?, ?)",
        [(first + i, chunk, part, bits[i].tobytes()) for i, (chunk, part) in enumerate(places)],
    )
    database.run_many(
        "INSERT INTO chunks_vec (rowid, embedding) VALUES (?, ?)",
        [(first + i, matrix[i].tobytes()) for i in range(len(places))],
    )


def float16_vectors(database: Database, chunk: int) -> list[bytes]:
    """The float16 bytes of a chunk's windows, in order: exactly as they were stored."""
    windows = database.rows("SELECT rowid FROM windows WHERE chunk = ? ORDER BY part", (chunk,))
    if not windows:
        return []
    import numpy as np

    return [
        np.frombuffer(vector, "<f4").astype("<f2").tobytes()
        for (rowid,) in windows
        for (vector,) in database.rows("SELECT embedding FROM chunks_vec WHERE rowid = ?", (rowid,))
    ]
