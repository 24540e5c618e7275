"""Crash points of each act on the membership: done once in the end, by everybody's account; nothing is lost."""

import pytest

from tests.sim.measure import TOTALS
from tests.sim.members_script import SCRIPTS, count_points, play

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

STRIDE = 3
"""Not two: a commit has two points, and so has a request. `make sim` tries each point."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_crash_points_of_an_act_are_survived(name: str) -> None:
    points = count_points(name)
    assert points > 5, "the act goes through requests and commits"
    for point in range(1, points + 1, STRIDE):
        try:
            stage = play(name, point)
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from error
        assert stage.world.crasher.kills == 1, f"the script reaches point {point}"
        TOTALS["crash points covered"] += 1
