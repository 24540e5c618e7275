"""Vaults that nobody uses are closed if the operator wants that: after a warning, and with a way back."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_relay.errors import StoreUnavailable, VaultDropped
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.last_used import LastUsed
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.unused_vaults import GRACE_DAYS, WARNED_DAYS, UnusedVaults
from crystal_relay.server.vault_terms import VaultAccess, VaultTerms
from crystal_relay.store import Page, Store
from tests.support.relay_server import enrolled, served

BEGAN = 1_800_000_000.0
DAY = 86_400
DAYS = 100
FOUND = ["r/vault/{}/origin", "v/{}/log/1"]


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture(params=["memory", "local"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")
    yield store
    await store.aclose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def unused(store: Store, clock: Clock) -> UnusedVaults:
    return UnusedVaults(store, days=DAYS, clock=clock)


async def made(store: Store, clock: Clock, vault: str, *, used: bool = True) -> None:
    for key in FOUND:
        await store.put_new(key.format(vault), b"{}")
    if used:
        await use(store, clock, vault)


async def use(store: Store, clock: Clock, vault: str) -> None:
    days = LastUsed(store, clock=clock)
    days.note(vault)
    await days.written()
    await days.aclose()


async def test_a_vault_is_closed_after_a_warning_and_deleted_after_its_grace(
    store: Store, clock: Clock, unused: UnusedVaults, caplog: pytest.LogCaptureFixture
) -> None:
    idle, busy = "aa" * 16, "bb" * 16
    await made(store, clock, idle)
    await made(store, clock, busy)
    clock.now += (DAYS - WARNED_DAYS - 1) * DAY
    assert (await unused.run()).warned == []
    await use(store, clock, busy)
    clock.now += DAY
    with caplog.at_level(logging.WARNING, "crystal_relay.server"):
        assert (await unused.run()).warned == [idle]
    assert "was last used on 2027-01-15; it is closed on 2027-04-25" in caplog.text
    clock.now += WARNED_DAYS * DAY
    looked = await unused.run()
    assert (looked.closed, looked.warned) == ([idle], [])
    with pytest.raises(VaultDropped, match="dropped") as refused:
        await DroppedVaults(store, clock=clock).check(idle)
    assert "restore it until 2027-05-25" in refused.value.hint
    assert (await unused.run()).closed == [], "it is closed once"
    clock.now += GRACE_DAYS * DAY + 1
    await Sweeper(store, clock=clock).run()
    assert (await store.list(f"v/{idle}/")).entries == ()
    assert (await store.list(f"r/vault/{idle}/")).entries == ()
    assert len((await store.list(f"v/{busy}/")).entries) == 1


async def test_a_restored_vault_counts_as_used(store: Store, clock: Clock, unused: UnusedVaults) -> None:
    vault = "aa" * 16
    await made(store, clock, vault)
    clock.now += DAYS * DAY
    assert (await unused.run()).closed == [vault]
    await DroppedVaults(store, clock=clock).restore(vault)
    looked = await unused.run()
    assert (looked.closed, looked.warned) == ([], [])


async def test_a_vault_of_an_older_relay_counts_as_used_today(
    store: Store, clock: Clock, unused: UnusedVaults
) -> None:
    vault = "aa" * 16
    await made(store, clock, vault, used=False)
    assert (await unused.run()).closed == []
    clock.now += (DAYS - 1) * DAY
    assert (await unused.run()).warned == [vault]
    clock.now += DAY
    assert (await unused.run()).closed == [vault]


async def test_a_suspended_vault_is_left_to_the_operator(
    store: Store, clock: Clock, unused: UnusedVaults
) -> None:
    vault = "aa" * 16
    await made(store, clock, vault)
    await VaultTerms(store, clock=clock).set_access(vault, VaultAccess.SUSPENDED)
    clock.now += 2 * DAYS * DAY
    looked = await unused.run()
    assert (looked.closed, looked.warned) == ([], [])


async def test_a_vault_that_is_used_meanwhile_stays(clock: Clock) -> None:
    """The listing is old by the time a vault's turn comes."""
    vault = "aa" * 16

    class UsedAfterTheListing(MemoryStore):
        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            page = await super().list(prefix, after=after, limit=limit)
            if prefix == "r/vault/":
                await use(self, clock, vault)
            return page

    store = UsedAfterTheListing()
    await made(store, clock, vault)
    clock.now += DAYS * DAY
    assert (await UnusedVaults(store, days=DAYS, clock=clock).run()).closed == []


async def test_a_store_that_fails_is_asked_again_at_the_next_look(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(MemoryStore):
        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            raise StoreUnavailable("the bucket is away")

    looked = await UnusedVaults(Failing(), days=DAYS, clock=clock).run()
    assert (looked.closed, looked.warned) == ([], [])
    assert "looking for unused vaults failed" in caplog.text


async def test_a_device_is_told_until_when_it_can_be_restored(store: Store, clock: Clock) -> None:
    async with served(store, clock=clock) as relay:
        lead = await enrolled(relay.url)
    await use(store, clock, lead.vault)
    clock.now += DAYS * DAY
    await UnusedVaults(store, days=DAYS, clock=clock).run()
    async with served(store, clock=clock) as relay:
        device = lead.store(relay.url)
        try:
            with pytest.raises(VaultDropped) as refused:
                await device.list(lead.prefix)
        finally:
            await device.aclose()
    assert "The operator can restore it until" in refused.value.hint
