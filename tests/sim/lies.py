"""What a relay may do to its users: lies told for a time, and harm done once.

A lie changes what devices are shown; the objects stay as they were. Harm changes the objects themselves. Both are chosen by
name, so that a test can be named after one and a random world can draw any.
"""

from collections.abc import Callable
from random import Random

from crystal_mirror.requests import Condemn, List, Listing
from tests.sim.store import Lie, SimStore


class Honest:
    """The base of lies: everything as it is."""

    name = "honest"
    harms = False
    """Whether what it does to the objects outlasts it."""

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return store.objects.get(key)

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        return None

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        return None

    def has(self, store: SimStore, device: str, key: str) -> bool | None:
        return None

    def condemn(self, store: SimStore, request: Condemn) -> frozenset[str] | None:
        return None


class Tampers(Honest):
    """Flips one bit of what it shows of one channel. `part` says where in the entry, from 0 to 1."""

    def __init__(self, channel: str, part: float) -> None:
        self.name = f"tampers with {channel}"
        self._channel, self._part = f"/{channel}/", part

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return flipped(data, self._part) if data and self._channel in key else data


class Truncates(Honest):
    """Shows only the first half of every entry."""

    name = "truncates"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return data[: len(data) // 2] if data else data


class Replays(Honest):
    """Shows, in the newest slots of a channel and behind them, entries of that channel's beginning."""

    def __init__(self, channel: str) -> None:
        self.name = f"replays {channel}"
        self._channel = channel

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        keys = store.keys(self._channel)
        if f"/{self._channel}/" not in key or not keys or key < keys[-1]:
            return store.objects.get(key)
        return store.objects[keys[0]] if key <= next_key(keys[-1]) else None


class Reorders(Honest):
    """Shows the two newest slots of a channel in each other's place."""

    def __init__(self, channel: str) -> None:
        self.name = f"reorders {channel}"
        self._channel = channel

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        keys = store.keys(self._channel)[-2:]
        if len(keys) == 2 and key in keys:
            key = keys[1 - keys.index(key)]
        return store.objects.get(key)


class RollsBack(Honest):
    """Shows what stood there at an earlier time; takes writes all the same. `victim` "" means everybody."""

    def __init__(self, before: dict[str, bytes], victim: str = "") -> None:
        self.name = f"shows {victim or 'everybody'} an earlier state"
        self._keys = frozenset(before)
        self._victim = victim

    def _visible(self, device: str, key: str) -> bool:
        return key in self._keys or bool(self._victim and device != self._victim)

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return store.objects.get(key) if self._visible(device, key) else None

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        page = store.honest_listing(request)
        return Listing(tuple(key for key in page.keys if self._visible(device, key)), page.more)


class LooksEmpty(RollsBack):
    """Shows nothing at all."""

    def __init__(self) -> None:
        super().__init__({})
        self.name = "looks empty"


class Withholds(Honest):
    """Says that the newest entries of a channel are not there."""

    def __init__(self, channel: str, count: int) -> None:
        self.name = f"withholds {channel}"
        self._channel, self._count = channel, count

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return None if key in store.keys(self._channel)[-self._count :] else store.objects.get(key)


class WithholdsOne(Honest):
    """Says that one entry in the middle of a channel is not there: a gap."""

    def __init__(self, channel: str) -> None:
        self.name = f"leaves a gap in {channel}"
        self._channel = channel

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        keys = store.keys(self._channel)
        return None if len(keys) > 1 and key == keys[-2] else store.objects.get(key)


class Jumbles(Honest):
    """Lists keys out of order, twice, with junk among them, and calls every page the last but one."""

    name = "jumbles listings"

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        page = store.honest_listing(request)
        junk = ("", "../x", request.prefix, request.prefix + "zz/0", request.prefix + "0" * 49 + "/-1")
        return Listing((*reversed(page.keys), *page.keys, *junk), True)


class CutsListings(Honest):
    """Lists only every other key, and says that there is no more."""

    name = "cuts listings"

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        page = store.honest_listing(request)
        return Listing(page.keys[1::2], False)


class SwallowsWrites(Honest):
    """Says that new entries of a channel are stored, and keeps none of them."""

    def __init__(self, channel: str) -> None:
        self.name = f"swallows {channel}"
        self._channel = f"/{channel}/"

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        return True if self._channel in key else None


class RefusesWrites(Honest):
    """Says of every new key that it is taken, and shows an old entry of that channel there."""

    name = "calls free places taken"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        if key in store.objects or not any(f"/{channel}/" in key for channel in ("conversations", "mirror")):
            return store.objects.get(key)
        channel = "conversations" if "/conversations/" in key else "mirror"
        older = [other for other in store.keys(channel) if other < key]
        return store.objects[older[-1]] if older and key == next_key(older[-1]) else None

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        return False if self.get(store, device, key) is not None else None


class CrossesChannels(Honest):
    """Shows conversations as mirror slots and mirror slots as conversations."""

    name = "crosses channels"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        if key in store.objects or "/mirror/" not in key:
            return store.objects.get(key) if "/conversations/" not in key else self._first(store, "mirror")
        return self._first(store, "conversations")

    @staticmethod
    def _first(store: SimStore, channel: str) -> bytes | None:
        keys = store.keys(channel)
        return store.objects[keys[0]] if keys else None


def flipped(data: bytes, part: float) -> bytes:
    """The data with one bit flipped, `part` of the way through."""
    if not data:
        return b"not even empty"
    at = min(len(data) - 1, int(len(data) * part))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def next_key(key: str) -> str:
    """The key of the slot behind that of `key`."""
    prefix, _, slot = key.rpartition("/")
    return f"{prefix}/{int(slot) + 1:0{len(slot)}d}"


CHANNELS = ("conversations", "mirror", "devlog")

LIES: tuple[Callable[[Random, dict[str, bytes]], Lie], ...] = (
    lambda draw, _: Tampers(draw.choice(CHANNELS), draw.random()),
    lambda _draw, _: Truncates(),
    lambda draw, _: Replays(draw.choice(CHANNELS)),
    lambda draw, _: Reorders(draw.choice(CHANNELS)),
    lambda _draw, before: RollsBack(before),
    lambda draw, before: RollsBack(before, draw.choice(("core", "laptop", "phone"))),
    lambda _draw, _: LooksEmpty(),
    lambda draw, _: Withholds(draw.choice(CHANNELS), draw.randint(1, 3)),
    lambda draw, _: WithholdsOne(draw.choice(CHANNELS)),
    lambda _draw, _: Jumbles(),
    lambda _draw, _: CutsListings(),
    lambda draw, _: SwallowsWrites(draw.choice(("conversations", "mirror"))),
    lambda _draw, _: RefusesWrites(),
    lambda _draw, _: CrossesChannels(),
)
"""Every lie. Given randomness and the objects as they stood some time ago."""


def empty(store: SimStore, _draw: Random, _before: dict[str, bytes]) -> None:
    """Everything is gone."""
    store.objects.clear()


def roll_back(store: SimStore, _draw: Random, before: dict[str, bytes]) -> None:
    """The relay was restored from a backup."""
    store.objects.clear()
    store.objects.update(before)


def drop_newest(store: SimStore, draw: Random, _before: dict[str, bytes]) -> None:
    """The newest entries of a channel are gone."""
    for key in store.keys(draw.choice(CHANNELS))[-draw.randint(1, 3) :]:
        del store.objects[key]


def junk_in_next_slot(store: SimStore, draw: Random, _before: dict[str, bytes]) -> None:
    """Somebody who may write put bytes of nothing, or an old entry, where the next one belongs."""
    keys = store.keys(draw.choice(CHANNELS))
    if keys:
        bodies = (b"junk", b"", store.objects[keys[0]], flipped(store.objects[keys[-1]], draw.random()))
        store.objects[next_key(keys[-1])] = draw.choice(bodies)


def damage_an_entry(store: SimStore, draw: Random, _before: dict[str, bytes]) -> None:
    """A bit of a stored entry flipped for good. (A device log that is damaged for good ends the vault, by name.)"""
    keys = store.keys(draw.choice(("conversations", "mirror")))
    if keys:
        key = draw.choice(keys[-3:])
        store.objects[key] = flipped(store.objects[key], draw.random())


HARM: tuple[Callable[[SimStore, Random, dict[str, bytes]], None], ...] = (
    empty,
    roll_back,
    drop_newest,
    junk_in_next_slot,
    damage_an_entry,
)
