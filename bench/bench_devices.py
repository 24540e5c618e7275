"""One message in a vault of 10 and of 1,000 devices: the requests to the relay, and the relay's processor time for them.

The protocol's own code runs for the device that said it, for the Core, and for some of the others, over objects in memory, each
as a process that has made rounds before. The other devices do the same as these, so their requests are calculated. The waits
are not counted: each device's long-poll ends once and is asked again. For the processor time, the requests of one of these
devices are repeated many times at a relay process whose directory holds the vault's objects.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.harness import Row
from bench.relay_load import UNLIMITED, on_uvloop
from bench.relay_waiters import relay_seconds
from crystal_core.embed.port import Embedder
from crystal_mirror.membership.administration import add_device
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Embed, Progress, Request
from crystal_mirror.round import sync_round
from crystal_node.device.runner import Runner
from crystal_relay.local import LocalStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.tokens import Preset, recovery_hash, token_hash
from crystal_relay.wire import TokenRegistration, VaultCreation
from tests.mirror.household import MODEL, Household, has, newcomer
from tests.mirror.support import Objects, driven, new_device
from tests.mirror.test_two_devices import capture
from tests.support.relay_process import RelayProcess
from tests.support.relay_server import Member as Party

SIZES = (10, 1_000)
FOLLOWED = 4
"""How many of the devices that only take the message in are run."""
_NOW_MS = 1_760_000_000_000
_ROUNDS_BEFORE = 5
_REPEATED = 400
_TEXT = "the tide gauge has five sensors"


def run(quick: bool) -> list[Row]:
    return [
        row
        for size in ((10, 40) if quick else SIZES)
        for row in _vault(size, repeated=20 if quick else _REPEATED)
    ]


def _vault(size: int, *, repeated: int) -> list[Row]:
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
    sending, core = _counted(home.store, sender), _counted(home.store, home.core)
    asked = [_requests(home.store, member) for member in others]
    taking = [_kinds_of(each) for each in asked]
    acknowledged = _counted(home.store, sender)
    if not all(has(member, _TEXT) for member in everybody):
        raise RuntimeError("a device did not get the message")
    each = sum(sum(one.values()) for one in taking) / len(taking)
    total = sum((sending + core + acknowledged).values()) + each * (size - 2)
    seconds = _relay_seconds(home, others[0], asked[0], repeated)
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
        Row(
            name=f"one message in a vault of {size:,} devices: the relay's processor time for a device that takes it in",
            value=seconds * 1000,
            unit="ms",
            note=f"{seconds * total / each:.2g} s for all devices, calculated from their requests",
        ),
    ]


def _requests(store: Objects, member: Member) -> list[Request]:
    """The requests of one round."""
    asked: list[Request] = []

    def answer(request: Request) -> object:
        if not isinstance(request, Embed | Progress):
            asked.append(request)
        return store.answer(request)

    driven(sync_round(member, MODEL, about=About(_NOW_MS)), answer)
    return asked


def _kinds_of(requests: Sequence[Request]) -> Counter[str]:
    return Counter(type(request).__name__ for request in requests)


def _counted(store: Objects, member: Member) -> Counter[str]:
    """The requests of one round, by kind."""
    return _kinds_of(_requests(store, member))


def _relay_seconds(home: Household, member: Member, requests: Sequence[Request], repeated: int) -> float:
    """Processor time of a relay process for these requests of a device, in seconds: the mean of ``repeated`` times."""
    vault = home.core.vault.hex()
    core, party = Party(vault, home.core.device_id.hex()), Party(vault, member.device_id.hex())
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        place = Path(folder) / "relay"

        async def fill() -> None:
            store = LocalStore(place)
            registry = create_app(store, RelaySettings(enroll_token="x" * 32)).state.relay.registry
            await registry.create_vault(
                VaultCreation(vault, recovery_hash(core.recovery), core.device, token_hash(core.token))
            )
            await registry.register(
                vault, TokenRegistration(party.device, token_hash(party.token), Preset.DEVICE)
            )
            for key, body in home.store.items():
                await store.put(key, body)
            await store.aclose()

        on_uvloop(fill)
        relay = RelayProcess(place, options=UNLIMITED, fresh=True)
        relay.start()
        try:

            async def ask() -> float:
                client = party.store(relay.url)
                runner = Runner(client, _no_embedder)
                try:
                    for request in requests:
                        await runner.perform(request)  # connects, and fills the relay's caches
                    before = relay_seconds(relay)
                    for _ in range(repeated):
                        for request in requests:
                            await runner.perform(request)
                    return (relay_seconds(relay) - before) / repeated
                finally:
                    await client.aclose()

            return on_uvloop(ask)
        finally:
            relay.stop()


def _no_embedder() -> Embedder:
    raise AssertionError("a device that takes in a message asks for no vectors")


def _kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
