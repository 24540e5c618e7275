"""Crash points of the scripted runs: a process dies there, once, and nothing is lost or doubled.

At odd points it is started again at once, at even ones it stays down until its next turn. Here a quarter of the points
is tried, two in a row of each eight; `make sim` tries each, both ways.
"""

import pytest

from tests.sim.measure import TOTALS
from tests.sim.script import SCRIPTS, Stage, count_points

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

SLICES = 8
PLAYED = 2
"""The points of a script are dealt to so many slices, of which this many are played."""

LONG = "keeping"
"""The script with the most points, of which one slice is played: its commits are those of the others."""


@pytest.mark.parametrize(
    ("name", "part"),
    [(name, part) for name in SCRIPTS for part in range(1 if name == LONG else PLAYED)],
)
def test_crash_points_are_survived(name: str, part: int) -> None:
    points = count_points(name)
    assert points > 100, "the script goes through many commits and requests"
    for point in range(1 + part, points + 1, SLICES):
        stage = Stage(name, point, patient=bool(point % 2))
        try:
            stage.play(SCRIPTS[name])
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at point {point} of {points}: {error}") from error
        assert stage.world.crasher.kills == 1, f"the script reaches point {point}"
        TOTALS["crash points covered"] += 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_end_well_without_a_crash(name: str) -> None:
    world = Stage(name).play(SCRIPTS[name])
    assert world.rounds_to_agree <= 3
    assert not world.lost
