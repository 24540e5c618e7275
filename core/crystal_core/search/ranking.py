"""Ranking: how a message is scored by words and by meaning, and a turn by its messages.

    strength    a match's BM25 by the best match's; a cosine by the nearest neighbour's; both between 0 and 1
    brevity     1 - 0.8 · e^(-distinct words / 8), of messages only: "See ya!" is near to everything
    trust       share of the query's words that the best of the matches has: where it has few, words say little
    message     0.85 · trust · strength of the words^4 + (strength of the meaning · brevity)^4
    turn        the better of question and answer, and 0.8 of the other one
    recency     0.85 + 0.15 · e^(-0.1 · days); what has no date counts as old

By words alone, the exponent of the strengths is 1.

A cosine is known for every candidate, by whichever half it was found. Measurements, and what was tried and left out, are in
docs/decisions/0053-turns.md.

Weak matches are no hits: a keyword match with less than a tenth of the best BM25, a neighbour further away than texts on
different subjects usually are. That distance depends on the model and is known for the built-in one only.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.search.keywords import Match

if TYPE_CHECKING:
    from crystal_core.search.vector_index import Neighbour

DAY_MILLISECONDS = 86_400_000


class Ranking(Struct, frozen=True):
    """The constants of the formula."""

    keyword_weight: float = 0.85
    vector_weight: float = 1.0
    contrast: float = 4.0
    """Exponent of the strengths: how much more the best of a half counts than the next ones."""
    contrast_alone: float = 1.0
    """The same by words alone, where it only weakens recency."""
    doubt: float = 1.0
    """Exponent of the share of the query's words that the best match has."""
    brevity_share: float = 0.8
    brevity_words: float = 8.0
    other_share: float = 0.8
    """Of the weaker one of question and answer that is added to the stronger one."""
    date_lift: float = 0.5
    """Added where a message is of a date that the query speaks of."""
    recency_share: float = 0.15
    recency_decay: float = 0.1
    """Per day."""
    strength_min: float = 0.1
    """Of a keyword match."""

    def alone(self) -> "Ranking":
        """Return the constants for a search by words alone."""
        return replace(self, contrast=self.contrast_alone)

    def recency(self, created_at: int, now_ms: int) -> float:
        """Return the factor for recency, at most 1. Dates in the future count as now."""
        days = max(now_ms - created_at, 0) / DAY_MILLISECONDS if created_at else math.inf
        return 1 - self.recency_share + self.recency_share * math.exp(-self.recency_decay * days)

    def brevity(self, text: str) -> float:
        """Return the factor for a message's distinct words, at most 1."""
        if len(text) > LONG_CHARS:
            return 1.0
        words = len(set(text.casefold().split()))
        return 1 - self.brevity_share * math.exp(-words / self.brevity_words)


DEFAULT = Ranking()
LONG_CHARS = 500
"""A longer text has words enough."""


class Nearness(Struct, frozen=True):
    """A model's thresholds: a cosine below `far` means nothing, one from `near` on means the same subject."""

    far: float
    near: float

    def of(self, other: "Nearness", cosine: float) -> float:
        """Return what a cosine of another model is on this one's scale."""
        return self.far + (cosine - other.far) * (self.near - self.far) / (other.near - other.far)


_BUILT_IN = Nearness(0.2, 0.4)
_NEARNESS = {"all-MiniLM-L6-v2": _BUILT_IN, "multilingual": Nearness(0.15, 0.33)}
"""By the first part of a model's identity."""


def nearness(identity: str) -> Nearness | None:
    """Return the model's thresholds; None if unknown."""
    return _NEARNESS.get(identity.partition("/")[0])


class Explanation(Struct, frozen=True):
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
    """Cosine divided by the nearest neighbour's, times brevity."""
    fused: float
    context: float = 0.0
    """What the rest of the turn and its date add."""
    recency: float = 1.0
    judge_rank: int | None = None
    """Rank before a judge, None without one."""
    judge_score: float | None = None

    @property
    def score(self) -> float:
        return (self.fused + self.context) * self.recency


class Found(Struct, frozen=True):
    """What both halves found: the best matches, the nearest neighbours, and cosines of further candidates.

    `coverage` is the share of the query's words that the best of the matches has.
    """

    matches: Sequence[Match]
    neighbours: "Sequence[Neighbour]"
    similarities: Mapping[int, float]
    coverage: float = 1.0
    near: Nearness | None = None


def explained(found: Found, short: Mapping[int, float], ranking: Ranking) -> dict[int, Explanation]:
    """Score the chunks that either half found, without weak matches, in no particular order and without recency.

    `short` has the brevity of chunks where it is not 1.
    """
    weight = ranking.keyword_weight * found.coverage**ranking.doubt
    best = found.matches[0].bm25 if found.matches else 1.0
    by_keyword = {match.chunk: (rank, match) for rank, match in enumerate(found.matches)}
    by_vector = {near.chunk: (rank, near.similarity) for rank, near in enumerate(found.neighbours)}
    nearest = max((near.similarity * short.get(near.chunk, 1.0) for near in found.neighbours), default=1.0)
    nearest = max(nearest, 1e-9)
    scored: dict[int, Explanation] = {}
    for chunk in dict.fromkeys([*by_keyword, *by_vector]):
        keyword_rank, match = by_keyword.get(chunk, (None, None))
        vector_rank, similarity = by_vector.get(chunk, (None, found.similarities.get(chunk, 0.0)))
        keyword_strength = match.bm25 / best if match is not None and best else float(match is not None)
        vector_strength = min(max(similarity, 0.0) * short.get(chunk, 1.0) / nearest, 1.0)
        is_far = vector_rank is None or (found.near is not None and similarity < found.near.far)
        if is_far and (keyword_rank is None or keyword_strength < ranking.strength_min):
            continue
        scored[chunk] = Explanation(
            keyword_rank,
            0.0 if match is None else match.normalised,
            keyword_strength,
            weight,
            vector_rank,
            similarity,
            vector_strength,
            weight * keyword_strength**ranking.contrast
            + ranking.vector_weight * vector_strength**ranking.contrast,
        )
    return scored


WEAK_BELOW = 0.21
"""Relevance below which a hit is weak. Where none of the first `LOOKED_AT_FOR_SILENCE` hits reaches it, nothing answers:
right for 95 % of the questions of `bench.quality.coding` that nothing answers, and wrong for 30 % of the others."""
LOOKED_AT_FOR_SILENCE = 3

_COVERED, _NEAR, _CONSTANT = 1.7, 5.6, -4.2
"""Logistic regression over the first five hits of the development part of `bench.quality.coding`."""
_UNASKED = 0.5
"""Share of a turn's cosine that counts where its question is further away."""
_COVERED_ALONE, _CONSTANT_ALONE = 6.44, -6.04
"""By words alone: weak below three quarters of the query's words."""


def relevance(coverage: float, similarity: float, asked: float, near: Nearness | None) -> float:
    """Return how likely it is that a unit answers, between 0 and 1.

    `coverage` is the share of the query's words that it has, `similarity` its greatest cosine, `asked` that of its question,
    if it has one: who asked the same was mostly answered. Cosines are put on the scale of the built-in model by the
    thresholds of their model. Without a cosine, the words decide.
    """
    if near is None or not similarity:
        return _logistic(_COVERED_ALONE * coverage + _CONSTANT_ALONE)
    closest = max(_BUILT_IN.of(near, asked), _UNASKED * _BUILT_IN.of(near, similarity))
    return _logistic(_COVERED * coverage + _NEAR * closest + _CONSTANT)


def _logistic(strength: float) -> float:
    return 1 / (1 + math.exp(-strength))
