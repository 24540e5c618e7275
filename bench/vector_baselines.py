"""The nearest of many vectors by others: sqlite-vec's exact scan, faiss' flat index, usearch's graph. One thread each.

They hold the same numbers as our table. faiss and usearch hold them in memory, and say what that costs: what a process takes
for itself (private, resident, not backed by a file), which the page cache does not give back.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crystal_core.database import Database


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
    """The store of truth, by its own scan."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def nearest(self, query: NDArray[np.float32], count: int) -> list[int]:
        """Rowids of windows."""
        rows = self._database.rows(
            "SELECT rowid FROM chunks_vec WHERE embedding MATCH ? AND k = ?", (query.tobytes(), count)
        )
        return [int(row[0]) for row in rows]


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
