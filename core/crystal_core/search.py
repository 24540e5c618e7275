"""Search: keywords and meaning, fused, with what is newer above what is older. Works offline, on one database.

The fast path of the published design:

    keywords   BM25 over FTS5 (`keywords.py`)                                            weight 2
    meaning    the nearest vectors in one query, their rows in a second one (`bitscan.py`)   weight 1
    fusion     sum over both lists of weight / (60 + rank + 1), rank from 0
    recency    times max(0.3, e^(-0.1 · days)); a chunk without a date counts as old

Filters (`scope.py`) apply inside both halves, before anything is cut off. Without vectors that this device's model
understands, the keyword half answers alone and the result says why. Provisional rows are found by keyword and marked. What is
forgotten, here or by a pending operation, is not found.

Pages: both halves are asked for their best `LAYERS[0]`, which are fused and ordered; then, as far as a page reaches behind
them, for their best `LAYERS[1]`, and what is new among these follows in an order of its own, and so on. So where a hit stands
does not depend on the page that was asked for, and each stands on one page.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from crystal_core import mirrorlog
from crystal_core.database import Database
from crystal_core.embed.port import Embedder, EmbeddingError
from crystal_core.errors import EmptyQuery
from crystal_core.filters import Filters, Place
from crystal_core.keywords import Match, best_matches
from crystal_core.scope import EVERYWHERE, Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crystal_core.bitscan import Neighbour, VectorIndex

LIMIT_MAX = 1000
"""Hits of one search."""
OFFSET_MAX = 10_000
"""Hits that a page may leave out before it begins."""

BM25_WEIGHT = 2.0
VECTOR_WEIGHT = 1.0
RANK_CONSTANT = 60
RECENCY_FLOOR = 0.3
RECENCY_DECAY = 0.1
"""Per day."""

DAY_MILLISECONDS = 86_400_000
FRESH_DAYS, RECENT_DAYS, AGING_DAYS = 3, 7, 14

LAYERS = (40, 160, 640, 2560, 11_000)
"""Candidates of each half, from layer to layer. The first is enough for the first page or two."""


class Mode(Enum):
    """What a search could use."""

    HYBRID = "hybrid"
    KEYWORD = "keyword"


class Freshness(Enum):
    """How old a chunk is: under 3, 7, 14 days, or more (or of unknown age)."""

    FRESH = "fresh"
    RECENT = "recent"
    AGING = "aging"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a score comes from. Ranks count from 0; None means that this half did not find the chunk."""

    keyword_rank: int | None
    keyword_score: float
    """BM25 between 0 and 1."""
    vector_rank: int | None
    similarity: float
    """Cosine."""
    fused: float
    recency: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk. Place and time are those of its latest occurrence that the filters admit."""

    id: str
    text: str
    score: float
    agent: str
    session: str
    role: str
    created_at: int
    """Milliseconds since 1970; 0 if unknown."""
    project: str
    repository: str
    source: str
    kind: str
    """One of `scope.KINDS`: what its place makes of it."""
    freshness: Freshness
    category: str | None
    """Of the memory that this text is; None if it is none."""
    provisional: bool
    """Known to this device only, so far."""
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first, and how they were found. `note` says why it was by keyword alone, else it is empty.

    `more`: there are further hits behind these."""

    hits: tuple[Hit, ...]
    mode: Mode
    note: str
    more: bool


@dataclass(frozen=True, slots=True)
class _Scored:
    chunk: int
    score: float
    place: Place
    explanation: Explanation


