"""A vault's owner has it deleted at the relay: over real HTTP, by a clock of the test's own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crystal_crypto.hierarchy import Root
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    Unauthorized,
    VaultDeleted,
    VaultDropped,
    WrongNumber,
)
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.dropped_vaults import SETTLE_SECONDS
from crystal_relay.server.operator import Operator
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.vault_deletions import CALL_OFF_SECONDS_MIN, KEPT_SECONDS
from crystal_relay.store import Store
from crystal_relay.tokens import recovery_hash, token_hash
from crystal_relay.wire import DeletionReply, RootProof
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served

NOW = 1_900_000_000
DAY = 86_400
HOST = "127.0.0.1"


@dataclass
class World:
    """A relay with a clock of the test's own, and a vault with a Core and a Node."""

    store: Store = field(default_factory=MemoryStore)
    now: float = NOW
    relay: ServedRelay = field(init=False)
    core: Member = field(init=False)
    node: Member = field(init=False)

    @asynccontextmanager
    async def as_member(self, member: Member) -> AsyncGenerator[HttpStore]:
        client = member.store(self.relay.url)
        try:
            yield client
        finally:
            await client.aclose()

    async def ask(
        self, number: int = 1, *, days: float = 7, root: Root | None = None, host: str = HOST, **signed: int
    ) -> DeletionReply:
        """Ask for the vault's deletion as its Core. `signed`: what is signed instead of what is asked for."""
        due = int(self.now + days * DAY)
        async with self.as_member(self.core) as client:
            proof = proof_of(
                self.core, signed.get("signed_number", number), signed.get("signed_due", due), root, host
            )
            return await client.ask_deletion(number, due, proof, recovery=self.core.recovery)

    async def standing(self, member: Member | None = None) -> DeletionReply:
        async with self.as_member(member or self.node) as client:
            return await client.deletion()

    async def call_off(self, number: int, *, by: Member | None = None, recovery: bytes | None = None) -> int:
        async with self.as_member(by or self.core) as client:
            return (await client.call_off_deletion(number, recovery=recovery)).due

    async def sweep(self) -> None:
        await Sweeper(self.store, clock=lambda: self.now).run()

    async def keys(self, prefix: str = "") -> list[str]:
        return [entry.key for entry in (await self.store.list(prefix)).entries]


def proof_of(member: Member, number: int, due: int, root: Root | None = None, host: str = HOST) -> RootProof:
    """By the vault's root, or by another one in its name."""
    signature = (root or member.root).sign_deletion(
        vault=bytes.fromhex(member.vault), number=number, due=due, host=host
    )
    return RootProof(member.root.admin.public.to_bytes().hex(), [], signature.hex())


@asynccontextmanager
async def world_on(store: Store) -> AsyncGenerator[World]:
    made = World(store)
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, sweep_seconds=0, auth_cache_seconds=0)
    async with served(store, settings, clock=lambda: made.now) as made.relay:
        made.core = await enrolled(made.relay.url)
        made.node = await joined(made.relay.url, made.core)
        async with made.as_member(made.core) as client:
            for number in range(30):
                await client.put_new(f"{made.core.prefix}mirror/1/{number:02d}", b"kept")
        yield made


