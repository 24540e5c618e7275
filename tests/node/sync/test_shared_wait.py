"""The long-polls of a device become one while its vault rests, and no write is missed."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from crystal_node.base.clock import now_ms
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
        self.held = 0
        self.breaks, self.ends = asyncio.Event(), asyncio.Event()
        self.is_deaf = False
        """No blank of a held wait arrives."""

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

    async def hold(self, prefix: str, token: str, seconds: float, heard: Callable[[], None]) -> str | None:
        self.held += 1
        until = time.monotonic() + seconds
        self.waiting[prefix] += 1
        self.moved.set()
        try:
            while (left := until - time.monotonic()) > 0 and not (self.breaks.is_set() or self.ends.is_set()):
                fresh = await self.store.wait(_VAULT + prefix, token=token, timeout=min(left, _SECONDS / 5))
                if fresh != token:
                    return fresh
                if not self.is_deaf:
                    heard()
            return None if self.breaks.is_set() else token
        finally:
            self.waiting[prefix] -= 1
            self.moved.set()

    async def write(self, prefix: str) -> None:
        self._number += 1
        await self.store.put(f"{_VAULT}{prefix}{self._number:04}", b"x")


class _Device:
    """Polls each prefix again and again, and counts what it was woken for."""

    def __init__(self, relay: _Relay, *, holds: bool = False) -> None:
        self.waits = SharedWait(relay.wait, "", relay.hold if holds else None)
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


async def _held(relay: _Relay, *, count: int = 1) -> None:
    async with asyncio.timeout(_REACHED_SECONDS_MAX):
        while relay.held < count or not relay.waiting[""]:
            relay.moved.clear()
            await relay.moved.wait()


async def test_a_held_wait_takes_the_place_of_all_polls() -> None:
    relay = _Relay()
    device = _Device(relay, holds=True)
    await _held(relay)
    await _until(relay, shared=True)
    relay.begun.clear()
    await asyncio.sleep(_SECONDS * 5)
    assert not relay.begun
    assert relay.held == 1
    before = device.woken["mirror/"]
    await relay.write("mirror/")
    await device.woken_for("mirror/", before)
    await device.aclose()


async def test_a_held_wait_is_begun_again_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_wait, "HELD_SECONDS", _SECONDS)
    monkeypatch.setattr(shared_wait, "EARLY_SECONDS", 0.0)
    relay = _Relay()
    device = _Device(relay, holds=True)
    await _held(relay, count=3)
    assert not relay.begun[""]
    await device.aclose()


@pytest.mark.parametrize("gives_up", ["after a silence", "by itself"])
async def test_where_no_blank_arrives_polls_are_used_for_a_good_while(
    gives_up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy collects answers; or a relay holds no waits, and returns the token before the time is over."""
    monkeypatch.setattr(shared_wait, "POLLS_AFTER_BREAK_SECONDS", 0.0)
    monkeypatch.setattr(shared_wait, "HEARD_SECONDS", _SECONDS / 2)
    monkeypatch.setattr(shared_wait, "_BLANK_SECONDS_MIN", _SECONDS / 2)
    relay = _Relay()
    relay.is_deaf = True
    device = _Device(relay, holds=True)
    await _held(relay)
    await asyncio.sleep(_SECONDS)
    (relay.breaks if gives_up == "after a silence" else relay.ends).set()
    await _until(relay, shared=True)
    await asyncio.sleep(_SECONDS * 4)
    assert relay.held == 1
    assert relay.begun[""] >= 1
    assert set(+relay.waiting) == {""}
    await device.aclose()


@pytest.mark.parametrize("how", ["broken off", "by a relay that stops", "before a blank was due"])
async def test_a_held_wait_that_breaks_off_is_tried_again_soon(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_wait, "POLLS_AFTER_BREAK_SECONDS", _SECONDS * 2)
    relay = _Relay()
    relay.is_deaf = how == "before a blank was due"
    device = _Device(relay, holds=True)
    await _held(relay)
    await asyncio.sleep(_SECONDS)
    ending = relay.breaks if how == "broken off" else relay.ends
    ending.set()
    await asyncio.sleep(_SECONDS / 2)
    ending.clear()
    assert relay.begun[""], "polls meanwhile"
    await _held(relay, count=2)
    await device.aclose()


async def test_no_write_is_missed_while_held_waits_begin_end_and_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_wait, "HELD_SECONDS", _SECONDS * 2)
    monkeypatch.setattr(shared_wait, "POLLS_SECONDS", _SECONDS)
    monkeypatch.setattr(shared_wait, "POLLS_AFTER_BREAK_SECONDS", _SECONDS)
    relay = _Relay()
    device = _Device(relay, holds=True)
    rng = random.Random(7)
    for _ in range(60):
        (relay.breaks.set if rng.random() < 0.2 else relay.breaks.clear)()
        await asyncio.sleep(rng.uniform(0, _SECONDS * 3.2))
        prefix = rng.choice(_PREFIXES)
        before = device.woken[prefix]
        await relay.write(prefix)
        await device.woken_for(prefix, before)
    assert relay.held > 5
    await device.aclose()


async def test_while_a_held_wait_stands_a_round_asks_only_once_whether_anything_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay = _Relay()
    device = _Device(relay, holds=True)
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        return await relay.wait("", token, 0)

    token = await relay.wait("", None, 0)
    for expected in (1, 2):  # until then nothing shows it
        assert await device.waits.poll("", token, ask) == token
        assert asked == expected
    await _held(relay)
    await asyncio.sleep(_SECONDS)
    for _ in range(3):
        assert await device.waits.poll("", token, ask) == token
        assert asked == 3
    await device.waits.poll("mirror/", token, ask)
    assert asked == 4, "it answers for the vault alone"
    older, token = token, "older"
    assert await device.waits.poll("", token, ask) != token
    assert asked == 5, "the answer is for one token"
    token = older
    for _ in range(2):
        assert await device.waits.poll("", token, ask) == token
    assert asked == 6
    # It cannot know whether a connection that has fallen silent is still there.
    relay.is_deaf = True
    with monkeypatch.context() as short:
        short.setattr(shared_wait, "HEARD_SECONDS", _SECONDS / 10)
        await asyncio.sleep(_SECONDS / 2)
        await device.waits.poll("", token, ask)
    assert asked == 7
    relay.is_deaf = False
    await asyncio.sleep(_SECONDS / 2)
    for _ in range(2):
        await device.waits.poll("", token, ask)
    assert asked == 8
    # Nor after this machine slept, whatever the other clock says.
    with monkeypatch.context() as later:
        later.setattr(shared_wait, "now_ms", lambda: now_ms() + 3_600_000)
        await device.waits.poll("", token, ask)
    assert asked == 9
    await relay.write("stream/")
    await asyncio.sleep(_SECONDS / 10)
    assert await device.waits.poll("", token, ask) != token
    await device.aclose()


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
