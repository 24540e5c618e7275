"""Disks that fail, at the relay and at devices: nothing is lost by it, and without its mending each old fault is found."""

from collections.abc import Callable

import pytest

from crystal_crypto.errors import CrystalError
from tests.sim import damage_plots as plots
from tests.sim.damage_mistakes import FOUND_BY, MISTAKES
from tests.sim.damaged import MOODS, Damaged
from tests.sim.measure import TOTALS
from tests.sim.mixed_plots import run

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

SEEDS = 3 * len(MOODS)
SLICES = 3
FOUND_BEFORE = (49,)
"""Further worlds, in which something was found once."""


@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_disks_do_the_promises_are_kept(part: int) -> None:
    for seed in (*range(part, SEEDS, SLICES), *FOUND_BEFORE[part::SLICES]):
        damaged = Damaged(seed)
        try:
            damaged.run()
        except AssertionError as error:
            raise AssertionError(f"damaged world {seed} ({damaged.mood.name}): {error}") from error


@pytest.mark.parametrize(
    "plot", [*dict.fromkeys(FOUND_BY.values()), plots.the_cores_journal_is_lost, plots.the_memory_is_lost]
)
def test_what_fails_is_mended(plot: Callable[[], None]) -> None:
    run(plot)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_fault_is_found_with_its_mending_taken_out(mistake: str) -> None:
    with MISTAKES[mistake](), pytest.raises((AssertionError, CrystalError)) as seen:
        run(FOUND_BY[mistake])
    assert "TypeError" not in str(seen.value), "the mistake itself is put back wrongly"
    TOTALS["mistakes caught"] += 1
