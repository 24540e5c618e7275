"""The registry's memory: how long what was looked up counts, and what is never overtaken by it."""

import asyncio
from collections import Counter

import msgspec
import pytest

from crystal_relay.errors import Forbidden, StoreUnavailable, Unauthorized, VaultSuspended
from crystal_relay.memory import MemoryStore
from crystal_relay.server.registry import Registry, hash_of
from crystal_relay.server.scopes import TokenScope
from crystal_relay.server.settings import LOOKUPS_OF_ADDRESS_MAX
from crystal_relay.server.vault_terms import VaultAccess, VaultTerms
from crystal_relay.store import Object, Page
from crystal_relay.tokens import Preset, new_token, token_hash
from crystal_relay.wire import TokenRegistration, VaultCreation


async def test_a_revocation_by_another_process_counts_after_the_cache_at_the_latest() -> None:
    store, now = MemoryStore(), 0.0
    one = Registry(store, cache_seconds=10, clock=lambda: now)
    other = Registry(store, cache_seconds=10, clock=lambda: now)
    token = new_token("0" * 32)
    await one.create_vault(VaultCreation("a" * 32, "b" * 64, "0" * 32, token_hash(token)))
    await one.identify("a" * 32, "0" * 32, token)
    await other.revoke("a" * 32, "0" * 32, None)
    now = 9.9
    await one.identify("a" * 32, "0" * 32, token)
    now = 10.0
    with pytest.raises(Unauthorized):
        await one.identify("a" * 32, "0" * 32, token)


async def test_a_slow_look_up_does_not_make_an_answer_younger() -> None:
    now = 0.0
    token = new_token("0" * 32)
    name = ("a" * 32, "0" * 32, token_hash(token))

    class Slow(MemoryStore):
        """Each read takes nine seconds, and what is read is as old as the question."""

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            nonlocal now
            now += 9
            return await super().get(key, start=start, length=length)

    store = Slow()
    one = Registry(store, cache_seconds=10, clock=lambda: now)
    other = Registry(store, cache_seconds=10, clock=lambda: now)
    await one.create_vault(VaultCreation("a" * 32, "b" * 64, "0" * 32, token_hash(token)))
    await one.identify("a" * 32, "0" * 32, token)
    await other.revoke(*name)
    with pytest.raises(Unauthorized):
        await one.identify("a" * 32, "0" * 32, token)


async def test_a_revocation_during_a_look_up_is_not_overtaken_by_the_cache() -> None:
    token = new_token("0" * 32)
    name = ("a" * 32, "0" * 32, token_hash(token))

    class RevokedMeanwhile(MemoryStore):
        """Between the look at the token and the answer, the token is shut out."""

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            try:
                return await super().get(key, start=start, length=length)
            finally:
                if "/revoked/" in key:
                    await registry.revoke(*name)

    store = RevokedMeanwhile()
    registry = Registry(store, cache_seconds=1000)
    await store.put_new(
        f"r/vault/{name[0]}/token/{name[1]}/{name[2]}",
        msgspec.json.encode({"version": 1, "token_hash": name[2], "preset": "device"}),
    )
    await registry.identify(name[0], name[1], token)  # began before the revocation
    with pytest.raises(Unauthorized):
        await registry.identify(name[0], name[1], token)


async def test_registering_and_revoking_in_any_order_ends_revoked() -> None:
    for revoke_first in (True, False):
        registry = Registry(MemoryStore(), cache_seconds=0)
        token = new_token("0" * 32)
        register = TokenRegistration("0" * 32, token_hash(token), Preset.DEVICE)
        if not revoke_first:
            await registry.register("a" * 32, register)
        await registry.revoke("a" * 32, "0" * 32, token_hash(token))
        with pytest.raises(Forbidden):
            await registry.register("a" * 32, register)
        with pytest.raises(Unauthorized):
            await registry.identify("a" * 32, "0" * 32, token)


