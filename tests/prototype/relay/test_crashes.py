"""The relay dies between any two steps of a drop, a list or a confirm: nothing is lost, nothing comes twice."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from crystal_prototype.relay.drops import Drops, Waiting
from crystal_prototype.relay.names import DropId, Role, V1Channel
from crystal_prototype.relay.tokens import Tokens, V1Holder
from crystal_relay.errors import Busy, StoreFull, StoreUnavailable
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body, Store
from tests.prototype.device import V1Device, dropped, let_in
from tests.support.dying_store import Died, DyingStore
from tests.support.relay_process import RelayProcess

DELTAS = [b"delta %d" % number for number in range(3)]
MIRROR = V1Channel.MIRROR

Result = TypeVar("Result")


class Relays:
    """One relay after another over one store: the first of them dies at a chosen operation."""

    def __init__(self, store: Store, **death: int) -> None:
        self.kept = store
        self.dying = DyingStore(store, dies_at=death["at"], after_effect=bool(death["after"]))
        self.drops = Drops(self.dying, Tokens(self.dying))
        self.died = False

    async def ask(self, request: Callable[[Drops], Awaitable[Result]]) -> Result:
        """As a device does it: an unanswered request is sent again, to the relay that was started since."""
        try:
            return await request(self.drops)
        except Died:
            assert not self.died
            self.died = True
            self.drops = Drops(self.kept, Tokens(self.kept))
            return await request(self.drops)


async def live(relays: Relays, core: V1Holder, nodes: list[V1Holder]) -> dict[str, list[bytes]]:
    """Three drops, read by all. What each reader has got, in its order."""
    got: dict[str, list[bytes]] = {node.id: [] for node in nodes}

    async def poll(node: V1Holder) -> None:
        async def listed(drops: Drops) -> list[Waiting]:
            return await drops.waiting(node, MIRROR)

        for blob in await relays.ask(listed):

            async def pick_up(drops: Drops, name: DropId = blob.id) -> bytes:
                return await (await drops.pick_up(node, MIRROR, name)).read()

            async def confirm(drops: Drops, name: DropId = blob.id) -> None:
                await drops.confirm(node, MIRROR, name)

            got[node.id].append(await relays.ask(pick_up))
            await relays.ask(confirm)

    for delta in DELTAS:

        async def drop(drops: Drops, sealed: bytes = delta) -> str:
            return await dropped(drops, core, sealed)

        await relays.ask(drop)
        await poll(nodes[0])
    for node in (*nodes, *nodes):
        await poll(node)
    return got


async def test_a_relay_killed_at_any_operation_of_its_store_loses_and_doubles_nothing() -> None:
    at, after = 0, 0
    deaths = 0
    while True:
        store = MemoryStore()
        _, core = await let_in(store, "cc-core", Role.CORE)
        nodes = [(await let_in(store, f"cc-node-{n}", Role.NODE))[1] for n in range(2)]
        relays = Relays(store, at=at, after=after)
        got = await live(relays, core, nodes)
        assert got == {node.id: DELTAS for node in nodes}, f"died at operation {at}, after it: {after}"
        left = [entry.key for entry in (await store.list("w/")).entries if "/seen/" not in entry.key]
        assert left == [], f"left behind by a death at operation {at}, after it: {after}"
        if not relays.died:
            break
        deaths += 1
        at, after = (at, 1) if not after else (at + 1, 0)
    assert deaths > 100


async def test_a_revocation_killed_at_any_operation_is_finished_by_repeating_it() -> None:
    at = 0
    while True:
        store = MemoryStore()
        drops = Drops(store, Tokens(store))
        _, core = await let_in(store, "cc-core", Role.CORE)
        nodes = [(await let_in(store, f"cc-node-{n}", Role.NODE))[1] for n in range(2)]
        for delta in DELTAS:
            await dropped(drops, core, delta)
        for blob in await drops.waiting(nodes[0], MIRROR):
            await drops.confirm(nodes[0], MIRROR, blob.id)
        dying = DyingStore(store, dies_at=at, after_effect=at % 2 == 1)
        try:
            await Drops(dying, Tokens(dying)).revoke(nodes[1].id)
        except Died:
            await drops.revoke(nodes[1].id)
            at += 1
        else:
            break
        left = [entry.key for entry in (await store.list("w/")).entries if "/seen/" not in entry.key]
        assert left == [], f"left behind by a death at operation {at}"
    assert at > 15


async def test_readers_at_once_over_a_relay_that_dies_lose_nothing() -> None:
    seeded = random.Random(11)
    for _ in range(60):
        store = MemoryStore()
        tokens = Tokens(store)
        _, core = await let_in(store, "cc-core", Role.CORE)
        nodes = [(await let_in(store, f"cc-node-{n}", Role.NODE))[1] for n in range(3)]
        for delta in DELTAS:
            await dropped(Drops(store, tokens), core, delta)
        names = [blob.id for blob in await Drops(store, tokens).waiting(nodes[0], MIRROR)]
        dying = DyingStore(store, dies_at=seeded.randrange(60), after_effect=seeded.random() < 0.5)
        drops = Drops(dying, Tokens(dying))
        confirmed: set[tuple[str, DropId]] = set()

        async def confirm(
            node: V1Holder, name: DropId, drops: Drops = drops, confirmed: set[tuple[str, DropId]] = confirmed
        ) -> None:
            await drops.confirm(node, MIRROR, name)
            confirmed.add((node.id, name))

        calls = [confirm(node, name) for node in nodes for name in names]
        seeded.shuffle(calls)
        await asyncio.gather(*(survived(call) for call in calls))
        after = Drops(store, tokens)
        for node in nodes:
            waiting = {blob.id for blob in await after.waiting(node, MIRROR)}
            assert not waiting & {name for holder, name in confirmed if holder == node.id}
            for name in waiting:
                assert await (await after.pick_up(node, MIRROR, name)).read() in DELTAS


async def survived(call: Awaitable[None]) -> None:
    """Run it; dying is no failure of the test."""
    try:
        await call
    except Died:
        return


class RefusingStore(MemoryStore):
    """Refuses blobs with an error as long as it has one."""

    error: Exception | None = None
    effect = False

    async def put_new(self, key: str, body: bytes | Body) -> None:
        refused = self.error if "/mirror/" in key and key.startswith("w/") and "/seen/" not in key else None
        if refused is None or self.effect:
            await super().put_new(key, body)
        if refused is not None:
            raise refused


@pytest.mark.parametrize(
    ("error", "effect"),
    [
        (StoreFull("full"), False),
        (Busy("busy"), False),
        (StoreUnavailable("gone"), False),
        (StoreUnavailable("gone"), True),
    ],
)
async def test_a_store_that_fails_a_drop_gives_an_error_and_the_repetition_one_drop(
    error: Exception, effect: bool
) -> None:
    store = RefusingStore()
    tokens = Tokens(store)
    _, core = await let_in(store, "cc-core", Role.CORE)
    _, node = await let_in(store, "cc-node", Role.NODE)
    drops = Drops(store, tokens)
    store.error, store.effect = error, effect
    for _ in range(2):
        try:
            await dropped(drops, core, b"delta")
        except type(error):
            continue
        assert effect, "a success although the store refused"
    store.error = None
    name = await dropped(drops, core, b"delta")
    assert [str(blob.id) for blob in await drops.waiting(node, MIRROR)] == [name]


async def test_a_drop_that_was_refused_takes_its_place_when_it_succeeds() -> None:
    store = RefusingStore()
    _, core = await let_in(store, "cc-core", Role.CORE)
    _, node = await let_in(store, "cc-node", Role.NODE)
    drops = Drops(store, Tokens(store))
    store.error = StoreFull("full")
    with pytest.raises(StoreFull):
        await dropped(drops, core, b"refused at first")
    store.error = None
    names = [await dropped(drops, core, text) for text in (b"second", b"refused at first")]
    assert [str(blob.id) for blob in await drops.waiting(node, MIRROR)] == names


async def test_a_real_relay_killed_while_devices_drop_and_read_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "relay")
    tokens = [(await let_in(store, "cc-core", Role.CORE))[0]]
    tokens += [(await let_in(store, f"cc-node-{n}", Role.NODE))[0] for n in range(2)]
    await store.aclose()
    relay = RelayProcess(tmp_path / "relay", options=("--v1",))
    await asyncio.to_thread(relay.start)
    deltas = [b"%06d " % number + secrets.token_bytes(200) for number in range(150)]
    got: list[list[bytes]] = [[], []]
    finished = asyncio.Event()

    async def patiently(request: Callable[[], Awaitable[Result]]) -> Result:
        async with asyncio.timeout(60):
            while True:
                try:
                    return await request()
                except (httpx.TransportError, AssertionError):
                    await asyncio.sleep(0.01)

    async def core() -> None:
        async with V1Device(relay.url, tokens[0], "cc-core") as device:
            for delta in deltas:
                await patiently(lambda sealed=delta: device.drop("mirror", sealed))  # type: ignore[misc]
        finished.set()

    async def node(number: int) -> None:
        async with V1Device(relay.url, tokens[1 + number], f"cc-node-{number}") as device:
            while True:
                last = finished.is_set()
                for blob in await patiently(lambda: device.listed("mirror")):
                    name: str = blob["id"]
                    sealed = await patiently(lambda name=name: device.pick_up("mirror", name))  # type: ignore[misc]
                    await patiently(lambda name=name: device.confirm("mirror", name))  # type: ignore[misc]
                    got[number].append(sealed)
                if last:
                    return

    async def killer() -> None:
        moments = random.Random(3)
        for _ in range(4):
            await asyncio.sleep(moments.uniform(0.1, 0.5))
            relay.kill()
            await asyncio.to_thread(relay.start)

    try:
        await asyncio.gather(core(), node(0), node(1), killer())
    finally:
        relay.kill()
    assert got == [deltas, deltas]
    left = LocalStore(tmp_path / "relay")
    keys = [entry.key for entry in (await left.list("w/default/")).entries if "/seen/" not in entry.key]
    await left.aclose()
    assert [key for key in keys if "/done/" not in key] == []
