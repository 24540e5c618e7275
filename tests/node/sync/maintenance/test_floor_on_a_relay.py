"""A Core's floor on a real relay that loses everything while its deletions are still pending: nothing is lost twice.

The members are real, on real databases; only their texts' vectors are made up. The relay sweeps when the test says so.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from crystal_mirror.entries.control_state import newest_snapshot, published_floor
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Remember
from crystal_mirror.requests import Flow
from crystal_mirror.retention.gc import retain
from crystal_mirror.round import FULL_CHECK_ROUNDS, sync_round
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_node.device.runner import Runner
from crystal_relay.memory import MemoryStore
from crystal_relay.server import condemned
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.tokens import recovery_hash, token_hash
from crystal_relay.wire import VaultCreation
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import vector
from tests.support.relay_server import Member as Party
from tests.support.relay_server import ServedRelay, served

NOW = 1_800_000_000_000
T = TypeVar("T")


class _Embedder:
    identity, dimensions = MODEL, 384

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        return [[vector(text)] for text in texts]

    def embed_query(self, text: str) -> Any:
        raise AssertionError("a sync round asks for no query")


@dataclass
class OnRelay:
    """A household that has moved to a real relay."""

    home: Household
    relay: ServedRelay
    owner: Party
    closing: AsyncExitStack
    runners: dict[bytes, Runner] = field(default_factory=dict[bytes, Runner])

    async def run(self, member: Member, flow: Flow[T]) -> T:
        runner = self.runners.get(member.device_id)
        if runner is None:
            if member is self.home.core:
                party = self.owner
            else:
                party = Party(self.owner.vault, member.device_id.hex(), recovery=self.owner.recovery)
                await _let_in(self.relay.url, self.owner, party)
            client = party.store(self.relay.url)
            self.closing.push_async_callback(client.aclose)
            runner = self.runners[member.device_id] = Runner(client, _Embedder)
        return await runner.run(flow)

    async def sync(self, *members: Member) -> None:
        for member in members:
            await self.run(member, sync_round(member, MODEL, about=About(now_ms=0)))

    async def house(self) -> None:
        """The Core publishes what may go, and asks for it."""
        for _ in range(3):
            await self.run(self.home.core, retain(self.home.core, NOW, force=True))
            await self.sync(self.home.core)

    async def snapshot(self) -> None:
        assert await self.run(self.home.core, make_snapshot(self.home.core)) is not None
        await self.sync(self.home.core)

    async def join(self, name: str) -> Member:
        member = self.home.add(name)
        # The household brings devices in on its own store: what that wrote is the device log.
        await self.move()
        return member

    async def move(self) -> None:
        for key, body in self.home.store.items():
            if "/devlog/" in key and not await self.held(key):
                await self.relay.store.put_new(key, body)

    async def held(self, prefix: str) -> list[str]:
        return [entry.key for entry in (await self.relay.store.list(prefix)).entries]

    async def lose_everything(self) -> None:
        """But what the relay has on record: tokens, and what it is to delete."""
        for key in await self.held(self.owner.prefix):
            await self.relay.store.delete(key)

    async def sweep(self) -> None:
        assert not (await Sweeper(self.relay.store, clock=lambda: time.time() + 1).run()).failures


async def _let_in(url: str, owner: Party, party: Party) -> None:
    client = owner.store(url)
    await client.register_token(
        device=party.device, token_hash=token_hash(party.token), preset="device", recovery=owner.recovery
    )
    await client.aclose()


@asynccontextmanager
async def household() -> AsyncGenerator[OnRelay]:
    home = Household()
    async with served(MemoryStore()) as relay, AsyncExitStack() as closing:
        owner = Party(home.core.vault.hex(), home.core.device_id.hex())
        await relay.app.state.relay.registry.create_vault(
            VaultCreation(owner.vault, recovery_hash(owner.recovery), owner.device, token_hash(owner.token))
        )
        at = OnRelay(home, relay, owner, closing)
        await at.move()
        for number in range(12):
            home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
            await at.sync(home.core)
        yield at


async def _until_checked(at: OnRelay) -> None:
    """Rounds until the Core has looked at the whole listing."""
    at.home.core.rounds = FULL_CHECK_ROUNDS
    await at.sync(at.home.core, at.home.core)


async def test_a_core_puts_back_nothing_that_a_pending_deletion_would_take_again() -> None:
    async with household() as at:
        core = at.home.core
        await at.snapshot()
        await at.house()
        epoch, floor = published_floor(core.replica)
        assert floor > 0
        prefix = core.keys.epoch_prefix(epoch)
        pending = await at.held("r/condemned/")
        assert pending, "asked for, and not carried out yet"
        await at.lose_everything()
        await _until_checked(at)
        put_back = await at.held(prefix)
        assert put_back[0] == core.keys.mirror(epoch, floor)
        assert put_back[-1] == core.keys.mirror(epoch, core.replica.position().sequence - 1)
        assert len(put_back) == core.replica.position().sequence - floor
        await at.sweep()
        assert await at.held(prefix) == put_back
        assert not await at.held("r/condemned/")


async def test_who_joins_after_that_finds_everything_again() -> None:
    async with household() as at:
        core = at.home.core
        await at.snapshot()
        await at.house()
        await at.lose_everything()
        await _until_checked(at)
        await at.sweep()
        await at.house()
        await at.snapshot()
        late = await at.join("late")
        await at.sync(core, late, core, late)
        assert newest_snapshot(late.replica) is not None
        assert same(core, late)
        assert has(late, "fact number 3")


async def test_a_relay_with_too_many_deletions_under_way_fails_no_round_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(condemned, "PENDING_MAX", 1)
    async with household() as at:
        core = at.home.core
        await at.snapshot()
        streams = core.keys.conversations_prefix
        assert len(await at.held(streams)) == 12
        for look in range(6):
            now = NOW + look * 2 * 86_400_000
            core.accept(Remember(f"meanwhile {look}", "fact", "agent", 1))
            report = await at.run(core, sync_round(core, MODEL, about=About(now_ms=now)))
            assert report.caught_up
            assert len(await at.held("r/condemned/")) <= 1
            await at.sweep()
        prefix = core.keys.epoch_prefix(1)
        assert (await at.held(prefix))[0] == core.keys.mirror(*published_floor(core.replica))
        assert len(await at.held(streams)) < 6, "and the streams' entries went in their turn"
