"""Hybrid search against its better half: in every class of questions it should find as much as words or meaning alone.

For each class and each figure, the better half is the one with the higher mean. The differences, question by question, are
resampled, which gives the interval of their mean. Hybrid falls short where

- the whole interval lies below 0: it is worse, whatever else was asked; or
- the mean lies below 0 by more than the margin: too much, even where few questions leave it uncertain.

The margin is what one question of the class is worth, and at least `MARGIN_MIN`. A class of n questions cannot tell a
difference of less than one of them from a tie: one answer on rank 11 instead of 10 is 1 / n. In a class of hundreds that would
be no margin at all, while ranks of near-ties still change with the versions of the libraries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from bench.quality.measuring import ALL, Measured
from bench.quality.metrics import CONFIDENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

HYBRID = "hybrid"
HALVES = ("keyword", "vector")
COMPARED = ("recall@10", "MRR@10")
MARGIN_MIN = 0.01
RESAMPLES = 4000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of hybrid's figures less those of its better half, and the confidence interval of it."""

    collection: str
    kind: str
    metric: str
    questions: int
    half: str
    value: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        return max(MARGIN_MIN, 1 / self.questions)

    @property
    def falls_short(self) -> bool:
        return self.high < -_ROUNDING or self.value < -self.margin - _ROUNDING

    def __str__(self) -> str:
        return (
            f"{self.collection}, {self.kind}: {self.metric} of hybrid is {self.value:+.3f} from {self.half}"
            f" ({self.low:+.3f} to {self.high:+.3f}, {self.questions} questions)"
        )


def difference(measured: Measured, kind: str, metric: str) -> Difference | None:
    """Of a class, or of ``ALL``; None if its questions have no such figure."""
    hybrid = measured.values(HYBRID, kind, metric)
    if not hybrid:
        return None
    halves = {half: measured.values(half, kind, metric) for half in HALVES}
    better = max(HALVES, key=lambda half: fmean(halves[half]))
    value, low, high = paired(hybrid, halves[better])
    return Difference(measured.name, kind, metric, len(hybrid), better, value, low, high)


def paired(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """The mean of the differences, question by question, and its interval; always resampled in the same way."""
    each: NDArray[np.float64] = np.asarray(values) - np.asarray(others)
    generator = np.random.default_rng(1)
    means = np.sort(each[generator.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return float(each.mean()), float(means[cut]), float(means[-cut - 1])


def differences(measured: Measured) -> list[Difference]:
    """Of all questions together and of each class, for each figure that is compared."""
    kinds = (ALL, *(measured.names if len(measured.names) > 1 else ()))
    found = (difference(measured, kind, metric) for kind in kinds for metric in COMPARED)
    return [one for one in found if one is not None]


def shortfalls(measured: Measured) -> list[Difference]:
    """Where hybrid falls short of its better half."""
    return [one for one in differences(measured) if one.falls_short]
