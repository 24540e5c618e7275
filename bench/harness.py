"""What benchmarks share: a row of the result table, its target, and timing that survives a noisy machine.

A benchmark is a module `bench/bench_<part>.py` with one public function

    def run(quick: bool) -> list[Row]: ...

`bench.run` finds it by its name. Rules: a figure is a median; whatever is a ratio is measured against its
baseline in the same run, the two in turns (`interleaved`), so that a busy machine slows both; `quick` may
shrink the work to a few seconds, never change what is measured. Benchmarks use only loopback and temporary
directories, and leave nothing behind.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

REPEATS = 7
"""Measured calls for each figure, unless a benchmark knows better."""


class Subject(Enum):
    """What a target bounds."""

    VALUE = "value"
    RATIO = "ratio"


class Bound(Enum):
    """The side on which a target bounds it."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure has to reach. Made by the four functions below."""

    subject: Subject
    bound: Bound
    limit: float

    def met_by(self, figure: float) -> bool:
        return figure >= self.limit if self.bound is Bound.AT_LEAST else figure <= self.limit


def value_at_least(limit: float) -> Target:
    return Target(Subject.VALUE, Bound.AT_LEAST, limit)


def value_at_most(limit: float) -> Target:
    return Target(Subject.VALUE, Bound.AT_MOST, limit)


def ratio_at_least(limit: float) -> Target:
    return Target(Subject.RATIO, Bound.AT_LEAST, limit)


def ratio_at_most(limit: float) -> Target:
    return Target(Subject.RATIO, Bound.AT_MOST, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result table. `baseline` names what `baseline_value` (same unit) was measured on.

    Raises ValueError for a ratio's target without a baseline, and for half a baseline.
    """

    name: str
    value: float
    unit: str
    baseline: str = ""
    baseline_value: float | None = None
    target: Target | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if bool(self.baseline) != (self.baseline_value is not None):
            raise ValueError(f"{self.name}: a baseline is a name and a value")
        if self.target is not None and self.target.subject is Subject.RATIO and not self.baseline_value:
            raise ValueError(f"{self.name}: a target for the ratio needs a baseline that is not zero")

    @property
    def ratio(self) -> float | None:
        """Value divided by the baseline's value; None without a baseline."""
        return self.value / self.baseline_value if self.baseline_value else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        if self.target is None:
            return None
        figure = self.value if self.target.subject is Subject.VALUE else self.ratio
        return figure is not None and self.target.met_by(figure)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each measured call."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def percentile(self, percent: float) -> float:
        """Seconds below which `percent` of the calls stayed (nearest rank)."""
        return percentile(self.samples, percent)


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile, 0 < percent ≤ 100. Raises ValueError for no samples or another percent."""
    if not samples or not 0 < percent <= 100:
        raise ValueError("a percentile needs samples and 0 < percent <= 100")
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def timed(work: Callable[[], object], *, repeat: int = REPEATS, warm_up: int = 1) -> Timing:
    """Call `work` `warm_up` times unmeasured, then `repeat` times measured."""
    return interleaved({"": work}, repeat=repeat, warm_up=warm_up)[""]


def interleaved(
    works: Mapping[str, Callable[[], object]], *, repeat: int = REPEATS, warm_up: int = 1
) -> dict[str, Timing]:
    """Time several things in turns (a b c, a b c, …), so that a ratio between them means something."""
    if repeat < 1:
        raise ValueError("nothing is measured with repeat < 1")
    for _ in range(warm_up):
        for work in works.values():
            work()
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeat):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            samples[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(values)) for name, values in samples.items()}


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a process took: seconds, seconds of processor time, and bytes of resident memory at most; and what it printed."""

    seconds: float
    processor: float
    peak: int
    output: str


def timed_process(command: Sequence[str], environment: Mapping[str, str]) -> ProcessFigures:
    """Runs a command once. Raises RuntimeError if it fails; what it says of that is on this process's stderr."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        output.seek(0)
        return ProcessFigures(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, output.read())
