"""Old mistakes, put back one at a time: the simulator finds each, and finds nothing without them."""

from collections.abc import Iterator

import pytest

from crystal_crypto.errors import CrystalError
from tests.sim.chaos import Chaos
from tests.sim.mistakes import FOUND_BY, MISTAKES
from tests.sim.script import SCRIPTS, Stage

SEEDS_MAX = 28


def runs(mistake: str) -> Iterator[str | int]:
    """Where to look for a mistake: its own run first, then all scripts and some random worlds."""
    if mistake in FOUND_BY:
        yield FOUND_BY[mistake]
    yield from SCRIPTS
    yield from range(SEEDS_MAX)


def play(run: str | int) -> None:
    if isinstance(run, str):
        Stage(run).play(SCRIPTS[run])
    else:
        Chaos(run).run()


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name != "two pollers at once"])
def test_every_old_mistake_is_found(mistake: str) -> None:
    for run in runs(mistake):
        try:
            with MISTAKES[mistake]():
                play(run)
        except (AssertionError, CrystalError):
            play(run)  # the same without the mistake raises nothing
            return
    pytest.fail(f"the simulator missed the mistake: {mistake}")
