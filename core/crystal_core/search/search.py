"""Hybrid search by keyword and meaning, offline, on one database.

    keywords   BM25 over FTS5 (`keywords.py`)
    meaning    the nearest vectors, then their rows in a second query (`vector_index.py`)
    ranking    fusion by rank and strength, and recency (`ranking.py`)
    alike      the best of several near duplicates stands for all (`near_duplicates.py`)
    snippets   the passage that answers, with the query's words marked (`snippets.py`)

Filters (`filters.py`) apply inside both halves, before anything is cut off. Without vectors of this device's model, the keyword
half answers alone and the result says why. Provisional rows are found by keyword and marked. Forgotten texts, also by a pending
operation, are not found.

Pages: the best `LAYERS[0]` of both halves are fused and ordered. If a page reaches beyond them, the best `LAYERS[1]` are read
and the new ones among them follow in their own order, and so on. The position of a hit therefore does not depend on the page
requested, and each hit is on one page.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from crystal_core.database import Database
from crystal_core.embed.port import Embedder, EmbeddingError
from crystal_core.errors import EmptyQuery
from crystal_core.search import bm25
from crystal_core.search.coverage import percent_embedded
from crystal_core.search.filters import EVERYWHERE, Filters, HitPlace, Scope
from crystal_core.search.keywords import Match, best_matches
from crystal_core.search.near_duplicates import Alike
from crystal_core.search.ranking import (
    DAY_MILLISECONDS,
    DEFAULT,
    Explanation,
    Nearness,
    Ranking,
    fused,
    nearness,
)
from crystal_core.search.snippets import SNIPPET_CHARS, Snippets
from crystal_core.state import mirror_log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crystal_core.search.vector_index import Neighbour, VectorIndex

LIMIT_MAX = 1000
"""Most hits of one search."""
OFFSET_MAX = 10_000
"""Highest offset of a page."""

WHOLE_PERCENT = 98
"""Below this percentage of chunks with vectors, a result notes that search by meaning is incomplete."""
BEING_MADE = "the vectors are being made: {} % of the texts have theirs, the others are found by their words"

LOOKED_AT = 5
"""Best keyword matches examined for how many of the query's words they have."""
COVERAGE_MIN = 0.75
"""Share of the query's words that a good keyword match has."""

FRESH_DAYS, RECENT_DAYS, AGING_DAYS = 3, 7, 14

LAYERS = (40, 160, 640, 2560, 11_000)
"""Candidates of each half, layer by layer. The first is enough for the first page or two."""


class Mode(Enum):
    """The halves that a search could use."""

    HYBRID = "hybrid"
    KEYWORD = "keyword"


