"""Crash points of snapshots, restores, retention, moving the Core and files: a process dies there, once, and all is well.

Here every `STRIDE`-th point is tried; `make sim` tries each.
"""

import pytest

from tests.sim.measure import TOTALS
from tests.sim.mixed_script import SCRIPTS, count_points, play

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

STRIDE = 11
"""Prime, so that every kind of point comes round: a commit has two, and so has a request."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_crash_points_of_long_work_are_survived(name: str) -> None:
    points = count_points(name)
    assert points > 50, "the act goes through many requests and commits"
    for point in range(1 + len(name) % STRIDE, points + 1, STRIDE):
        try:
            stage = play(name, point)
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from error
        assert stage.world.crasher.kills == 1, f"the script reaches point {point}"
        TOTALS["crash points covered"] += 1
