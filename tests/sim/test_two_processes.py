"""Two processes of one home at once, over the same files: `crystal sync` twice, or beside the watcher."""

from pathlib import Path
from random import Random

import pytest

from tests.mirror.support import seeded
from tests.sim.mistakes import two_pollers_at_once
from tests.sim.world import World

STEPS = 240
FOUND_BY = 13
"""The world that is tried first for two pollers. Only to save time: the others follow."""


def run(seed: int, folder: Path) -> World:
    """A Core and a laptop, each of them two processes, take steps in a random order and die now and then."""
    world, draw = World(f"two/{seed}"), Random(f"two/{seed}")
    world.add_home("laptop")
    world.run_round(world.home("laptop"))
    for home in list(world.homes):
        place = folder / home.name
        place.mkdir()
        home.journal.execute("VACUUM INTO ?", (str(place / "state.db"),))
        home.keep_in(place)
        twin = home.second_process(home.name + "-twin", seeded(f"{seed}/{home.name}/twin"))
        world.homes.append(twin)
    for _ in range(STEPS):
        home = draw.choice(world.homes)
        if draw.random() < 0.02:
            world.crasher.kill_at = world.crasher.points + draw.randint(1, 30)
        if draw.random() < 0.12:
            world.accept(home, world.new_operation(draw))
        else:
            world.step(home)
    world.agree()
    return world


@pytest.mark.parametrize("seed", range(6))
def test_two_processes_of_one_home_are_safe(seed: int, tmp_path: Path) -> None:
    world = run(seed, tmp_path)
    assert world.accepted


def test_two_pollers_that_do_not_look_at_each_other_are_found(tmp_path: Path) -> None:
    with two_pollers_at_once():
        for seed in (FOUND_BY, *range(12)):
            folder = tmp_path / str(seed)
            folder.mkdir()
            try:
                run(seed, folder)
            except AssertionError:
                return
    pytest.fail("the simulator missed the mistake")
