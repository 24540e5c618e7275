"""The query's vector, made while FTS5 lists what holds the words.

A loaded model of this machine computes in C or in a process of its own, and needs the interpreter's lock for a moment only, so
a thread asks it. A model that is not loaded and a server that has to be asked are waited for at once: no snapshot of the
memory is held for that long, unless the model is released just then. See docs/decisions/0126-the-vector-beside-the-words.md.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from crystal_core.embed.port import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class QueryVectors:
    """Asks an embedder for the vectors of queries, one at a time."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, query: str) -> "Callable[[], NDArray[np.float32]]":
        """Begin a vector and return what waits for it, which raises `EmbeddingError` if it could not be made."""
        if not (getattr(self._embedder, "loaded", False) and getattr(self._embedder, "in_process", True)):
            vector = self._embedder.embed_query(query)
            return lambda: vector
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="crystal-query")
        return self._thread.submit(self._embedder.embed_query, query).result
