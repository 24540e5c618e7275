"""The long-polls of a device become one while its vault rests, and no write is missed."""

import asyncio
import random
import time
from collections import Counter

import pytest

from crystal_node.device.device import opened
from crystal_node.sync import shared_wait
from crystal_node.sync.shared_wait import SharedWait
from crystal_node.sync.syncer import Syncer
from crystal_relay.memory import MemoryStore
from tests.support.invited import settings_of
from tests.support.machine import Vault

_VAULT = "vault/5a/"
_PREFIXES = ("devlog/", "mirror/", "cursor/", "commands/")
_SECONDS = 0.1
_REACHED_SECONDS_MAX = 5.0


class _Relay:
    """A vault in a store, whose waits are counted."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.begun: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self._number = 0
        self.moved = asyncio.Event()

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        if seconds:
            self.begun[prefix] += 1
        self.waiting[prefix] += 1
        self.moved.set()
        try:
            return await self.store.wait(_VAULT + prefix, token=token, timeout=seconds)
        finally:
            self.waiting[prefix] -= 1
            self.moved.set()

    async def write(self, prefix: str) -> None:
        self._number += 1
        await self.store.put(f"{_VAULT}{prefix}{self._number:04}", b"x")


class _Device:
    """Polls each prefix again and again, and counts what it was woken for."""

    def __init__(self, relay: _Relay) -> None:
        self.waits = SharedWait(relay.wait, "")
        self.woken: Counter[str] = Counter()
        self.moved = asyncio.Event()
        self.polls = [asyncio.create_task(self._poll(prefix)) for prefix in _PREFIXES]

    async def _poll(self, prefix: str) -> None:
        token: str | None = None
        while True:
            fresh = await self.waits.wait(prefix, token, _SECONDS)
            self.woken[prefix] += fresh != token
            self.moved.set()
            token = fresh

    async def woken_for(self, prefix: str, before: int) -> None:
        async with asyncio.timeout(_SECONDS / 2):
            while self.woken[prefix] == before:
                self.moved.clear()
                await self.moved.wait()

    async def aclose(self) -> None:
        for poll in self.polls:
            poll.cancel()
        await asyncio.gather(*self.polls, return_exceptions=True)
        self.waits.close()


@pytest.fixture(autouse=True)
def soon_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_wait, "SETTLED_SECONDS", _SECONDS / 2)


async def _until(relay: _Relay, *, shared: bool) -> None:
    async with asyncio.timeout(_REACHED_SECONDS_MAX):
        while (set(+relay.waiting) == {""}) != shared:
            relay.moved.clear()
            await relay.moved.wait()


async def test_a_vault_at_rest_costs_one_poll() -> None:
    relay = _Relay()
    device = _Device(relay)
    await _until(relay, shared=True)
    relay.begun.clear()
    await asyncio.sleep(_SECONDS * 4)
    assert set(relay.begun) <= {""}
    assert 1 <= relay.begun[""] <= 5
    await device.aclose()


async def test_a_write_wakes_who_waits_for_it_and_nobody_else() -> None:
    relay = _Relay()
    device = _Device(relay)
    for prefix in _PREFIXES:
        await _until(relay, shared=True)
        before = device.woken.copy()
        await relay.write(prefix)
        await device.woken_for(prefix, before[prefix])
        assert device.woken - before == Counter({prefix: 1})
    await device.aclose()


async def test_a_write_that_concerns_nobody_wakes_nobody() -> None:
    relay = _Relay()
    device = _Device(relay)
    await _until(relay, shared=True)
    before = device.woken.copy()
    await relay.write("stream/")
    await _until(relay, shared=False)
    await _until(relay, shared=True)
    assert device.woken == before
    await device.aclose()


async def test_no_write_is_missed_at_whatever_moment_it_comes() -> None:
    """Also between two polls, while the shared one begins or ends, and while tokens are asked for."""
    relay = _Relay()
    device = _Device(relay)
    await asyncio.sleep(0.01)
    rng = random.Random(5)
    for _ in range(60):
        await asyncio.sleep(rng.uniform(0, _SECONDS * 3.2))
        prefix = rng.choice(_PREFIXES)
        before = device.woken[prefix]
        await relay.write(prefix)
        await device.woken_for(prefix, before)
    await device.aclose()


async def test_a_poll_that_was_given_up_does_not_hold_the_others_on_its_connection() -> None:
    """A device that slept gives its polls up, because their connections may be dead."""
    relay = _Relay()
    device = _Device(relay)
    await _until(relay, shared=True)
    relay.begun.clear()
    device.polls.pop().cancel()
    await asyncio.sleep(_SECONDS / 10)
    assert relay.begun[""] >= 1
    assert relay.waiting[""] == 1
    await device.aclose()


async def test_a_failure_reaches_all_who_wait_and_a_relay_that_is_back_serves_them() -> None:
    relay = _Relay()
    device = _Device(relay)
    await _until(relay, shared=True)
    await relay.store.aclose()
    done, _ = await asyncio.wait(device.polls, timeout=_REACHED_SECONDS_MAX)
    assert len(done) == len(_PREFIXES)
    assert all(poll.exception() is not None for poll in done)
    relay.store = MemoryStore()  # knows none of the tokens
    fresh = await device.waits.wait("mirror/", "unknown", _REACHED_SECONDS_MAX)
    assert fresh != "unknown"
    await device.aclose()


async def test_a_relay_that_answers_each_wait_at_once_is_not_asked_without_end() -> None:
    asked = 0

    async def answered_at_once(prefix: str, token: str | None, seconds: float) -> str:
        nonlocal asked
        asked += 1
        return "the same"

    waits = SharedWait(answered_at_once, "")
    began = time.monotonic()
    for _ in range(3):
        assert await waits.wait("mirror/", "the same", _SECONDS) == "the same"
    assert time.monotonic() - began >= 3 * _SECONDS
    assert asked <= 2 * 3, "a wait each, and now and then a new token"
    waits.close()


async def test_a_device_waits_so_at_its_relay(vault: Vault) -> None:
    """The relay's client takes the names of its vault alone."""
    with opened(settings_of(vault.core)) as device:
        async with device.online() as store:
            syncer = Syncer(device, store, purpose="a test")
            keys = device.member.keys
            tokens = {
                prefix: await syncer.wait(prefix, None, 0) for prefix in (keys.log_prefix, keys.mirror_prefix)
            }
            for _ in range(4):
                for prefix, token in tokens.items():
                    assert await syncer.wait(prefix, token, _SECONDS) == token
            waiting = asyncio.create_task(syncer.wait(keys.mirror_prefix, tokens[keys.mirror_prefix], 10.0))
            await asyncio.sleep(_SECONDS)
            await store.put_new(keys.mirror(1, 0), b"written by another device")
            async with asyncio.timeout(5.0):
                assert await waiting != tokens[keys.mirror_prefix]
            syncer.close()