class Freshness(Enum):
    """Age of a chunk: under 3, 7, 14 days, or more (or unknown)."""

    FRESH = "fresh"
    RECENT = "recent"
    AGING = "aging"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Hit:
    """A found chunk. Place and time are those of its latest place that the filters admit."""

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
    path: str
    title: str
    """For a piece of a document: its path in the source, and the headings above the piece."""
    kind: str
    """One of `filters.KINDS`, from its place."""
    freshness: Freshness
    category: str | None
    """Category of a memory; None for other texts."""
    provisional: bool
    """Whether only this device knows of it, so far."""
    snippet: str
    marks: tuple[tuple[int, int], ...]
    """Start and end of each highlight in the snippet."""
    alike: tuple[str, ...]
    """Ids of near duplicates, which this hit stands for."""
    weak: bool
    """Whether it has neither most of the query's words nor a meaning known to be near."""
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first, and how they were found. `note`: why by keyword only, else empty.

    `more`: further hits follow. `weak`: the best of all hits is weak, or there are none."""

    hits: tuple[Hit, ...]
    mode: Mode
    note: str
    more: bool
    weak: bool


@dataclass(slots=True)
class _Row:
    """The columns of a chunk that are shown."""

    id: str
    text: str
    provisional: bool
    category: str | None


@dataclass(slots=True)
class _Scored:
    chunk: int
    place: HitPlace
    explanation: Explanation
    row: _Row
    alike: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Question:
    """A query, prepared for both halves."""

    words: str
    vector: "NDArray[np.float32] | None"
    near: Nearness | None
    now_ms: int


class Searcher:
    """Searches one database; keeps the vector index in memory between searches."""

    def __init__(
        self, database: Database, embedder: Embedder | None = None, *, ranking: Ranking = DEFAULT
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._ranking = ranking
        self._index: VectorIndex | None = None
        self._percent_embedded: tuple[tuple[int, int], int] | None = None

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
        """Return the `limit` best chunks that the scope admits, after skipping `offset`. `words_only` uses no vectors.

        Raises EmptyQuery for a query without a visible character, ValueError for a limit or an offset out of range, and what
        reading the database raises. Never raises because of the query's content.
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
        near = (
            nearness(self._embedder.identity) if self._embedder is not None and vector is not None else None
        )
        question = _Question(query, vector, near, now_ms)
        end = offset + limit
        bm25.prepare(self._database)
        with self._database.snapshot():
            snippets = Snippets(self._database, query)
            found = self._ordered(question, Filters(self._database, scope), snippets, end + 1)
            hits = tuple(self._hit(one, question, snippets) for one in found[offset:end])
            best = (
                hits[0] if hits and not offset else self._hit(found[0], question, snippets) if found else None
            )
        mode = Mode.KEYWORD if vector is None else Mode.HYBRID
        return SearchResult(hits, mode, note, more=len(found) > end, weak=best is None or best.weak)

    def _ordered(
        self, question: _Question, filters: Filters, snippets: Snippets, wanted: int
    ) -> list[_Scored]:
        """Return the best chunks in order, at least `wanted` if there are so many."""
        restriction = filters.restriction()
        alike = Alike()
        seen: set[int] = set()
        ordered: dict[int, _Scored] = {}
        for count in LAYERS:
            matches = best_matches(self._database, question.words, count, restriction)
            neighbours = self._nearest(question.vector, count, filters)
            coverage = self._coverage(matches, snippets)
            found = fused(matches, neighbours, self._ranking, coverage=coverage, near=question.near)
            for one in self._scored(found, question, filters, seen):
                kind = "memory" if one.row.category is not None else one.place.kind
                like = alike.first_like(one.chunk, kind, one.row.text)
                if like is None:
                    ordered[one.chunk] = one
                else:
                    ordered[like].alike.append(one.row.id)
            if len(ordered) >= wanted or max(len(matches), len(neighbours)) < count:
                break
        return list(ordered.values())

    def _embedded(self, query: str) -> "tuple[NDArray[np.float32] | None, str]":
        """Return the query's vector, or None and the reason."""
        if self._embedder is None:
            return None, "no embedding model is at hand"
        model = mirror_log.meta_get(self._database, mirror_log.MODEL)
        dimensions = int(self._database.value("SELECT dimensions FROM index_state"))
        if model is None or not dimensions:
            return None, "the memory holds no vectors yet"
        done = self._percent()
        if model.decode() != self._embedder.identity or dimensions != self._embedder.dimensions:
            return (
                None,
                f"the vectors were made by {model.decode()}, this device has {self._embedder.identity}",
            )
        try:
            return self._embedder.embed_query(query), "" if done >= WHOLE_PERCENT else BEING_MADE.format(done)
        except EmbeddingError as error:
            return None, f"the query could not be embedded: {error}"

    def _percent(self) -> int:
        """Return the percentage of chunks with vectors; computed once per state of the memory."""
        version = self._database.version()
        if self._percent_embedded is None or self._percent_embedded[0] != version:
            self._percent_embedded = version, percent_embedded(self._database)
        return self._percent_embedded[1]

    def _nearest(
        self, vector: "NDArray[np.float32] | None", count: int, filters: Filters
    ) -> "Sequence[Neighbour]":
        if vector is None:
            return []
        from crystal_core.search.vector_index import VectorIndex

        if self._index is None:
            self._index = VectorIndex()
        self._index.refresh(self._database)
        if self._index.dimensions != len(vector):
            return []  # re-embedded by another process since the query was embedded
        if filters.broad:
            nearest = self._index.nearest(
                self._database, vector, count, without=filters.hidden(), admits=filters.admits
            )
            if len(nearest) == count:
                return nearest
        return self._index.nearest(
            self._database, vector, count, only=filters.admitted(), without=filters.hidden()
        )

    def _coverage(self, matches: Sequence[Match], snippets: Snippets) -> float:
        """Return the greatest share of the query's words that one of the best matches has."""
        best = json.dumps([match.chunk for match in matches[:LOOKED_AT]])
        rows = self._database.rows(
            "SELECT text FROM chunks WHERE rowid IN (SELECT value FROM json_each(?))", (best,)
        )
        return max((snippets.coverage(text) for (text,) in rows), default=1.0)

    def _scored(
        self, found: Mapping[int, Explanation], question: _Question, filters: Filters, seen: set[int]
    ) -> list[_Scored]:
        """Return the chunks not seen before, best first."""
        places = filters.places([chunk for chunk in found if chunk not in seen])
        seen.update(found)
        rows = self._rows(places, filters.memories)
        scored = [
            _Scored(
                chunk,
                place,
                replace(found[chunk], recency=self._ranking.recency(place.created_at, question.now_ms)),
                rows[chunk],
            )
            for chunk, place in places.items()
        ]
        scored.sort(key=lambda one: (-one.explanation.score, -one.place.created_at, one.chunk))
        return scored

    def _rows(self, chunks: Iterable[int], memories: str) -> dict[int, _Row]:
        query = (
            f"SELECT rowid, id, text, provisional, (SELECT category FROM {memories} WHERE chunk = chunks.rowid LIMIT 1)"  # noqa: S608
            " FROM chunks WHERE rowid IN (SELECT value FROM json_each(?))"
        )
        rows = self._database.rows(query, (json.dumps(list(chunks)),))
        return {
            int(chunk): _Row(content.hex(), text, bool(provisional), category)
            for chunk, content, text, provisional, category in rows
        }

    def _hit(self, one: _Scored, question: _Question, snippets: Snippets) -> Hit:
        text, place, parts = one.row.text, one.place, one.explanation
        depth = 0.0
        if parts.keyword_rank is None and question.vector is not None and len(text) > SNIPPET_CHARS:
            depth = self._depth(one.chunk, question.vector)
        snippet = snippets.snippet(text, depth)
        is_near = parts.vector_rank is not None and (
            question.near is None or parts.similarity >= question.near.near
        )
        return Hit(
            id=one.row.id,
            text=text,
            score=parts.score,
            agent=place.agent,
            session=place.session,
            role=place.role,
            created_at=place.created_at,
            project=place.project,
            repository=place.repository,
            source=place.source,
            path=place.path,
            title=place.title,
            kind=place.kind,
            freshness=freshness(place.created_at, question.now_ms),
            category=one.row.category,
            provisional=one.row.provisional,
            snippet=snippet.text,
            marks=snippet.marks,
            alike=tuple(one.alike),
            weak=not is_near and snippet.coverage < COVERAGE_MIN,
            explanation=parts,
        )

    def _depth(self, chunk: int, vector: "NDArray[np.float32]") -> float:
        """Return where the text's window nearest to the query begins, as a share of the text."""
        import numpy as np

        windows = self._database.rows("SELECT rowid FROM windows WHERE chunk = ? ORDER BY part", (chunk,))
        if len(windows) < 2:
            return 0.0
        found = self._database.rows_of_many("SELECT embedding FROM chunks_vec WHERE rowid = ?", windows)
        vectors = np.frombuffer(b"".join(row[0] for row in found), "<f4").reshape(len(found), -1)
        return int(np.argmax(vectors @ vector)) / len(windows)


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
    """Search once; see `Searcher.search`."""
    return Searcher(database, embedder).search(query, now_ms=now_ms, limit=limit, offset=offset, scope=scope)


def freshness(created_at: int, now_ms: int) -> Freshness:
    if not created_at:
        return Freshness.STALE
    days = (now_ms - created_at) / DAY_MILLISECONDS
    if days < FRESH_DAYS:
        return Freshness.FRESH
    if days < RECENT_DAYS:
        return Freshness.RECENT
    return Freshness.AGING if days < AGING_DAYS else Freshness.STALE