class Counted(MemoryStore):
    """Counts what is asked of it. `deletions_left`: it fails after so many; None for never."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.deletions_left: int | None = None

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self.asked["get"] += 1
        await asyncio.sleep(0)
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self.asked["list"] += 1
        await asyncio.sleep(0)
        return await super().list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        if self.deletions_left is not None:
            if not self.deletions_left:
                raise StoreUnavailable("the process ended here")
            self.deletions_left -= 1
        await super().delete(key)


VAULT, CORE, NODE = "a" * 32, "0" * 32, "1" * 32


async def test_a_look_up_lists_nothing_once_the_vault_is_known_and_all_who_ask_at_once_share_it() -> None:
    store, now = Counted(), 0.0
    registry = Registry(store, cache_seconds=10, clock=lambda: now)
    token = new_token(CORE)
    await registry.create_vault(VaultCreation(VAULT, "b" * 64, CORE, token_hash(token)))
    await registry.identify(VAULT, CORE, token)
    for number, reads in ((0, 5), (1, 6)):  # without a naming, and with one
        store.asked.clear()
        now += 10
        found = await asyncio.gather(*(registry.identify(VAULT, CORE, token) for _ in range(20)))
        assert len(set(map(id, found))) == 1
        assert store.asked == {"get": reads}
        await registry.name_leads(VAULT, frozenset({CORE}), after=number)
        await registry.identify(VAULT, CORE, token)


async def household(registry: Registry, nodes: int) -> dict[str, str]:
    """A vault with a Core and so many Nodes; their tokens by device."""
    tokens = {device: new_token(device) for device in (CORE, *(f"{n}" * 32 for n in range(1, nodes + 1)))}
    await registry.create_vault(VaultCreation(VAULT, "b" * 64, CORE, token_hash(tokens[CORE])))
    for device, token in tokens.items():
        if device != CORE:
            await registry.register(VAULT, TokenRegistration(device, token_hash(token), Preset.DEVICE))
    return tokens


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_devices_of_a_vault_share_what_a_look_up_reads_of_the_vault(at_once: bool) -> None:
    store, now = Counted(), 0.0
    registry = Registry(store, cache_seconds=10, clock=lambda: now)
    tokens = await household(registry, 9)
    await registry.name_leads(VAULT, frozenset({CORE}), after=0)
    for device, token in tokens.items():  # at any moment of the time for which an answer counts
        now += 1
        await registry.identify(VAULT, device, token)
    for _ in range(3):
        now += 10
        store.asked.clear()
        if at_once:
            await asyncio.gather(*(registry.identify(VAULT, *each) for each in tokens.items()))
        else:
            for device, token in tokens.items():
                await registry.identify(VAULT, device, token)
        assert store.asked == {"get": 4 + 2 + 9 * 3}, "the vault's, the Core's, a Node's"


async def test_what_devices_share_is_never_older_than_an_answer_may_be() -> None:
    store, now = MemoryStore(), 0.0
    one, other = (Registry(store, cache_seconds=10, clock=lambda: now) for _ in range(2))
    tokens = await household(one, 1)
    await one.identify(VAULT, CORE, tokens[CORE])
    await VaultTerms(store).set_access(VAULT, VaultAccess.SUSPENDED)
    await other.name_leads(VAULT, frozenset({NODE}), after=0)
    now = 9.0
    assert TokenScope.MIRROR not in (await one.identify(VAULT, NODE, tokens[NODE])).scopes
    now = 10.0
    for device in (CORE, NODE):
        with pytest.raises(VaultSuspended):
            await one.identify(VAULT, device, tokens[device])
    await VaultTerms(store).set_access(VAULT, VaultAccess.OPEN)
    for device in (CORE, NODE):
        leads = TokenScope.MIRROR in (await one.identify(VAULT, device, tokens[device])).scopes
        assert leads is (device == NODE)


async def test_many_devices_of_a_vault_are_not_all_looked_up_again_at_the_same_moment() -> None:
    """Each waits for a fifth of the time for which an answer counts. A write may wake all of them at any moment."""
    store, now = MemoryStore(), 0
    one, other = (Registry(store, cache_seconds=100, clock=lambda: now) for _ in range(2))
    await household(one, 0)
    devices = [f"{number:032x}" for number in range(1, 2 * LOOKUPS_OF_ADDRESS_MAX)]
    tokens = {device: f"{device}.{hash_of(device)[:43]}" for device in devices}
    for device, token in tokens.items():
        await one.register(VAULT, TokenRegistration(device, hash_of(token), Preset.DEVICE))
        await one.identify(VAULT, device, token)
    asked = Counter[bool]()
    for now in range(1, 400):
        forgotten = sum(one.known(VAULT, *each) is None for each in tokens.items())
        assert forgotten < LOOKUPS_OF_ADDRESS_MAX, now
        for each in list(tokens.items())[now % 20 :: 20]:
            asked[one.known(VAULT, *each) is None] += 1
            await one.identify(VAULT, *each)
    assert asked[True] < asked[False] / 2, "an answer still counts for a while"
    await other.retain(VAULT, {})
    now += 100
    assert all(one.known(VAULT, *each) is None for each in tokens.items())


async def test_what_devices_share_is_read_again_once_this_process_hears_of_a_change() -> None:
    store = MemoryStore()
    registry = Registry(store, cache_seconds=10)
    tokens = await household(registry, 1)
    await registry.identify(VAULT, CORE, tokens[CORE])
    for number, heard in enumerate((VAULT, None)):
        named = (NODE, CORE)[number]
        await Registry(store, cache_seconds=10).name_leads(VAULT, frozenset({named}), after=number)
        registry.forget(heard)
        for device in (CORE, NODE):
            leads = TokenScope.MIRROR in (await registry.identify(VAULT, device, tokens[device])).scopes
            assert leads is (device == named)


async def test_a_device_that_leads_by_a_naming_which_this_process_has_not_heard_of_is_let_lead() -> None:
    store = MemoryStore()
    one, other = (Registry(store, cache_seconds=10) for _ in range(2))
    tokens = await household(one, 1)
    await one.identify(VAULT, CORE, tokens[CORE])
    await other.name_leads(VAULT, frozenset({CORE}), after=0)
    late = new_token("2" * 32)
    registration = TokenRegistration("2" * 32, token_hash(late), Preset.LEAD)
    await other.register(VAULT, registration, number=1)
    assert TokenScope.MIRROR in (await one.identify(VAULT, "2" * 32, late)).scopes


async def test_a_device_that_leads_by_a_naming_of_meanwhile_is_not_answered_by_a_look_of_before() -> None:
    class Slow(MemoryStore):
        """A look at the vault's terms waits: it comes after the one at who leads."""

        gate = asyncio.Event()
        waiting = 0

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            if key.endswith("/terms"):
                self.waiting += 1
                await self.gate.wait()
            return await super().get(key, start=start, length=length)

    store = Slow()
    one, other = (Registry(store, cache_seconds=10) for _ in range(2))
    tokens = await household(one, 1)
    first = asyncio.create_task(one.identify(VAULT, CORE, tokens[CORE]))
    while not store.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await other.name_leads(VAULT, frozenset({CORE}), after=0)
    late = [(f"{n}" * 32, new_token(f"{n}" * 32)) for n in (2, 3)]
    for device, token in late:
        await other.register(VAULT, TokenRegistration(device, token_hash(token), Preset.LEAD), number=1)
    asked = [asyncio.create_task(one.identify(VAULT, *each)) for each in late]
    for _ in range(20):
        await asyncio.sleep(0)
    store.gate.set()
    await first
    assert all(TokenScope.MIRROR in found.scopes for found in await asyncio.gather(*asked))
    assert store.waiting == 2, "those who came too late share one more look"


