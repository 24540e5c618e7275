"""Random worlds: what may happen, drawn from a seed.

A run has a mood, drawn first, which says what kinds of trouble it knows: crashes and weather always, then disks that are put
back, clones, a relay that lies or is harmed, forced claims. Moods are kept apart so that a run in which only crashes happen
is held to the strictest promises.
"""

from dataclasses import dataclass
from random import Random

from crystal_mirror.replication.claim import claim
from tests.mirror.support import seeded
from tests.sim.device import Backup, Home
from tests.sim.lies import HARM, LIES
from tests.sim.store import CALM, STORM
from tests.sim.world import World

STEPS = 260
HOMES_MAX = 5


@dataclass(frozen=True)
class Mood:
    """Chances per step, between 0 and 1."""

    name: str
    crash: float = 0.01
    storm: float = 0.01
    restore: float = 0.0
    clone: float = 0.0
    claim: float = 0.0
    lie: float = 0.0
    harm: float = 0.0
    administer: float = 0.0
    colludes: float = 0.0
    """How likely a device that was revoked goes on with its old keys, and the relay lets it."""
    snapshot: float = 0.0
    sleep: float = 0.0
    """That some days go by at once."""
    clock: float = 0.0
    """That a device's clock is set wrong, by years."""
    promote: float = 0.0
    """That the Core is moved on purpose."""
    sweep: float = 0.0
    """That a person has the Core let go of all that it can."""
    reembed: float = 0.0
    rot: float = 0.0
    """That a bit of an object at the relay flips."""
    loss: float = 0.0
    """That a device loses one of its databases."""
    power: float = 0.0
    """That a device's power is cut."""
    busy: float = 0.0
    """That the relay begins, or ends, to ask devices to wait."""
    files: float = 0.0
    """That a person does something with a file."""


MOODS: tuple[Mood, ...] = (
    Mood("crashes", crash=0.03),
    Mood("claims", claim=0.012),
    Mood("backups", restore=0.01),
    Mood("clones", clone=0.006, restore=0.004),
    Mood("lies", lie=0.02),
    Mood("harm", harm=0.01),
    Mood("everything", restore=0.005, clone=0.003, claim=0.006, lie=0.01, harm=0.005),
)


class Chaos:
    """One random world. `run` raises Violation if a promise was broken."""

    kind = "chaos"
    moods = MOODS
    lies = LIES

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        self.world = World(f"{self.kind}/{seed}")
        self.draw = Random(f"{self.kind}/{seed}")
        self.mood = self.moods[seed % len(self.moods)]
        self._steps = steps
        self._backups: dict[str, Backup] = {}
        self._before: dict[str, bytes] = {}

    def run(self) -> World:
        world = self.world
        for name in ("laptop", "phone"):
            world.add_home(name, keeps_root=name == "laptop" or self.draw.random() < 0.5)
        for _ in range(self._steps):
            self._trouble()
            home = self.draw.choice(world.homes)
            if self.draw.random() < 0.12:
                world.accept(home, world.new_operation(self.draw))
            else:
                world.step(home)
        world.agree()
        return world

    def _trouble(self) -> None:
        draw, mood, world = self.draw, self.mood, self.world
        home = draw.choice(world.homes)
        if draw.random() < mood.crash and world.crasher.kill_at is None:
            world.crasher.kill_at = world.crasher.points + draw.randint(1, 30)
        if draw.random() < mood.storm:
            world.store.weather = CALM if world.store.weather is STORM else STORM
            world.faults["storm"] += 1
        if draw.random() < 0.03:
            self._before = dict(world.store.objects)
        if mood.restore and draw.random() < 0.03:
            self._backups[home.name] = home.backup()
        if draw.random() < mood.restore:
            self._restore(home)
        if draw.random() < mood.clone and len(world.homes) < HOMES_MAX and home.open() is not None:
            self._clone(home)
        if draw.random() < mood.claim and not home.busy and home.keeps_root and home.open() is not None:
            self._claim(home)
        if draw.random() < mood.lie:
            self._lie()
        if draw.random() < mood.harm:
            harm = draw.choice(HARM)
            world.faults[f"harm: {harm.__name__}"] += 1
            world.say(f"harm: {harm.__name__}")
            world.harm(lambda: harm(world.store, draw, self._before))

    def _restore(self, home: Home) -> None:
        backup = self._backups.get(home.name)
        if backup is None:
            return
        journal, replica = self.draw.choice(((True, True), (True, True), (True, False), (False, True)))
        self.world.faults["restored"] += 1
        self.world.say(f"{home.name} is put back{' journal' * journal}{' replica' * replica}")
        files = not (journal and replica) or self.draw.random() < 0.5
        self.world.disaster(home, lambda: home.restore(backup, journal=journal, replica=replica, files=files))
        if home.disk is not None:
            self.world.filing.disk_was_put_back(home, [each for each in self.world.homes if each is not home])

    def _clone(self, home: Home) -> None:
        self.world.faults["cloned"] += 1
        name = f"{home.name}-{len(self.world.homes) + len(self.world.former)}"
        self.world.say(f"{home.name} is cloned as {name}")
        self.world.homes.append(home.clone(name, seeded(f"{self.world.seed}/{name}")))

    def _claim(self, home: Home) -> None:
        self.world.faults["claim"] += 1
        self.world.say(f"{home.name} claims")
        force = self.draw.random() < 0.5
        self.world.step(home, lambda member: claim(member, member.root, force=force))

    def _lie(self) -> None:
        world, draw = self.world, self.draw
        if world.store.lie is not None:
            world.store.lie = None
            world.say("the relay is honest")
            return
        world.deceived = True
        world.store.lie = lie = draw.choice(self.lies)(draw, self._before)
        world.needs.harmed |= lie.harms
        world.faults[f"lie: {lie.name}"] += 1
        world.say(f"lie: {lie.name}")
