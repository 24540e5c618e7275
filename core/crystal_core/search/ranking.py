"""Ranking of hits: fusion of keyword and vector search, and recency.

    strength    a match's BM25 by the best match's; a neighbour's cosine by the nearest one's; both between 0 and 1
    trust       (share of the query's words that the best of the matches has)^2: where it has few, words say little
    fused       2 · trust · strength^1.5 / (60 + rank + 1) of the words, plus
                1 · strength^1.5 / (60 + rank + 1) of the meaning, ranks from 0
    recency     1 - share + share · e^(-0.1 · days), at least the floor; what has no date counts as old
    score       fused · recency

The published formula has no strengths, no trust, and a recency between 0.3 and 1: `PUBLISHED`. Measurements, and why the
default is another, are in docs/decisions/0039-ranking.md.

Weak matches are no hits: a keyword match with less than a tenth of the best BM25, a neighbour further away than texts on
different subjects usually are. That distance depends on the model and is known for the built-in one only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.search.keywords import Match

if TYPE_CHECKING:
    from crystal_core.search.vector_index import Neighbour

DAY_MILLISECONDS = 86_400_000


@dataclass(frozen=True, slots=True)
class Ranking:
    """The constants of the formula."""

    keyword_weight: float = 2.0
    vector_weight: float = 1.0
    rank_constant: int = 60
    contrast: float = 1.5
    """Exponent of the strengths."""
    doubt: float = 2.0
    """Exponent of the share of the query's words that the best match has."""
    recency_share: float = 0.2
    recency_decay: float = 0.1
    """Per day."""
    recency_floor: float = 0.0
    strength_min: float = 0.1
    """Of a keyword match."""

    def recency(self, created_at: int, now_ms: int) -> float:
        """Return the factor for recency, at most 1. Dates in the future count as now."""
        days = max(now_ms - created_at, 0) / DAY_MILLISECONDS if created_at else math.inf
        share = self.recency_share
        return max(self.recency_floor, 1 - share + share * math.exp(-self.recency_decay * days))


DEFAULT = Ranking()
PUBLISHED = Ranking(contrast=0.0, doubt=0.0, recency_share=1.0, recency_floor=0.3, strength_min=0.0)


@dataclass(frozen=True, slots=True)
class Nearness:
    """A model's thresholds: a cosine below `far` means nothing, one from `near` on means the same subject."""

    far: float
    near: float


_NEARNESS = {"all-MiniLM-L6-v2": Nearness(0.2, 0.4)}
"""By the first part of a model's identity."""


def nearness(identity: str) -> Nearness | None:
    """Return the model's thresholds; None if unknown."""
    return _NEARNESS.get(identity.partition("/")[0])


@dataclass(frozen=True, slots=True)
class Explanation:
    """Composition of a score. Ranks count from 0; None if this half did not find the chunk."""

    keyword_rank: int | None
    keyword_score: float
    """BM25 between 0 and 1."""
    keyword_strength: float
    """BM25 divided by the best match's."""
    keyword_weight: float
    """Weight of the keyword half in this search, including trust."""
    vector_rank: int | None
    similarity: float
    """Cosine."""
    vector_strength: float
    """Cosine divided by the nearest neighbour's."""
    fused: float
    recency: float = 1.0

    @property
    def score(self) -> float:
        return self.fused * self.recency


def fused(
    matches: Sequence[Match],
    neighbours: "Sequence[Neighbour]",
    ranking: Ranking,
    *,
    coverage: float = 1.0,
    near: Nearness | None = None,
) -> dict[int, Explanation]:
    """Fuse the chunks that either half found, without weak matches, in no particular order and without recency.

    `coverage` is the share of the query's words that the best of the matches has.
    """
    weight = ranking.keyword_weight * coverage**ranking.doubt
    best = matches[0].bm25 if matches else 1.0
    nearest = max(neighbours[0].similarity, 1e-9) if neighbours else 1.0
    by_keyword = {match.chunk: (rank, match) for rank, match in enumerate(matches)}
    by_vector = {found.chunk: (rank, found.similarity) for rank, found in enumerate(neighbours)}
    found: dict[int, Explanation] = {}
    for chunk in dict.fromkeys([*by_keyword, *by_vector]):
        keyword_rank, match = by_keyword.get(chunk, (None, None))
        vector_rank, similarity = by_vector.get(chunk, (None, 0.0))
        keyword_strength = match.bm25 / best if match is not None and best else float(match is not None)
        vector_strength = min(max(similarity, 0.0) / nearest, 1.0)
        is_far = vector_rank is None or (near is not None and similarity < near.far)
        if is_far and (keyword_rank is None or keyword_strength < ranking.strength_min):
            continue
        found[chunk] = Explanation(
            keyword_rank,
            0.0 if match is None else match.normalised,
            keyword_strength,
            weight,
            vector_rank,
            similarity,
            vector_strength,
            _share(ranking, weight, keyword_rank, keyword_strength)
            + _share(ranking, ranking.vector_weight, vector_rank, vector_strength),
        )
    return found


def _share(ranking: Ranking, weight: float, rank: int | None, strength: float) -> float:
    return 0.0 if rank is None else weight * strength**ranking.contrast / (ranking.rank_constant + rank + 1)
