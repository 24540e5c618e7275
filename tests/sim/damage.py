"""What happens to disks: a bit flips in an object at the relay, a database of a device is gone, the power is cut.

    the relay's disk   one bit of one stored object, of any kind, shown to all or to some, until it is written again
    a device's disk    the journal, the memory or the database of its files is gone; or a power cut, which takes the commits
                       that did not wait for the disk

A slot of the device log is damaged only once every member has read it: who joins in the middle must not count on what it was
shown, and everybody else goes on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from random import Random

from tests.sim.device import Home
from tests.sim.lies import flipped
from tests.sim.store import Rot
from tests.sim.world import World

CHANNELS = ("devlog", "mirror", "conversations", "cursor", "blob")
DATABASES = ("journal", "replica", "book")


def rot(world: World, key: str, draw: Random, *, seen_by: frozenset[str] | None = None) -> None:
    """Flips one bit of a stored object."""
    body = world.store.objects[key]
    shown = flipped(body, draw.random())
    world.say(f"a bit of {key} flips{' for ' + ' '.join(sorted(seen_by)) if seen_by else ''}")
    world.faults["rot"] += 1

    def strike() -> None:
        world.store.rot[key] = Rot(body, shown, seen_by)
        world.outsiders.take_as_put([shown])  # who keeps it as void may put it back as it was seen

    world.harm(strike)


def rot_anything(world: World, draw: Random) -> None:
    """Flips one bit of any object, shown to everybody or to some of the devices."""
    keys = [key for key in world.store.keys(draw.choice(CHANNELS)) if key not in world.store.rot]
    keys = [key for key in keys if "/devlog/" not in key or _read_by_all(world, key)]
    if keys:
        names = sorted(home.name for home in world.homes)
        some = frozenset(draw.sample(names, draw.randint(1, len(names)))) if draw.random() < 0.5 else None
        rot(world, draw.choice(keys), draw, seen_by=some)


def lose(world: World, home: Home, database: str) -> None:
    """One database of a device is gone. What is left of its outbox has to reach the log all the same."""
    with _nobody_dies(world):
        member = home.open()
    if member is None or (database == "book" and home.book is None):
        return
    kept = {name.digest for name in member.journal.names()}
    if database == "journal":
        shown = member.replica.provisional_origins()
        kept = {name.digest for name in member.journal.names() if name.origin in shown}
    world.faults[f"lost: {database}"] += 1
    world.say(f"{home.name} loses its {database}")
    lost, on_relay_only = set(world.lost), set(world.on_relay_only)
    world.disaster(home, lambda: home.lose(database))
    world.lost -= kept - lost
    world.on_relay_only -= kept - on_relay_only
    for operation in kept & world.accepted.keys() - lost:
        world.checks.accepted(home, operation)
    if home.disk is not None and database == "book":
        world.filing.disk_was_put_back(home, [each for each in world.homes if each is not home])


def cut_power(world: World, home: Home) -> None:
    """The machine stops. Nothing that a person was told is kept may go by it."""
    world.faults["power cut"] += 1
    world.say(f"the power of {home.name} is cut")
    home.cut_power()
    with _nobody_dies(world):
        home.open()
    world.look_at(home)


@contextmanager
def _nobody_dies(world: World) -> Generator[None]:
    """Whoever starts now comes as far as being open."""
    armed, world.crasher.kill_at = world.crasher.kill_at, None
    yield
    world.crasher.kill_at = armed


def _read_by_all(world: World, key: str) -> bool:
    """Whether every device that belongs has the slot as it was written."""
    slot = int(key.rpartition("/")[2])
    kept: list[object] = [
        home.journal.execute(
            "SELECT count(*) FROM device_log WHERE slot = ? AND void = 0", (slot,)
        ).fetchall()[0][0]
        for home in world.homes
    ]
    return all(kept)
