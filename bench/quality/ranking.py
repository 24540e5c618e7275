"""The ways of ranking that are measured, on one memory that holds all passages of the sets.

    keyword   `Searcher` by words alone
    vector    the passages by cosine, exactly and without recency: what the model's vectors are good for by themselves
    hybrid    `Searcher` as it is: what a person gets

A way of ranking is a function from a query to ids of passages, best first. Deep search is in `judges`.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.memories import DEVICE, INCARNATION, SECRET
from bench.quality.metrics import DEPTH
from bench.quality.sets import NOW, Passage, Query, Sets
from crystal_core.embed.port import Embedder
from crystal_core.replica import Replica
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Hit
from crystal_core.search.search import Searcher
from crystal_core.state.mirror_log import MODEL
from crystal_mirror.operations import Capture, Piece
from crystal_mirror.types import Origin

Ranking = Callable[[Query], list[str]]
MODES = ("keyword", "vector", "hybrid")
BATCH = 500
NOTES_A_SESSION = 12
ROLE = "assistant"
"""Where no person speaks, each message is a turn of its own."""


class Memory:
    """All passages, ready to be searched."""

    def __init__(self, replica: Replica, sets: Sets, embedder: Embedder, vectors: list[list[bytes]]) -> None:
        self.sets = sets
        self._embedder = embedder
        self._by_id = {sha256(passage.text.encode()).hexdigest(): passage.id for passage in sets.passages}
        self.searcher = Searcher(replica.database, embedder)
        self._created = np.array([passage.created_at for passage in sets.passages])
        self._owner = np.repeat(np.arange(len(vectors)), [len(windows) for windows in vectors])
        rows = b"".join(window for windows in vectors for window in windows)
        self._windows = np.frombuffer(rows, "<f2").reshape(len(self._owner), -1).astype(np.float32)

    def rankings(self) -> dict[str, Ranking]:
        return {"keyword": self.by_keyword, "vector": self.by_vector, "hybrid": self.by_both}

    def by_keyword(self, query: Query) -> list[str]:
        return self.named(self.found(query, words_only=True))

    def by_both(self, query: Query) -> list[str]:
        return self.named(self.found(query))

    def by_vector(self, query: Query) -> list[str]:
        nearest: NDArray[np.float32] = self._windows @ self._embedder.embed_query(query.text)
        best = np.full(len(self._created), -2, np.float32)
        np.maximum.at(best, self._owner, nearest)
        admitted = np.array([query.admits(int(created)) for created in self._created])
        best[~admitted] = -3
        order = np.argsort(-best, kind="stable")[:DEPTH]
        return [self.sets.passages[int(index)].id for index in order if admitted[index]]

    def found(
        self, query: Query, text: str = "", *, limit: int = DEPTH, words_only: bool = False
    ) -> tuple[Hit, ...]:
        """What the fast search finds for the query, or for ``text`` under the query's filters."""
        scope = Scope(since_ms=query.since_ms, until_ms=query.until_ms)
        return self.searcher.search(
            text or query.text, now_ms=NOW, limit=limit, scope=scope, words_only=words_only
        ).hits

    def named(self, hits: Sequence[Hit]) -> list[str]:
        return [self._by_id[hit.id] for hit in hits]


@contextmanager
def memory_of(sets: Sets, embedder: Embedder, path: Path | str = ":memory:") -> Generator[Memory]:
    """A memory that holds the sets' passages."""
    vectors = embedder.embed_windows([passage.text for passage in sets.passages])
    by_text = {passage.text: windows for passage, windows in zip(sets.passages, vectors, strict=True)}
    replica = Replica.open(path, SECRET)
    try:
        for start in range(0, len(sets.passages), BATCH):
            _add(replica, sets.passages[start : start + BATCH], start, by_text)
        with replica.transaction() as transaction:
            transaction.meta_set(MODEL, embedder.identity.encode())
        yield Memory(replica, sets, embedder, vectors)
    finally:
        replica.close()


def _add(replica: Replica, passages: Sequence[Passage], first: int, vectors: dict[str, list[bytes]]) -> None:
    with replica.transaction() as transaction:
        for number, passage in enumerate(passages, first):
            piece = Piece(passage.text, ROLE, passage.created_at, str(number), 0)
            session = f"session-{number // NOTES_A_SESSION}"
            place = Origin(DEVICE, INCARNATION, number + 1)
            capture = Capture("agent", session, "src/crystal", "host/org/crystal", "claude-code", (piece,))
            transaction.apply(place, capture, vectors.__getitem__)
            transaction.mark_done(place)
