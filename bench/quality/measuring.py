"""Figures of rankings over the sets, and whether they are worse than they were.

A baseline holds, for each way of ranking and each set, the means that were measured when it was recorded. A figure is a
regression when it lies below by more than a margin: of all queries together a small one, of a set alone a larger one, since few
queries make a coarse figure. A figure that rises is none; the baseline is then recorded anew.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.quality.metrics import Mean, mean, scores
from bench.quality.ranking import Ranking
from bench.quality.sets import Sets

BASELINE = Path(__file__).resolve().parent / "baseline.json"
ALL = "all"
OWN = "own sets"
WATCHED = ("recall@10", "MRR@10", "nDCG@10")
MARGIN_ALL = 0.02
MARGIN_SET = 0.08
"""Absolute. Another version of onnxruntime moves a rank here and there."""

Figures = dict[str, dict[str, dict[str, float]]]
"""By way of ranking, set, and metric. A set of ours is a class of its questions."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one collection of questions: the class of each, and for each way of ranking each question's figures, in that order.

    A question has only the figures that it is good for.
    """

    name: str
    kinds: Sequence[str]
    by_mode: Mapping[str, Sequence[Mapping[str, float]]]

    @property
    def names(self) -> list[str]:
        """The classes, in the order of their first questions."""
        return list(dict.fromkeys(self.kinds))

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(metric for rows in self.by_mode.values() for row in rows for metric in row))

    def mean(self, mode: str, name: str, metric: str) -> Mean | None:
        """Of a class by its name, or of ``ALL``. None if no question has this figure."""
        values = self.values(mode, name, metric)
        return mean(values) if values else None

    def values(self, mode: str, name: str, metric: str) -> list[float]:
        return [
            row[metric]
            for kind, row in zip(self.kinds, self.by_mode[mode], strict=True)
            if name in (ALL, kind) and metric in row
        ]

    def figures(self) -> Figures:
        found: Figures = {}
        for mode in self.by_mode:
            for name in (ALL, *self.names):
                values = {metric: self.values(mode, name, metric) for metric in self.metrics}
                means = {metric: round(fmean(some), 4) for metric, some in values.items() if some}
                found.setdefault(mode, {})[name] = means
        return found


def measured(sets: Sets, rankings: Mapping[str, Ranking]) -> Measured:
    """Of our own sets."""
    return Measured(
        OWN,
        [query.set for query in sets.queries],
        {
            mode: [scores(ranking(query), query.relevant) for query in sets.queries]
            for mode, ranking in rankings.items()
        },
    )


def regressions(now: Figures, before: Figures) -> list[str]:
    """What is worse than it was, by more than the margin; a way of ranking or a set that is gone is worse, too."""
    found: list[str] = []
    for mode, sets in before.items():
        for name, figures in sets.items():
            margin = MARGIN_ALL if name == ALL else MARGIN_SET
            for metric in WATCHED:
                value = now.get(mode, {}).get(name, {}).get(metric)
                if value is None:
                    found.append(f"{mode}, {name}: {metric} is not measured any more")
                elif value < figures[metric] - margin:
                    found.append(f"{mode}, {name}: {metric} fell from {figures[metric]:.3f} to {value:.3f}")
    return found


def read_baseline(size: str, path: Path = BASELINE) -> Figures:
    """``size``: "full", or "small" as the tests measure it."""
    document: dict[str, Figures] = json.loads(path.read_text(encoding="utf-8"))
    return document[size]


def write_baseline(size: str, figures: Figures, path: Path = BASELINE) -> None:
    document: dict[str, Figures] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(
        json.dumps({**document, size: figures}, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
