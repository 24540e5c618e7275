"""Old mistakes, put back one at a time: the simulator finds each, and finds nothing without them."""

from collections.abc import Iterator

import pytest

from crystal_crypto.errors import CrystalError
from tests.sim.chaos import Chaos
from tests.sim.measure import TOTALS
from tests.sim.mistakes import FOUND_BY, MISTAKES, CrashesIn
from tests.sim.script import SCRIPTS, Stage, count_points

SEEDS_MAX = 28
Run = str | int | tuple[str, int]
"""A script, a random world by its seed, or a script in which a process dies at that point."""


def runs(mistake: str) -> Iterator[Run]:
    """Where to look for a mistake: its own run first, or each crash point of a script; then all scripts and random worlds."""
    found_by = FOUND_BY.get(mistake)
    if found_by is not None and not isinstance(found_by, CrashesIn):
        yield found_by
    if isinstance(found_by, CrashesIn):
        yield (found_by.script, found_by.first)
        yield from ((found_by.script, point) for point in range(1, count_points(found_by.script), 2))
    yield from SCRIPTS
    yield from range(SEEDS_MAX)


def play(run: Run) -> None:
    match run:
        case str():
            Stage(run).play(SCRIPTS[run])
        case int():
            Chaos(run).run()
        case (name, point):
            Stage(name, point).play(SCRIPTS[name])


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name != "two pollers at once"])
def test_every_old_mistake_is_found(mistake: str) -> None:
    for run in runs(mistake):
        try:
            with MISTAKES[mistake]():
                play(run)
        except (AssertionError, CrystalError) as error:
            if "TypeError" in str(error):
                pytest.fail(f"the mistake itself is put back wrongly: {error}")
            play(run)  # the same without the mistake raises nothing
            TOTALS["mistakes caught"] += 1
            return
    pytest.fail(f"the simulator missed the mistake: {mistake}")
