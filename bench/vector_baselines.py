"""The nearest of many vectors by others: sqlite-vec's exact scan, faiss' flat index, usearch's graph. One thread each.

They hold the same numbers as our table. faiss and usearch hold them in memory, and say what that costs: what a process takes
for itself (private, resident, not backed by a file), which the page cache does not give back.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from crystal_core.database import Database, load_vectors
from crystal_core.state.vectors import dimensions

VECTOR_BLOCK = 32
"""Vectors in one block of sqlite-vec's table: a full scan takes at most 1.2 times its best, and single rows are quick."""


def private_megabytes() -> float:
    """Resident memory of this process that no file backs. NaN where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    for line in status.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return float("nan")


class SqliteVec:
    """A memory's vectors in sqlite-vec's own table, float32, in a file of its own: the exact scan."""

    def __init__(self, database: Database, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        load_vectors(self._connection)
        size = dimensions(database)
        self._connection.execute(
            f"CREATE VIRTUAL TABLE scanned USING vec0 (embedding float[{size}], chunk_size = {VECTOR_BLOCK})"
        )
        with self._connection:
            self._connection.executemany(
                "INSERT INTO scanned (rowid, embedding) VALUES (?, ?)",
                database.each("SELECT rowid, crystal_float32(embedding) FROM vectors ORDER BY rowid"),
            )

    def nearest(self, query: NDArray[np.float32], count: int) -> list[int]:
        """Rowids of windows."""
        rows = self._connection.execute(
            "SELECT rowid FROM scanned WHERE embedding MATCH ? AND k = ?", (query.tobytes(), count)
        )
        return [int(row[0]) for row in rows]

    def close(self) -> None:
        self._connection.close()


class Faiss:
    """All vectors in memory as float32, each compared. Exact: recall is measured against it."""

    def __init__(self, dimensions: int) -> None:
        faiss: Any = import_module("faiss")

        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.IndexFlatIP(dimensions)

    def add(self, vectors: NDArray[np.float32]) -> None:
        self._index.add(vectors)

    def nearest(self, query: NDArray[np.float32], count: int) -> list[int]:
        """Numbers from 0 in the order in which they were added."""
        _, found = self._index.search(query[None, :], count)
        places: list[int] = found[0].tolist()
        return places


class Usearch:
    """A graph over float16."""

    def __init__(self, dimensions: int) -> None:
        index: Any = import_module("usearch.index")
        self._index: Any = index.Index(ndim=dimensions, metric="ip", dtype="f16")
        self._size = 0

    def add(self, vectors: NDArray[np.float32]) -> None:
        self._index.add(np.arange(self._size, self._size + len(vectors)), vectors)
        self._size += len(vectors)

    def nearest(self, query: NDArray[np.float32], count: int) -> list[int]:
        """Numbers from 0 in the order in which they were added."""
        keys: list[int] = self._index.search(query, count, threads=1).keys.tolist()
        return keys
