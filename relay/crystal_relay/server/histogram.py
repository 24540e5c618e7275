"""Histograms of seconds, as Prometheus has them. Observing is plain arithmetic."""

from bisect import bisect_left
from dataclasses import dataclass, field

SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Histogram:
    """Observations per bucket (not cumulative), and their total seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BOUNDS) + 1))
    seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds, and the observations up to each of them."""
        made: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*map(str, SECONDS_BOUNDS), "+Inf"), self.counts, strict=True):
            below += count
            made.append((bound, below))
        return made