@pytest.fixture(params=["memory"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")
    try:
        async with world_on(store) as made:
            yield made
    finally:
        await store.aclose()


@pytest.mark.parametrize("world", ["memory", "directory"], indirect=True)
async def test_a_vault_goes_when_its_owner_asked_and_the_waiting_time_is_over_and_only_it(
    world: World,
) -> None:
    other = await enrolled(world.relay.url)
    async with world.as_member(other) as client:
        await client.put_new(f"{other.prefix}mirror/1/1", b"theirs")
    asked = await world.ask()
    assert (asked.number, asked.asked, asked.due) == (1, NOW, NOW + 7 * DAY)
    assert await world.ask() == asked, "the same request again is no error"
    assert await world.standing() == asked, "every device can see it"
    world.now += 7 * DAY - 60
    await world.sweep()
    async with world.as_member(world.node) as client:  # until then all goes on
        assert await (await client.get(f"{world.node.prefix}mirror/1/07")).read() == b"kept"
        await client.put_new(f"{world.node.prefix}cursor/{world.node.device}", b"x")
    world.now += 120
    await world.sweep()
    async with world.as_member(world.core) as client:
        with pytest.raises(VaultDeleted, match="as its owner had asked"):
            await client.get(f"{world.core.prefix}mirror/1/07")
    world.now += SETTLE_SECONDS
    await world.sweep()
    vault = world.core.vault
    assert [key for key in await world.keys() if vault in key] == [
        f"r/deleted/{vault}",
        f"r/expiry/{NOW + 7 * DAY + KEPT_SECONDS:012d}/deleted.{vault}",
    ]
    for member in (world.core, world.node):
        async with world.as_member(member) as client:
            with pytest.raises(VaultDeleted, match="was deleted on 2030-"):
                await client.list(member.prefix)
    async with world.as_member(Member(vault=vault)) as client:
        with pytest.raises(Unauthorized):  # a stranger learns nothing
            await client.list(world.core.prefix)
    async with world.as_member(other) as client:
        assert await (await client.get(f"{other.prefix}mirror/1/1")).read() == b"theirs"
    world.now += KEPT_SECONDS
    await world.sweep()
    assert [key for key in await world.keys() if vault in key] == []


async def test_the_core_and_the_root_call_a_deletion_off_and_a_node_does_not(world: World) -> None:
    await world.ask()
    with pytest.raises(Forbidden):
        await world.call_off(1, by=world.node)
    assert await world.call_off(1) == 0
    assert await world.call_off(1) == 0, "again is no error"
    await world.ask(2)
    assert await world.call_off(2, by=world.node, recovery=world.core.recovery) == 0
    with pytest.raises(NotFound):
        await world.call_off(3)
    world.now += 30 * DAY
    await world.sweep()
    assert (await world.standing()).due == 0
    assert len(await world.keys(world.core.prefix)) == 30


async def test_a_request_has_no_power_after_it_was_called_off(world: World) -> None:
    await world.ask()
    await world.call_off(1)
    with pytest.raises(WrongNumber):
        await world.ask()
    await world.ask(2, days=9)
    with pytest.raises(WrongNumber, match="already"):
        await world.ask(3)
    world.now += 8 * DAY  # when the first one was due
    await world.sweep()
    assert len(await world.keys(world.core.prefix)) == 30
    assert (await world.standing()).number == 2


async def test_a_deletion_is_not_called_off_when_it_may_have_begun(world: World) -> None:
    await world.ask()
    world.now += 7 * DAY - CALL_OFF_SECONDS_MIN + 1
    with pytest.raises(BadRequest, match="waiting time is over"):
        await world.call_off(1)
    world.now -= 2
    await world.call_off(1)


@pytest.mark.parametrize("days", [0, 0.5, 91])
async def test_the_waiting_time_is_within_the_relays_bounds(world: World, days: float) -> None:
    with pytest.raises(BadRequest, match="1 day after the request at the soonest"):
        await world.ask(days=days)
    assert (await world.standing()).number == 0


async def test_who_does_not_have_the_root_deletes_nothing(world: World) -> None:
    due = NOW + 7 * DAY
    async with world.as_member(world.core) as client:
        good = proof_of(world.core, 1, due)
        with pytest.raises(Unauthorized):  # a stolen token and a request that somebody saw
            await client.ask_deletion(1, due, good, recovery=b"x" * 32)
    forgeries: tuple[dict[str, Any], ...] = (
        {"root": Root.generate()},
        {"host": "elsewhere.example.org"},
        {"signed_due": due + 1},
        {"signed_number": 2},
    )
    for forged in forgeries:
        with pytest.raises(Forbidden):
            await world.ask(**forged)
    assert (await world.standing()).number == 0
    assert await world.keys("r/expiry/") == []


async def test_a_replaced_root_deletes_nothing(world: World) -> None:
    old = world.core.recovery
    async with world.as_member(world.core) as client:
        await client.replace_recovery(1, "ab" * 32, recovery=old)
    with pytest.raises(Unauthorized):  # its signature still holds: the relay keeps no log of roots
        await world.ask()


async def test_the_operator_neither_undoes_nor_delays_what_the_owner_asked_for(world: World) -> None:
    operator = Operator(world.store, clock=lambda: world.now)
    await world.ask()
    await operator.drop(world.core.vault, 60 * DAY)
    async with world.as_member(world.core) as client:
        with pytest.raises(VaultDropped, match="by the relay's operator"):
            await client.list(world.core.prefix)
    world.now += 7 * DAY + 1
    await world.sweep()
    with pytest.raises(BadRequest, match="owner had it deleted"):
        await operator.restore(world.core.vault)
    world.now += SETTLE_SECONDS + 1
    await world.sweep()
    assert await world.keys(world.core.prefix) == []


class _Killed(BaseException):
    pass


class _Dying(MemoryStore):
    """Fails at the nth write or deletion, like a process that is killed."""

    left: int | None = None

    def _one(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise _Killed

    async def put_new(self, key: str, body: object) -> None:
        self._one()
        await super().put_new(key, body)  # type: ignore[arg-type]

    async def put(self, key: str, body: object) -> None:
        self._one()
        await super().put(key, body)  # type: ignore[arg-type]

    async def delete(self, key: str) -> None:
        self._one()
        await super().delete(key)


async def test_a_deletion_that_was_killed_at_any_point_goes_on() -> None:
    store = _Dying()
    async with world_on(store) as world:
        await world.ask()
        world.now += 7 * DAY + 1
        before = await _copied(store)
        points = 0
        while True:
            at = world.now
            store.left = points
            try:
                await world.sweep()
                world.now += SETTLE_SECONDS + 1
                await world.sweep()
                break
            except _Killed:
                store.left = None
                await world.sweep()
                world.now += SETTLE_SECONDS + 1
                await world.sweep()
                left = [key for key in await world.keys() if world.core.vault in key]
                assert [key.split("/")[1] for key in left] == ["deleted", "expiry"], f"killed at {points}"
                for member in (world.core, world.node):
                    async with world.as_member(member) as client:
                        with pytest.raises(VaultDeleted):
                            await client.list(member.prefix)
            world.now = at
            for key in await world.keys():
                await store.delete(key)
            for key, body in before.items():
                await store.put_new(key, body)
            points += 1
        assert points > 30


async def _copied(store: MemoryStore) -> dict[str, bytes]:
    keys = [entry.key for entry in (await store.list("")).entries]
    return {key: await (await store.get(key)).read() for key in keys}


async def test_a_vault_is_created_again_after_its_deletion_and_deleted_again(world: World) -> None:
    await world.ask()
    for _ in range(2):
        world.now += 8 * DAY
        await world.sweep()
    async with world.as_member(world.core) as client:
        await client.create_vault(
            enroll_token=ENROLL_TOKEN,
            recovery_hash=recovery_hash(world.core.recovery),
            device=world.core.device,
            token_hash=token_hash(world.core.token),
            proof=world.core.proof(client.host),
        )
        await client.put_new(f"{world.core.prefix}mirror/1/00", b"again")
        kept = proof_of(world.core, 1, NOW + 7 * DAY)
        with pytest.raises(BadRequest):  # what somebody kept of the first time
            await client.ask_deletion(1, NOW + 7 * DAY, kept, recovery=world.core.recovery)
    async with world.as_member(world.node) as client:
        with pytest.raises(VaultDeleted):
            await client.list(world.node.prefix)
    second = await world.ask()
    for _ in range(2):
        world.now += 8 * DAY
        await world.sweep()
    async with world.as_member(world.core) as client:
        with pytest.raises(VaultDeleted, match="2030-"):
            await client.list(world.core.prefix)
    async with world.as_member(world.node) as client:
        with pytest.raises(Unauthorized):  # it was not in the vault that was deleted last
            await client.list(world.node.prefix)
    world.now = NOW + 7 * DAY + KEPT_SECONDS + 1
    await world.sweep()
    assert await world.keys("r/deleted/"), "the second deletion is remembered for a year of its own"
    world.now = second.due + KEPT_SECONDS + 1
    await world.sweep()
    assert await world.keys("r/deleted/") == []


async def test_until_the_vault_is_gone_devices_hear_that_its_owner_asked() -> None:
    """A sweep that dies between the vault's records: what tells an owner's wish from an operator's goes last."""
    store = _Dying()
    async with world_on(store) as world:
        await world.ask()
        world.now += 7 * DAY + 1
        await world.sweep()
        world.now += SETTLE_SECONDS + 1
        before, points = await _copied(store), 0
        while True:
            store.left = points
            try:
                await world.sweep()
                break
            except _Killed:
                store.left = None
            if f"r/vault/{world.core.vault}/dropped" in await world.keys():
                for member in (world.core, world.node):
                    async with world.as_member(member) as client:
                        with pytest.raises(VaultDeleted):
                            await client.list(member.prefix)
            for key in await world.keys():
                await store.delete(key)
            for key, body in before.items():
                await store.put_new(key, body)
            points += 1
        assert points > 30
