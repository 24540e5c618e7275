"""Recall, MRR and nDCG of ranked lists, and how sure their means are.

A judgement is what a query wants: ids of passages with a grade above 0. All figures of a query lie between 0 and 1.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

CUTS = (1, 5, 10)
DEPTH = 10
"""Ranks that MRR and nDCG look at."""
RESAMPLES = 1000
CONFIDENCE = 0.95

NAMES = (*(f"recall@{cut}" for cut in CUTS), f"MRR@{DEPTH}", f"nDCG@{DEPTH}")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over queries and its bootstrap confidence interval."""

    value: float
    low: float
    high: float


def scores(ranked: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """The figures of one query. Recall counts against as many as a list of that length can hold."""
    if not wanted or min(wanted.values()) <= 0:
        raise ValueError("a query wants at least one passage, and each with a grade above 0")
    found = {f"recall@{cut}": _recall(ranked[:cut], wanted, cut) for cut in CUTS}
    first = next((rank for rank, one in enumerate(ranked[:DEPTH], 1) if one in wanted), None)
    found[f"MRR@{DEPTH}"] = 1 / first if first else 0.0
    ideal = _gain(sorted(wanted.values(), reverse=True)[:DEPTH])
    found[f"nDCG@{DEPTH}"] = _gain([wanted.get(one, 0.0) for one in ranked[:DEPTH]]) / ideal
    return found


def mean(values: Sequence[float], *, seed: int = 1) -> Mean:
    """Resamples the queries, always in the same way."""
    generator = random.Random(seed)
    means = sorted(fmean(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Mean(fmean(values), means[cut], means[-cut - 1])


def _recall(ranked: Sequence[str], wanted: Mapping[str, float], cut: int) -> float:
    return len(set(ranked) & set(wanted)) / min(len(wanted), cut)


def _gain(grades: Sequence[float]) -> float:
    return sum((2**grade - 1) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))