class Searcher:
    """Searches one database; keeps the vectors' signs in memory from one search to the next."""

    def __init__(self, database: Database, embedder: Embedder | None = None) -> None:
        self._database = database
        self._embedder = embedder
        self._index: VectorIndex | None = None

    def search(
        self,
        query: str,
        *,
        now_ms: int,
        limit: int = 10,
        offset: int = 0,
        scope: Scope = EVERYWHERE,
        words_only: bool = False,
    ) -> SearchResult:
        """The `limit` best chunks that the scope admits, without the `offset` best of all. `words_only` uses no vectors.

        Raises EmptyQuery for a query without a visible character, ValueError for a limit or an offset out of range, and what
        reading the database raises. Never because of what the query says.
        """
        if not query.strip():
            raise EmptyQuery("the query is empty")
        if not 1 <= limit <= LIMIT_MAX:
            raise ValueError(f"a search gives 1 to {LIMIT_MAX} hits")
        if not 0 <= offset <= OFFSET_MAX:
            raise ValueError(f"a search leaves out 0 to {OFFSET_MAX} hits")
        if self._database.in_transaction():
            raise RuntimeError("search does not look into an open transaction")
        vector, note = (None, "") if words_only else self._embedded(query)
        end = offset + limit
        with self._database.snapshot():
            found = self._ordered(query, vector, Filters(self._database, scope), now_ms, end + 1)
            hits = self._hits(found[offset:end], now_ms)
        mode = Mode.KEYWORD if vector is None else Mode.HYBRID
        return SearchResult(hits, mode, note, more=len(found) > end)

    def _ordered(
        self, query: str, vector: "NDArray[np.float32] | None", filters: Filters, now_ms: int, wanted: int
    ) -> list[_Scored]:
        """The best chunks, at least `wanted` if there are so many, in their order."""
        restriction = filters.restriction()
        ordered: dict[int, _Scored] = {}
        for count in LAYERS:
            matches = best_matches(self._database, query, count, restriction)
            neighbours = self._nearest(vector, count, filters)
            for one in self._fused(matches, neighbours, filters, now_ms):
                ordered.setdefault(one.chunk, one)
            if len(ordered) >= wanted or max(len(matches), len(neighbours)) < count:
                break
        return list(ordered.values())

    def _embedded(self, query: str) -> "tuple[NDArray[np.float32] | None, str]":
        """The query's vector, or None and the reason."""
        if self._embedder is None:
            return None, "no embedding model is at hand"
        model = mirrorlog.meta_get(self._database, mirrorlog.MODEL)
        dimensions = int(self._database.value("SELECT dimensions FROM index_state"))
        if model is None or not dimensions:
            return None, "the memory holds no vectors yet"
        if model.decode() != self._embedder.identity or dimensions != self._embedder.dimensions:
            return (
                None,
                f"the vectors were made by {model.decode()}, this device has {self._embedder.identity}",
            )
        try:
            return self._embedder.embed_query(query), ""
        except EmbeddingError as error:
            return None, f"the query could not be embedded: {error}"

    def _nearest(
        self, vector: "NDArray[np.float32] | None", count: int, filters: Filters
    ) -> "Sequence[Neighbour]":
        if vector is None:
            return []
        from crystal_core.bitscan import VectorIndex

        if self._index is None:
            self._index = VectorIndex()
        self._index.refresh(self._database)
        if self._index.dimensions != len(vector):
            return []  # re-embedded by another process since the query was embedded
        return self._index.nearest(
            self._database, vector, count, only=filters.admitted(), without=filters.hidden()
        )

    def _fused(
        self, matches: Sequence[Match], neighbours: "Sequence[Neighbour]", filters: Filters, now_ms: int
    ) -> list[_Scored]:
        by_keyword = {match.chunk: (rank, match.normalised) for rank, match in enumerate(matches)}
        by_vector = {found.chunk: (rank, found.similarity) for rank, found in enumerate(neighbours)}
        chunks = list(dict.fromkeys([*by_keyword, *by_vector]))
        scored: list[_Scored] = []
        for chunk, place in filters.places(chunks).items():
            keyword_rank, keyword_score = by_keyword.get(chunk, (None, 0.0))
            vector_rank, similarity = by_vector.get(chunk, (None, 0.0))
            fused = _reciprocal(BM25_WEIGHT, keyword_rank) + _reciprocal(VECTOR_WEIGHT, vector_rank)
            recency = recency_factor(place.created_at, now_ms)
            explanation = Explanation(keyword_rank, keyword_score, vector_rank, similarity, fused, recency)
            scored.append(_Scored(chunk, fused * recency, place, explanation))
        scored.sort(key=lambda one: (-one.score, -one.place.created_at, one.chunk))
        return scored

    def _hits(self, scored: Sequence[_Scored], now_ms: int) -> tuple[Hit, ...]:
        rows = {
            row[0]: row[1:]
            for row in self._database.rows(
                "SELECT c.rowid, c.id, c.text, c.provisional, coalesce(m.category,"
                " (SELECT category FROM provisional_places WHERE chunk = c.rowid AND category IS NOT NULL"
                " ORDER BY number DESC LIMIT 1))"
                " FROM chunks c LEFT JOIN memories m ON m.chunk = c.rowid"
                " WHERE c.rowid IN (SELECT value FROM json_each(?))",
                (json.dumps([one.chunk for one in scored]),),
            )
        }
        hits: list[Hit] = []
        for one in scored:
            content, text, is_provisional, category = rows[one.chunk]
            hits.append(
                Hit(
                    id=content.hex(),
                    text=text,
                    score=one.score,
                    agent=one.place.agent,
                    session=one.place.session,
                    role=one.place.role,
                    created_at=one.place.created_at,
                    project=one.place.project,
                    repository=one.place.repository,
                    source=one.place.source,
                    kind=one.place.kind,
                    freshness=freshness(one.place.created_at, now_ms),
                    category=category,
                    provisional=bool(is_provisional),
                    explanation=one.explanation,
                )
            )
        return tuple(hits)


def search(
    database: Database,
    query: str,
    *,
    now_ms: int,
    embedder: Embedder | None,
    limit: int = 10,
    offset: int = 0,
    scope: Scope = EVERYWHERE,
) -> SearchResult:
    """One search without a `Searcher`: see there."""
    return Searcher(database, embedder).search(query, now_ms=now_ms, limit=limit, offset=offset, scope=scope)


def recency_factor(created_at: int, now_ms: int) -> float:
    """Between `RECENCY_FLOOR` and 1. What is dated in the future is new, what has no date is old."""
    if not created_at:
        return RECENCY_FLOOR
    days = max(now_ms - created_at, 0) / DAY_MILLISECONDS
    return max(RECENCY_FLOOR, math.exp(-RECENCY_DECAY * days))


def freshness(created_at: int, now_ms: int) -> Freshness:
    if not created_at:
        return Freshness.STALE
    days = (now_ms - created_at) / DAY_MILLISECONDS
    if days < FRESH_DAYS:
        return Freshness.FRESH
    if days < RECENT_DAYS:
        return Freshness.RECENT
    return Freshness.AGING if days < AGING_DAYS else Freshness.STALE


def _reciprocal(weight: float, rank: int | None) -> float:
    return 0.0 if rank is None else weight / (RANK_CONSTANT + rank + 1)
