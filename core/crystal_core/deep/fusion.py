"""Rank fusion and blending for deep search, as published.

    expansion is left out   the best by keyword scores 0.85 or more, and 0.15 more than the second (never with an intent)
    fusion                  sum over lists of weight / (60 + rank + 1); the query's own list has weight 2, each expansion's 1
    blend                   rank 1 to 3: 75 % its place, 25 % the judgement; 4 to 10: 60/40; behind: 40/60

The value of a rank is not published. With 1 / rank nothing could ever pass the first; with rank ^ -0.3 a text judged right
passes one judged wrong, and a bad judge does limited harm (docs/decisions/0040).

The first candidate without a judgement, and all behind it, keep their places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STRONG_SCORE = 0.85
STRONG_GAP = 0.15
"""Difference of BM25, scaled to between 0 and 1."""
RANK_CONSTANT = 60
OWN_WEIGHT = 2.0
EXPANSION_WEIGHT = 1.0
PLACE_EXPONENT = -0.3
JUDGEMENT_MAX = 10
"""Highest judgement; the lowest is 0."""
_BLEND = ((3, 0.75), (10, 0.60))
_BLEND_BEHIND = 0.40


@dataclass(frozen=True, slots=True)
class DeepCandidate:
    """A text found by a fast search. ``keyword_score``: BM25 between 0 and 1, 0 if not found by keyword."""

    id: str
    text: str
    keyword_score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A text at its final rank. ``fused_rank`` counts from 1. ``judgement``: None if the model gave none that counts."""

    id: str
    score: float
    fused_rank: int
    judgement: int | None


def is_strong(found: Sequence[DeepCandidate]) -> bool:
    """Whether keywords alone identify the text."""
    best = sorted((one.keyword_score for one in found), reverse=True)[:2]
    return bool(best) and best[0] >= STRONG_SCORE and best[0] - (best[1] if best[1:] else 0.0) >= STRONG_GAP


def fused(own: Sequence[DeepCandidate], expanded: Sequence[Sequence[DeepCandidate]]) -> list[DeepCandidate]:
    """Merge the lists by reciprocal rank fusion, each text once. Ties keep the order in which they were found."""
    texts: dict[str, DeepCandidate] = {}
    scores: dict[str, float] = {}
    for weight, found in ((OWN_WEIGHT, own), *((EXPANSION_WEIGHT, one) for one in expanded)):
        for rank, one in enumerate(found):
            texts.setdefault(one.id, one)
            scores[one.id] = scores.get(one.id, 0.0) + weight / (RANK_CONSTANT + rank + 1)
    return sorted(texts.values(), key=lambda one: -scores[one.id])


def blended(candidates: Sequence[DeepCandidate], judgements: Mapping[str, int]) -> list[Ranked]:
    """Return the candidates in their final order."""
    counting = 0
    while counting < len(candidates) and candidates[counting].id in judgements:
        counting += 1
    ranked = [
        Ranked(one.id, _score(rank, judgements[one.id]), rank, judgements[one.id])
        for rank, one in enumerate(candidates[:counting], 1)
    ]
    ranked.sort(key=lambda one: (-one.score, one.fused_rank))
    behind = [
        Ranked(one.id, _share(rank) * _place(rank), rank, None)
        for rank, one in enumerate(candidates[counting:], counting + 1)
    ]
    return ranked + behind


def _score(rank: int, judgement: int) -> float:
    share = _share(rank)
    return share * _place(rank) + (1 - share) * judgement / JUDGEMENT_MAX


def _place(rank: int) -> float:
    return float(rank**PLACE_EXPONENT)


def _share(rank: int) -> float:
    return next((share for last, share in _BLEND if rank <= last), _BLEND_BEHIND)
