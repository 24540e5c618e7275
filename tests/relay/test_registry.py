"""The registry's memory: how long what was looked up counts, and what is never overtaken by it."""

import msgspec
import pytest

from crystal_relay.errors import Forbidden, Unauthorized
from crystal_relay.memory import MemoryStore
from crystal_relay.server.registry import Registry
from crystal_relay.store import Object
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
