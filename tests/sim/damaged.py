"""Worlds in which disks fail: at the relay, where single bits flip, and at devices, which lose databases and power.

Between whiles the relay asks devices to wait. Time goes by fast enough for audits, and at the end all is whole again.
"""

from tests.sim.chaos import Mood
from tests.sim.damage import DATABASES, cut_power, lose, rot_anything
from tests.sim.mixed import Mixed
from tests.sim.store import BUSY, CALM

MOODS: tuple[Mood, ...] = (
    Mood("rot", crash=0.01, storm=0.0, rot=0.012, snapshot=0.03, sweep=0.005),
    Mood("losses", crash=0.01, loss=0.01, snapshot=0.02),
    Mood("power", crash=0.02, power=0.02, snapshot=0.02, files=0.04),
    Mood("busy", crash=0.01, storm=0.0, busy=0.03, snapshot=0.03, promote=0.01),
    Mood(
        "all of it",
        crash=0.01,
        rot=0.006,
        loss=0.004,
        power=0.01,
        busy=0.01,
        snapshot=0.03,
        promote=0.005,
        sweep=0.003,
    ),
)


class Damaged(Mixed):
    """One random world of failing disks."""

    kind = "damaged"
    moods = MOODS

    def _trouble(self) -> None:
        super()._trouble()
        draw, mood, world = self.draw, self.mood, self.world
        world.power_cuts = mood.power and 0.5
        home = draw.choice(world.homes)
        if draw.random() < mood.rot:
            rot_anything(world, draw)
        if draw.random() < mood.loss:
            world.needs.strict = False
            lose(world, home, draw.choice(DATABASES))
        if draw.random() < mood.power:
            cut_power(world, home)
        if draw.random() < mood.busy:
            world.store.weather = CALM if world.store.weather is BUSY else BUSY
            world.faults["busy"] += 1
