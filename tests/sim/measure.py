"""What the simulator did, in numbers: runs, steps, crash points covered, faults injected, kinds of lies, mistakes caught.

Each process counts into `TOTALS`. Under pytest every test reports what it added (`conftest`), and the sum is printed at the
end of the run.
"""

from collections import Counter
from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World

PROPERTY = "simulator"
FAULTS = ("failed before", "reply lost", "late repeat")
"""What the store does to requests that counts as a fault."""
LIE = "lie: "
WIDTH = 110
HEADINGS = (
    "runs",
    "steps",
    "checks",
    "crash points covered",
    "crashes",
    "faults injected",
    "deletions checked",
    "mistakes caught",
)

TOTALS: Counter[str] = Counter()


def note_world(world: "World") -> None:
    """A world has come to its end, be it a bad one."""
    weather = {name: world.store.counts[name] for name in FAULTS}
    TOTALS.update(
        {
            "runs": 1,
            "steps": world.steps,
            "checks": world.checks.count,
            "crashes": world.crasher.kills,
            "faults injected": sum(world.faults.values()) + sum(weather.values()),
            "deletions checked": world.needs.checked,
        }
    )
    TOTALS.update({name: count for name, count in world.faults.items() if name.startswith(LIE)})


def note_lie(name: str) -> None:
    TOTALS[LIE + name] += 1


def lines(totals: Counter[str]) -> Iterable[str]:
    """The measure, for people."""
    for heading in HEADINGS:
        yield f"{totals[heading]:>12,}  {heading}"
    kinds = sorted(name.removeprefix(LIE) for name in totals if name.startswith(LIE))
    yield f"{len(kinds):>12,}  kinds of lies told:"
    yield from wrap(", ".join(kinds), WIDTH, initial_indent=" " * 14, subsequent_indent=" " * 14)
