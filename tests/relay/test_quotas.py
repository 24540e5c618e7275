"""What one vault may have: over real HTTP, with small quotas."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from crystal_node.device.runner import store_failure
from crystal_relay.address import http_client
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import QuotaExceeded, RelayAtCap, StoreUnavailable
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.usage import (
    ALL_VAULTS,
    COUNT_AGE_SECONDS_MAX,
    GROWTH_SHARE,
    RECOUNT_PAGE_SECONDS,
    RECOUNT_SECONDS,
    RelayUsage,
    Usage,
    VaultUsage,
    count_usage,
)
from crystal_relay.store import Page
from tests.support.relay_process import running_relay
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served

VAULT = "0" * 32


def quotas(size: int = 0, entries: int = 0) -> RelaySettings:
    return RelaySettings(enroll_token=ENROLL_TOKEN, quota_bytes=size, quota_entries=entries)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def fill(relay: ServedRelay, store: HttpStore, member: Member, size: int, *, most: int) -> int:
    """Write objects until the relay refuses; how many it took."""
    for number in range(most):
        try:
            await store.put_new(f"{member.prefix}mirror/1/{number:04d}", bytes(size))
        except QuotaExceeded:
            return number
        await relay.app.state.relay.usage.counted()
    return most


@pytest.mark.parametrize(
    ("settings", "size", "taken"), [(quotas(size=10_000), 1_000, 10), (quotas(entries=7), 5, 7)]
)
async def test_a_full_vault_is_told_so_and_another_one_goes_on(
    tmp_path: Path, settings: RelaySettings, size: int, taken: int
) -> None:
    store = LocalStore(tmp_path / "relay")
    async with served(store, settings) as relay:
        full, other = await enrolled(relay.url), await enrolled(relay.url)
        mine, theirs = full.store(relay.url), other.store(relay.url)
        assert await fill(relay, mine, full, size, most=40) == taken
        async with http_client(relay.url, connect=10, idle=10, connections_kept=1) as http:
            reply = await http.put(
                f"/v2/vaults/{full.vault}/objects/mirror/1/9999",
                content=bytes(size),
                headers=full.authorization | {"If-None-Match": "*"},
            )
        assert (reply.status_code, reply.json()["error"]) == (507, "quota")
        assert "Ask the relay's operator" in reply.json()["hint"]
        # It is refused nothing but room.
        assert len((await mine.list(full.prefix)).entries) == taken
        await mine.delete(f"{full.prefix}mirror/1/0000")
        assert await fill(relay, theirs, other, size, most=3) == 3
        await mine.aclose()
        await theirs.aclose()
    await store.aclose()


async def test_deleting_makes_room_again() -> None:
    async with served(MemoryStore(), quotas(entries=4)) as relay:
        usage, clock = relay.app.state.relay.usage, Clock()
        usage._clock = clock
        member = await enrolled(relay.url)
        store = member.store(relay.url)
        assert await fill(relay, store, member, 1, most=10) == 4
        await store.delete(f"{member.prefix}mirror/1/0000")
        clock.now += RECOUNT_SECONDS
        with pytest.raises(QuotaExceeded):  # the refusal that has the vault counted again
            await store.put_new(f"{member.prefix}mirror/1/new", b"x")
        await usage.counted()
        await store.put_new(f"{member.prefix}mirror/1/new", b"x")
        with pytest.raises(QuotaExceeded):
            await store.put_new(f"{member.prefix}mirror/1/newer", b"x")
        await store.aclose()


async def test_a_full_vault_can_still_be_steered_and_emptied() -> None:
    """Cursors say what may be deleted, the device log revokes: they have a little room of their own, which ends too."""
    async with served(MemoryStore(), quotas(entries=64, size=64_000)) as relay:
        member = await enrolled(relay.url)
        device = await joined(relay.url, member)
        store, second = member.store(relay.url), device.store(relay.url)
        assert await fill(relay, store, member, 1_000, most=80) == 64
        await second.put(f"{device.prefix}cursor/{device.device}", b"c")
        await store.put_new(f"{member.prefix}devlog/0", b"d")
        for number in range(1, 10):
            try:
                await store.put_new(f"{member.prefix}devlog/{number}", b"d")
            except QuotaExceeded:
                break
        else:
            pytest.fail("the room beyond the quota has no end")
        await store.aclose()
        await second.aclose()


async def test_what_was_there_before_the_relay_started_counts() -> None:
    store = MemoryStore()
    async with served(store, quotas(entries=5)) as relay:
        member = await enrolled(relay.url)
        client = member.store(relay.url)
        assert await fill(relay, client, member, 1, most=3) == 3
        await client.aclose()
    async with served(store, quotas(entries=5)) as relay:
        client = member.store(relay.url)
        await client.put_new(f"{member.prefix}devlog/0", b"x")
        await relay.app.state.relay.usage.counted()
        await client.put_new(f"{member.prefix}devlog/1", b"x")
        with pytest.raises(QuotaExceeded):
            await client.put_new(f"{member.prefix}mirror/1/9", b"x")
        await client.aclose()


@given(turns=st.lists(st.integers(0, 2), min_size=60, max_size=200), quota=st.integers(8, 48))
@examples(max_examples=60, deadline=None)
def test_several_processes_stay_within_the_documented_tolerance(turns: list[int], quota: int) -> None:
    """n processes over one store: at most (n - 1) eighths of the quota beyond it, and what each lets in while it counts."""

    async def write() -> int:
        store = MemoryStore()
        processes = [Usage(store, quotas(entries=quota)) for _ in range(3)]
        for number, turn in enumerate(turns):
            usage = processes[turn]
            try:
                usage.admit(VAULT, 1)
            except QuotaExceeded:
                continue
            await store.put_new(f"v/{VAULT}/mirror/1/{number:04d}", b"x")
            usage.stored(VAULT, 1)
            await usage.counted()
        for usage in processes:
            await usage.aclose()
        return (await count_usage(store, VAULT)).entries

    assert asyncio.run(write()) <= quota + 2 * -(-quota // GROWTH_SHARE) + 3


async def test_two_relays_on_one_store_fill_a_vault_no_further_than_documented() -> None:
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(served(store, quotas(entries=40))) for _ in range(2)]
        member = await enrolled(relays[0].url)
        clients = [member.store(relay.url) for relay in relays]
        refused = [False, False]
        number = 0
        while not all(refused):
            turn = number % 2
            try:
                await clients[turn].put_new(f"{member.prefix}mirror/1/{number:04d}", b"x")
            except QuotaExceeded:
                refused[turn] = True
            await relays[turn].app.state.relay.usage.counted()
            number += 1
            assert number < 100
        for client in clients:
            await client.aclose()
    assert 40 <= (await count_usage(store, member.vault)).entries <= 40 + 40 // GROWTH_SHARE + 2


class CountingStore(MemoryStore):
    """Counts its listings, and fails some."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.failing = False

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self.lists += 1
        if self.failing:
            raise StoreUnavailable("no answer")
        return await super().list(prefix, after=after, limit=limit)


