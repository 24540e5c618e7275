"""Relay processes over one store: a wait at one is woken by a write at another, whatever happens to either."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from crystal_relay.errors import Unauthorized
from crystal_relay.limits import WAIT_TOKEN_CHARS_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import waits
from crystal_relay.server.peers import PeerTimes
from crystal_relay.store import Store
from crystal_relay.tokens import token_hash
from tests.support.processes import QUICK, RunningProcess, eventually, process
from tests.support.relay_server import Member, enrolled, joined

SLOW = PeerTimes(heartbeat=60, greeting=1.0, announcement=1.0, farewell=1.0)
"""Nothing is told but what is written."""


async def fleet(stack: AsyncExitStack, count: int, times: PeerTimes = QUICK) -> list[RunningProcess]:
    shared = MemoryStore()
    processes = [await stack.enter_async_context(process(shared, times=times)) for _ in range(count)]
    for one in processes:
        await eventually(lambda one=one: one.peers.status().reached == count - 1)
    return processes


async def asleep(at: RunningProcess, count: int) -> None:
    await eventually(lambda: at.store.notifier.waiting == count)


def key(member: Member, number: int) -> str:
    return f"{member.prefix}conversations/{member.device}.{'0' * 16}/{number:020d}"


async def test_a_wait_at_one_process_is_woken_by_a_write_at_another() -> None:
    async with AsyncExitStack() as stack:
        processes = await fleet(stack, 3, SLOW)
        lead = await enrolled(processes[0].url)
        stores = [lead.store(each.url) for each in processes]
        token = await stores[0].wait(lead.prefix, token=None, timeout=0)
        number = 0
        for writer in range(3):
            for reader in range(3):
                token = await _settled(stores[reader], lead, token)
                wait = asyncio.create_task(stores[reader].wait(lead.prefix, token=token, timeout=30))
                await asleep(processes[reader], 1)
                began = time.monotonic()
                await stores[writer].put_new(key(lead, number), b"x")
                woken = await asyncio.wait_for(wait, 5)
                assert woken != token
                assert time.monotonic() - began < 5
                token, number = woken, number + 1
        for store in stores:
            await store.aclose()


async def _settled(store: Store, lead: Member, token: str) -> str:
    """The token once nothing is new any more."""
    for _ in range(4):
        fresh = await store.wait(lead.prefix, token=token, timeout=0.05)
        if fresh == token:
            return fresh
        token = fresh
    raise AssertionError("woken again and again for nothing")


async def test_a_client_that_is_sent_elsewhere_each_time_is_woken_once_for_each_write() -> None:
    async with AsyncExitStack() as stack:
        processes = await fleet(stack, 4)
        lead = await enrolled(processes[0].url)
        stores = [lead.store(each.url) for each in processes]
        token = await stores[0].wait(lead.prefix, token=None, timeout=0)
        woken = 0
        writes = 12
        for number in range(writes):
            await stores[number % 3].put_new(key(lead, number), b"x")
            for turn in range(6):
                fresh = await stores[(number + turn) % 4].wait(lead.prefix, token=token, timeout=0.05)
                woken += fresh != token
                token = fresh
        # A process of which the token says nothing yet is one more, the first time.
        assert writes <= woken <= writes + 4
        assert len(token) <= WAIT_TOKEN_CHARS_MAX
        for store in stores:
            await store.aclose()


async def test_another_vaults_writes_elsewhere_wake_nobody() -> None:
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        lead, stranger = await enrolled(one.url), await enrolled(one.url)
        reader, writer = lead.store(one.url), stranger.store(other.url)
        token = await _settled(reader, lead, "")
        wait = asyncio.create_task(reader.wait(lead.prefix, token=token, timeout=0.5))
        await asleep(one, 1)
        for number in range(20):
            await writer.put_new(key(stranger, number), b"x")
        assert await wait == token
        await reader.aclose()
        await writer.aclose()


async def test_thousands_of_waiters_sleep_through_all_but_their_own_write() -> None:
    count = 3_000
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2, SLOW)
        lists = one.store.lists
        token = await one.store.wait("v/", token=None, timeout=0)
        waits = [
            asyncio.create_task(one.store.wait(f"v/{number:032x}/", token=token, timeout=30))
            for number in range(count)
        ]
        await asleep(one, count)
        for number in range(0, count, 2):
            await other.store.put_new(f"v/{number:032x}/devlog/0", b"x")
        await asleep(one, count // 2)
        assert all(wait.done() == (number % 2 == 0) for number, wait in enumerate(waits))
        assert one.peers.status().missed == 0
        assert one.store.lists == lists, "a waiter must not cost a request to the store"
        one.store.notifier.wake_all()
        await asyncio.gather(*waits)


async def test_what_was_written_while_a_process_could_not_be_reached_wakes_once_it_can() -> None:
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        token = await one.store.wait("v/a/", token=None, timeout=0)
        wait = asyncio.create_task(one.store.wait("v/a/", token=token, timeout=30))
        await asleep(one, 1)
        one.wire.cut()
        await other.store.put_new("v/a/devlog/0", b"x")
        await eventually(lambda: other.peers.status().reached == 0)
        assert not wait.done()
        one.wire.mend()
        assert await asyncio.wait_for(wait, 5) != token
        assert one.peers.status().missed == 0
        await eventually(lambda: other.peers.status().reached == 1)


async def test_no_process_says_that_nothing_was_written_while_it_hears_nothing_from_another() -> None:
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        token = await one.store.wait("v/a/", token=None, timeout=0)
        assert await one.store.wait("v/a/", token=token, timeout=0) == token
        one.wire.cut()
        other.wire.cut()
        await other.store.put_new("v/a/devlog/0", b"x")
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 0)
        for _ in range(3):
            fresh = await one.store.wait("v/a/", token=token, timeout=0)
            assert fresh != token
            token = fresh
        one.wire.mend()
        other.wire.mend()
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 1)
        await eventually(one.store.notifier.in_touch)
        token = await one.store.wait("v/a/", token=token, timeout=0)
        assert await one.store.wait("v/a/", token=token, timeout=0) == token


async def test_a_held_wait_is_ended_by_a_write_at_another_process_and_by_losing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "BEAT_SECONDS", 0.1)
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        lead = await enrolled(one.url)
        here, there = lead.store(one.url), lead.store(other.url)
        blanks = asyncio.Semaphore(0)

        async def held(token: str) -> asyncio.Task[str]:
            wait = asyncio.create_task(here.hold(lead.prefix, token=token, timeout=60, heard=blanks.release))
            for _ in range(2):
                await asyncio.wait_for(blanks.acquire(), 5)
            return wait

        token = await _settled(here, lead, await here.wait(lead.prefix, token=None, timeout=0))
        wait = await held(token)
        await there.put_new(key(lead, 0), b"x")
        fresh = await asyncio.wait_for(wait, 5)
        assert fresh != token
        token = await _settled(here, lead, fresh)
        wait = await held(token)
        one.wire.cut()
        other.wire.cut()
        await other.store.put_new("v/a/devlog/0", b"x")  # the other one notices by it that the line is cut
        assert await asyncio.wait_for(wait, 10) == token
        one.wire.mend()
        other.wire.mend()
        await here.aclose()
        await there.aclose()


async def test_what_was_too_much_to_keep_leaves_a_gap_that_wakes_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crystal_relay.server.peers.sender.PENDING_GROUPS_MAX", 50)
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        token = await one.store.wait("v/", token=None, timeout=0)
        waits = [
            asyncio.create_task(one.store.wait(prefix, token=token, timeout=30))
            for prefix in ("v/a/", "v/none/", "")
        ]
        await asleep(one, 3)
        one.wire.cut()
        for number in range(200):
            await other.store.put_new(f"v/{number}/devlog/0", b"x")
            await asyncio.sleep(0)
        one.wire.mend()
        fresh = await asyncio.wait_for(asyncio.gather(*waits), 5)
        assert token not in fresh
        assert one.peers.status().missed == 1
        await eventually(lambda: other.peers.status().reached == 1)
        for prefix in ("v/a/", "v/none/", ""):
            settled = await one.store.wait(prefix, token=fresh[2], timeout=0)
            assert await one.store.wait(prefix, token=settled, timeout=0) == settled


async def test_more_writes_than_one_message_holds_arrive_in_several() -> None:
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        token = await one.store.wait("v/", token=None, timeout=0)
        one.wire.cut()
        for number in range(2_000):
            await other.store.put_new(f"v/{number:032x}/conversations/0", b"x")
        one.wire.mend()
        await eventually(lambda: one.store.notifier.others[other.name] == other.store.notifier.number)
        assert one.peers.status().missed == 0
        for number in (0, 1_000, 1_999):
            assert await one.store.wait(f"v/{number:032x}/", token=token, timeout=0) != token
        assert await one.store.wait(f"v/{2_000:032x}/", token=token, timeout=0) == token


async def test_a_revocation_at_one_process_counts_at_the_others_at_once() -> None:
    async with AsyncExitStack() as stack:
        processes = await fleet(stack, 3, SLOW)
        lead = await enrolled(processes[0].url)
        node = await joined(processes[0].url, lead)
        stores = [node.store(each.url) for each in processes]
        admin = lead.store(processes[0].url)
        # What the creations above wrote makes the others look tokens up anew: once they know of it, nothing does.
        first, *others = (each.store.notifier for each in processes)
        await eventually(lambda: all(each.others[first.name] == first.number for each in others))
        for _ in range(50):  # a vault's first use is noted beside the requests, and the others look anew once
            gets = [each.store.gets for each in processes]
            for store in stores:
                await store.list(node.prefix)
            if [each.store.gets for each in processes] == gets:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("known tokens cost requests to the store")
        await admin.revoke_token(device=node.device, token_hash=token_hash(node.token))
        for store in stores:
            with pytest.raises(Unauthorized):
                await store.list(node.prefix)
            await store.aclose()
        await admin.aclose()


async def test_a_revocation_while_a_process_cannot_be_reached_counts_there_as_soon_as_it_can() -> None:
    async with AsyncExitStack() as stack:
        one, other = await fleet(stack, 2)
        lead = await enrolled(one.url)
        node = await joined(one.url, lead)
        store, admin = node.store(one.url), lead.store(other.url)
        await store.list(node.prefix)
        one.wire.cut()
        await eventually(lambda: other.peers.status().reached == 0)
        began = time.monotonic()
        await admin.revoke_token(device=node.device)
        assert time.monotonic() - began < QUICK.announcement, (
            "a revocation does not wait for who is known to be away"
        )
        await store.list(node.prefix)  # not known here yet
        one.wire.mend()
        await eventually(lambda: other.peers.status().reached == 1)
        with pytest.raises(Unauthorized):
            await store.list(node.prefix)
        await store.aclose()
        await admin.aclose()


async def test_what_was_written_last_before_a_stop_is_told() -> None:
    async with AsyncExitStack() as stack:
        (one,) = await fleet(stack, 1)
        async with process(one.store.shared) as other:
            await eventually(lambda: one.peers.status().reached == 1)
            token = await one.store.wait("v/a/", token=None, timeout=0)
            wait = asyncio.create_task(one.store.wait("v/a/", token=token, timeout=30))
            await asleep(one, 1)
            await other.store.put_new("v/a/devlog/0", b"x")
        fresh = await asyncio.wait_for(wait, 5)
        assert fresh != token
        assert other.name in fresh, "the last writes of one that left stay known for a while"
        assert one.peers.status().known == 0
        assert not (await one.store.list(f"r/process/{other.name}")).entries