async def test_who_takes_part_in_a_look_up_outlives_the_one_who_began_it() -> None:
    store = Counted()
    registry = Registry(store, cache_seconds=10)
    token = new_token(CORE)
    await registry.create_vault(VaultCreation(VAULT, "b" * 64, CORE, token_hash(token)))
    first, *others = [asyncio.create_task(registry.identify(VAULT, CORE, token)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert [(await each).device for each in others] == [CORE, CORE]
    stranger = new_token(CORE)
    refused = [asyncio.create_task(registry.identify(VAULT, CORE, stranger)) for _ in range(3)]
    for each in await asyncio.gather(*refused, return_exceptions=True):
        assert isinstance(each, Unauthorized)


@pytest.mark.parametrize("namings", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("deletions", [0, 1, 2, None])
async def test_who_leads_is_known_by_reads_though_another_process_that_names_breaks_off(
    namings: int, deletions: int | None
) -> None:
    store, now = Counted(), 0.0
    one, other = (Registry(store, cache_seconds=10, clock=lambda: now) for _ in range(2))
    tokens = {device: new_token(device) for device in (CORE, NODE)}
    await one.create_vault(VaultCreation(VAULT, "b" * 64, CORE, token_hash(tokens[CORE])))
    await one.register(VAULT, TokenRegistration(NODE, token_hash(tokens[NODE]), Preset.LEAD))
    for number in range(namings):
        await other.name_leads(VAULT, frozenset({CORE, NODE}), after=number)
    assert TokenScope.MIRROR in (await one.identify(VAULT, NODE, tokens[NODE])).scopes
    for number in range(namings, namings + 4):
        store.deletions_left = deletions
        try:
            await other.name_leads(VAULT, frozenset({(CORE, NODE)[number % 2]}), after=number)
        except StoreUnavailable:
            assert deletions is not None
        store.deletions_left = None
        now += 10
        for device in (CORE, NODE):
            leads = TokenScope.MIRROR in (await one.identify(VAULT, device, tokens[device])).scopes
            assert leads is (device == (CORE, NODE)[number % 2])


@pytest.mark.parametrize("known", [0, 1, 2, 3])
@pytest.mark.parametrize("meanwhile", [2, 3])
async def test_who_leads_is_known_though_several_namings_came_between_two_look_ups(
    known: int, meanwhile: int
) -> None:
    """The other process could not tell this one of any of them."""
    store, now = MemoryStore(), 0.0
    one, other = (Registry(store, cache_seconds=10, clock=lambda: now) for _ in range(2))
    tokens = {device: new_token(device) for device in (CORE, NODE)}
    await one.create_vault(VaultCreation(VAULT, "b" * 64, CORE, token_hash(tokens[CORE])))
    await one.register(VAULT, TokenRegistration(NODE, token_hash(tokens[NODE]), Preset.DEVICE))
    for number in range(known):
        await other.name_leads(VAULT, frozenset({CORE}), after=number)
    assert TokenScope.MIRROR in (await one.identify(VAULT, CORE, tokens[CORE])).scopes
    for number in range(known, known + meanwhile):
        await other.name_leads(VAULT, frozenset({NODE}), after=number)
    now += 10
    for device in (CORE, NODE):
        leads = TokenScope.MIRROR in (await one.identify(VAULT, device, tokens[device])).scopes
        assert leads is (device == NODE)