async def write(usage: Usage, store: MemoryStore, number: int) -> None:
    usage.admit(VAULT, 1)
    await store.put_new(f"v/{VAULT}/mirror/1/{number:06d}", b"x")
    usage.stored(VAULT, 1)


async def test_counting_costs_few_operations_however_often_a_full_vault_is_tried() -> None:
    store, clock = CountingStore(), Clock()
    usage = Usage(store, quotas(entries=800), clock=clock)
    number = 0
    while True:
        try:
            await write(usage, store, number)
        except QuotaExceeded:
            break
        number += 1
        await usage.counted()
    assert number == 800
    assert store.lists <= GROWTH_SHARE + 4
    before = store.lists
    for _ in range(3600):
        clock.now += 1
        with pytest.raises(QuotaExceeded):
            usage.admit(VAULT, 1)
        await usage.counted()
    assert store.lists - before <= 3600 / min(RECOUNT_SECONDS, RECOUNT_PAGE_SECONDS) / 2 + 1


async def test_a_count_is_renewed_after_a_day_and_a_listing_that_fails_is_tried_again() -> None:
    store, clock = CountingStore(), Clock()
    usage = Usage(store, quotas(entries=100), clock=clock)
    store.failing = True
    await write(usage, store, 0)
    await usage.counted()
    await write(usage, store, 1)  # what is not known refuses nothing
    await usage.counted()
    assert store.lists == 1
    store.failing = False
    clock.now += RECOUNT_SECONDS
    await write(usage, store, 2)
    await usage.counted()
    lists = store.lists
    await write(usage, store, 3)
    await usage.counted()
    assert store.lists == lists
    clock.now += COUNT_AGE_SECONDS_MAX + 1
    await write(usage, store, 4)
    await usage.counted()
    assert store.lists > lists
    assert await count_usage(store, VAULT) == VaultUsage(5, 5)
    await usage.aclose()


async def test_no_quota_means_no_listing() -> None:
    store = CountingStore()
    usage = Usage(store, quotas())
    for number in range(50):
        await write(usage, store, number)
    await usage.counted()
    assert store.lists == 0


async def test_a_body_that_is_refused_for_the_quota_is_not_read() -> None:
    async with served(MemoryStore(), quotas(size=1_000)) as relay:
        member = await enrolled(relay.url)
        store = member.store(relay.url)
        await store.put_new(f"{member.prefix}mirror/1/0", bytes(1_000))
        await relay.app.state.relay.usage.counted()
        async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as http:
            reply = await http.put(
                f"/v2/vaults/{member.vault}/objects/blob/large",
                content=bytes(8 * 1024 * 1024),
                headers=member.authorization | {"If-None-Match": "*"},
            )
        assert reply.status_code == 507
        await store.aclose()


