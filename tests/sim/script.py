"""Scripted runs, the same every time: short, and with every kind of step, so that each single crash point can be tried.

A script names what people and devices do, in order. When a process dies on the way, it is started again at once and does the
same once more (`patient`), or stays down until its next turn (not `patient`). Either way nothing may be lost or doubled.
"""

from collections.abc import Callable
from random import Random

from crystal_mirror.operations import Operation
from crystal_mirror.replication.claim import claim
from tests.sim.device import Home
from tests.sim.kept_script import keeping
from tests.sim.world import World

Script = Callable[["Stage"], None]
TRIES_MAX = 5


class Stage:
    """A world in which a script plays. `kill_at` is the point at which one process dies; None for none."""

    def __init__(self, name: str, kill_at: int | None = None, *, patient: bool = True) -> None:
        self.world = World(f"script/{name}")
        self.laptop = self.world.add_home("laptop")
        self.core = self.world.core
        self._draw = Random(f"script/{name}")
        self._patient = patient
        self._newcomer = kill_at is None
        self.points = 0
        """How many points the script went through."""
        self.world.crasher.points = 0
        self.world.crasher.kill_at = kill_at

    def sync(self, *homes: Home) -> None:
        for home in homes:
            for _ in range(TRIES_MAX):
                if self.world.run_round(home) or not self._patient:
                    break

    def write(self, home: Home) -> None:
        """A new operation on that device."""
        self.accept(home, self.world.new_operation(self._draw))

    def accept(self, home: Home, operation: Operation) -> None:
        """Whoever died before it was accepted asks again."""
        for _ in range(TRIES_MAX):
            if self.world.accept(home, operation):
                return

    def claim(self, home: Home) -> None:
        for _ in range(TRIES_MAX):
            if self.world.run(home, lambda member: claim(member, member.root, force=True)):
                return

    def play(self, script: Script) -> World:
        script(self)
        self.points = self.world.crasher.points
        self.world.agree(newcomer=self._newcomer)
        return self.world


def everyday(stage: Stage) -> None:
    """Two devices write, sync in turns, and the relay is emptied once."""
    core, laptop = stage.core, stage.laptop
    stage.sync(core, laptop, laptop)
    for home in (laptop, core, laptop):
        stage.write(home)
    stage.sync(laptop, core, laptop)
    stage.write(core)
    stage.write(laptop)
    stage.sync(laptop, core)
    stage.world.harm(stage.world.store.objects.clear)
    stage.sync(laptop, core, laptop)


def handover(stage: Stage) -> None:
    """The laptop takes the lead by force while the Core still holds a batch that it has not published."""
    core, laptop = stage.core, stage.laptop
    stage.sync(core, laptop, laptop)
    stage.write(laptop)
    stage.sync(laptop, core, laptop)
    stage.write(core)
    stage.write(laptop)
    stage.claim(laptop)
    stage.sync(core, laptop, core)


def restored(stage: Stage) -> None:
    """The Core is put back to a backup after it has published more."""
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.sync(core, laptop, laptop)
    stage.write(laptop)
    stage.sync(laptop, core)
    backup = core.backup()
    stage.write(core)
    stage.write(laptop)
    stage.sync(laptop, core, laptop)
    world.disaster(core, lambda: core.restore(backup))
    stage.write(core)
    stage.sync(core, laptop, core)


SCRIPTS: dict[str, Script] = {
    "everyday": everyday,
    "handover": handover,
    "restored": restored,
    "keeping": keeping,
}


def count_points(name: str) -> int:
    """At how many points a process can die in this script."""
    stage = Stage(name)
    stage.play(SCRIPTS[name])
    return stage.points
