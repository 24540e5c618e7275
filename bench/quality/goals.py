"""What the figures should reach. Reported, and judged by people: only losing to a half or to the baseline fails the run."""

from collections.abc import Iterable
from dataclasses import dataclass

from bench.quality.halves import HYBRID
from bench.quality.measuring import ALL, OWN, Measured
from bench.quality.metrics import Mean

CODING = "Conversations about code"
FOREIGN_FALL_MAX = 0.02
"""Of hybrid's recall@10, by a hundred thousand foreign texts."""


@dataclass(frozen=True, slots=True)
class Goal:
    """At least ``value``, or at most (``at_most``), in every collection whose name begins with ``collection``."""

    collection: str
    metric: str
    value: float
    at_most: bool = False

    def met(self, found: Mean) -> bool:
        return found.value <= self.value if self.at_most else found.value >= self.value


GOALS = (
    Goal(OWN, "recall@10", 0.92),
    Goal("BEAM", "recall@10", 0.65),
    Goal("BEAM", "newest first", 0.90),
    Goal("BEAM", "both@10", 0.95),
    Goal("CoSQA", "recall@10", 0.82),
    Goal("CoSQA", "MRR@10", 0.53),
    Goal(f"{CODING}, held out", "answer@10", 0.75),
    Goal(f"{CODING}, held out", "MRR@10", 0.55),
    Goal(CODING, "echo@5", 0.02, at_most=True),
    Goal(CODING, "leak@10", 0.0, at_most=True),
    Goal(CODING, "silence", 0.95),
)


def reached(collections: Iterable[Measured]) -> list[tuple[str, Goal, Mean]]:
    """The goals of what was measured, with the figures of hybrid."""
    found: list[tuple[str, Goal, Mean]] = []
    for one in collections:
        for goal in GOALS:
            if one.name.startswith(goal.collection):
                mean = one.mean(HYBRID, ALL, goal.metric)
                if mean is not None:
                    found.append((one.name, goal, mean))
    return found