def test_serve_takes_its_quotas_from_the_command_line(tmp_path: Path) -> None:
    with running_relay(tmp_path / "relay", options=("--quota-entries", "1")) as relay:
        asyncio.run(_fill_one(relay.url, relay.enroll_token))


async def _fill_one(url: str, enroll_token: str) -> None:
    member = await enrolled(url, enroll_token=enroll_token)
    store = member.store(url)
    taken = 0
    for number in range(200):
        try:
            await store.put_new(f"{member.prefix}mirror/1/{number:03d}", b"x")
            taken += 1
        except QuotaExceeded:
            break
    assert 1 <= taken <= 5, "a few may come while the vault is counted"
    await store.aclose()


async def test_all_vaults_together_stop_at_the_relays_cap_and_reading_goes_on() -> None:
    store = MemoryStore()
    async with served(store, replace(quotas(), cap_bytes=20_000)) as relay:
        one, other = await enrolled(relay.url), await enrolled(relay.url)
        running = relay.app.state.relay
        clients = [member.store(relay.url) for member in (one, other)]
        await running.cap.counted()
        for client, member in zip(clients, (one, other), strict=True):
            await client.put_new(f"{member.prefix}blob/a", bytes(9_000))
            await running.cap.counted()
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{relay.url}/health/ready")).json() == {"ok": True}
        await clients[1].put_new(f"{other.prefix}blob/fits", bytes(2_000))
        with pytest.raises(RelayAtCap):
            await clients[0].put_new(f"{one.prefix}blob/b", bytes(9_000))
        await running.cap.counted()
        with pytest.raises(RelayAtCap) as refused:
            await clients[1].put_new(f"{other.prefix}blob/b", bytes(9_000))
        assert "20000 bytes of the 20000 that its operator allows" in str(refused.value)
        shown = store_failure(refused.value)
        assert (shown.exit_code, shown.hint) == (8, refused.value.hint)
        assert len(await (await clients[0].get(f"{one.prefix}blob/a")).read()) == 9_000
        await clients[0].put(f"{one.prefix}cursor/{one.device}", bytes(100))  # as with a quota, a 64th more
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"{relay.url}/health/ready")
        assert (ready.status_code, ready.json()) == (200, {"ok": True, "full": "cap"})
        assert (running.usage.refused_by_cap, running.usage.refused) == (2, 0)
        for client in clients:
            await client.aclose()


async def test_a_relay_that_starts_at_its_cap_knows_it_before_the_first_write() -> None:
    store = MemoryStore()
    await store.put_new(f"v/{'ab' * 16}/blob/a", bytes(20_000))
    async with served(store, replace(quotas(), cap_bytes=20_000)) as relay:
        await relay.app.state.relay.cap.counted()
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        with pytest.raises(RelayAtCap):
            await client.put_new(f"{lead.prefix}blob/a", b"x")
        await client.aclose()


async def test_a_relay_at_its_cap_finds_the_room_that_another_process_has_made() -> None:
    """Within a minute here, and within a second for each 1,000 objects of a larger one."""
    store, now = MemoryStore(), 1_000.0
    for number in range(4_000):
        await store.put_new(f"v/{'ab' * 16}/blob/{number}", bytes(10))
    cap = RelayUsage(store, RelaySettings(cap_bytes=40_000), clock=lambda: now)
    cap.count()
    await cap.counted()
    with pytest.raises(RelayAtCap):
        cap.admit(ALL_VAULTS, 10)
    for number in range(1_000):
        await store.delete(f"v/{'ab' * 16}/blob/{number}")
    now += RECOUNT_SECONDS
    with pytest.raises(RelayAtCap):
        cap.admit(ALL_VAULTS, 10)  # and counts again
    await cap.counted()
    cap.admit(ALL_VAULTS, 10)


@pytest.mark.parametrize("first", [1_000, 0])
async def test_a_quota_that_changes_while_the_last_one_is_read_counts(first: int) -> None:
    store, quota = MemoryStore(), first
    reading, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()

    async def quota_of(vault: str) -> int:
        read = quota
        reading.set()
        await go_on.wait()
        return read

    usage = Usage(store, RelaySettings(quota_bytes=first, quota_entries=0), quota_of=quota_of)
    usage.admit(VAULT, 100)
    await usage.counted()
    quota = 1_000 * first
    usage.quota_changed(VAULT)
    reading.clear()
    go_on.clear()
    usage.admit(VAULT, 100)
    await reading.wait()
    quota = 50
    usage.quota_changed(VAULT)
    go_on.set()
    await usage.counted()
    usage.admit(VAULT, 10)
    await usage.counted()
    with pytest.raises(QuotaExceeded):
        usage.admit(VAULT, 100)
