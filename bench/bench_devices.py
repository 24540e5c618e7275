"""One message in a vault of 10 and of 1,000 devices: how many requests it costs the relay.

The protocol's own code runs for the device that said it, for the Core, and for some of the others, over objects in memory, each
as a process that has made rounds before. The other devices do the same as these, so their requests are calculated. The waits
are not counted: each device's long-poll ends once and is asked again.
"""

from collections import Counter

from bench.harness import Row
from crystal_mirror.membership.administration import add_device
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Embed, Progress, Request
from crystal_mirror.round import sync_round
from tests.mirror.household import MODEL, Household, has, newcomer
from tests.mirror.support import Objects, driven, new_device
from tests.mirror.test_two_devices import capture

SIZES = (10, 1_000)
FOLLOWED = 4
"""How many of the devices that only take the message in are run."""
_NOW_MS = 1_760_000_000_000
_ROUNDS_BEFORE = 5
_TEXT = "the tide gauge has five sensors"


def run(quick: bool) -> list[Row]:
    return [row for size in ((10, 40) if quick else SIZES) for row in _vault(size)]


def _vault(size: int) -> list[Row]:
    home = Household()
    followed = [home.add(f"device {number}") for number in range(FOLLOWED + 1)]
    for number in range(FOLLOWED + 1, size - 1):
        away = newcomer(new_device(f"device {number}"))
        home.store.run(add_device(home.core, away, name=f"device {number}", system="Linux", now_ms=1))
    everybody = [home.core, *followed]
    home.read(*everybody)
    sender, *others = followed
    sender.accept(capture("the tide gauge has four sensors"))
    for _ in range(_ROUNDS_BEFORE):
        for member in everybody:
            _requests(home.store, member)
    sender.accept(capture(_TEXT))
    sending, core = _requests(home.store, sender), _requests(home.store, home.core)
    taking = [_requests(home.store, member) for member in others]
    acknowledged = _requests(home.store, sender)
    if not all(has(member, _TEXT) for member in everybody):
        raise RuntimeError("a device did not get the message")
    each = sum(sum(one.values()) for one in taking) / len(taking)
    total = sum((sending + core + acknowledged).values()) + each * (size - 2)
    return [
        Row(
            name=f"one message in a vault of {size:,} devices: requests of a device that takes it in",
            value=each,
            unit="",
            note=_kinds(taking[0]),
        ),
        Row(
            name=f"one message in a vault of {size:,} devices: requests of all",
            value=total,
            unit="",
            note=f"the sender {_kinds(sending + acknowledged)}; the Core {_kinds(core)}",
        ),
    ]


def _requests(store: Objects, member: Member) -> Counter[str]:
    """The requests of one round, by kind."""
    counted: Counter[str] = Counter()

    def answer(request: Request) -> object:
        if not isinstance(request, Embed | Progress):
            counted[type(request).__name__] += 1
        return store.answer(request)

    driven(sync_round(member, MODEL, about=About(_NOW_MS)), answer)
    return counted


def _kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
