"""Who is gone, who is new, who came back: what takes minutes, by a clock that the test moves."""

import asyncio
from dataclasses import dataclass

from crystal_relay.memory import MemoryStore
from crystal_relay.server.peers import PeerTimes
from tests.support.processes import eventually, process

TIMES = PeerTimes(retry_last=0.05, heartbeat=0.05, round=10**6, greeting=30.0, farewell=30.0)
"""Rounds are made by the test; what depends on minutes is the default."""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_process_that_was_killed_wakes_the_others_waiters_once_and_is_taken_off_the_list() -> None:
    clock, shared = Clock(), MemoryStore()
    async with (
        process(shared, times=TIMES, clock=clock) as one,
        process(shared, times=TIMES, clock=clock) as other,
    ):
        await eventually(lambda: one.peers.status().reached == 1 and other.name in one.store.notifier.others)
        token = await one.store.wait("v/a/", token=None, timeout=0)
        wait = asyncio.create_task(one.store.wait("v/a/", token=token, timeout=30))
        await other.kill()
        await shared.put_new("v/a/devlog/0", b"x")  # written, and nobody was told
        await eventually(lambda: one.peers.status().reached == 0)
        clock.now += TIMES.silent - 1
        one.peers.look_around()
        await asyncio.sleep(0.01)
        assert not wait.done()
        clock.now += 1
        one.peers.look_around()
        fresh = await asyncio.wait_for(wait, 5)
        assert fresh != token
        for _ in range(3):
            clock.now += TIMES.silent
            one.peers.look_around()
            assert await one.store.wait("v/a/", token=fresh, timeout=0.01) == fresh, "woken again for nothing"
        clock.now += TIMES.give_up
        await one.peers.look_at_list()
        listed = [entry.key for entry in (await shared.list("r/process/")).entries]
        assert listed == [f"r/process/{one.name}"]
        assert one.peers.status().known == 0


async def test_what_one_that_left_wrote_is_forgotten_after_a_while_and_wakes_nobody() -> None:
    clock, shared = Clock(), MemoryStore()
    async with process(shared, times=TIMES, clock=clock) as one:
        token = await one.store.wait("v/a/", token=None, timeout=0)
        async with process(shared, times=TIMES, clock=clock) as other:
            await other.store.put_new("v/a/devlog/0", b"x")
            await other.store.put_new("v/b/devlog/0", b"x")
        fresh = await one.store.wait("v/a/", token=token, timeout=0)
        assert fresh != token
        clock.now += TIMES.remember - 1
        one.peers.look_around()
        assert other.name in one.store.notifier.others
        assert await one.store.wait("v/b/", token=token, timeout=0) != token, (
            "its last writes are known for a while"
        )
        clock.now += 1
        one.peers.look_around()
        assert one.store.notifier.others == {}
        assert await one.store.wait("v/a/", token=fresh, timeout=0) == fresh


async def test_a_partition_that_lasts_for_long_heals() -> None:
    clock, shared = Clock(), MemoryStore()
    async with (
        process(shared, times=TIMES, clock=clock) as one,
        process(shared, times=TIMES, clock=clock) as other,
    ):
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 1)
        one.wire.cut()
        other.wire.cut()
        await one.store.put_new("v/a/devlog/0", b"x")
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 0)
        clock.now += TIMES.give_up
        for each in (one, other):
            await each.peers.look_at_list()
        assert not (await shared.list("r/process/")).entries or one.peers.status().known == 0
        token = await other.store.wait("v/a/", token=None, timeout=0)
        wait = asyncio.create_task(other.store.wait("v/a/", token=token, timeout=30))
        await one.store.put_new("v/a/devlog/1", b"x")
        one.wire.mend()
        other.wire.mend()
        for each in (one, other, one):  # who was taken off the list puts itself back; then the others see it
            await each.peers.look_at_list()
        assert await asyncio.wait_for(wait, 5) != token
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 1)
        assert len((await shared.list("r/process/")).entries) == 2


async def test_a_record_that_is_gone_is_put_back_and_costs_nothing_while_it_is_there() -> None:
    shared = MemoryStore()
    async with process(shared, times=TIMES) as one:
        for _ in range(3):
            lists, gets, written = one.store.lists, one.store.gets, one.store.notifier.number
            await one.peers.look_at_list()
            assert (one.store.lists - lists, one.store.gets - gets) == (1, 1)
            assert one.store.notifier.number == written
        await shared.delete(f"r/process/{one.name}")
        await one.peers.look_at_list()
        assert [entry.key for entry in (await shared.list("r/process/")).entries] == [f"r/process/{one.name}"]


async def test_a_process_at_an_address_that_another_has_now_is_taken_off_the_list() -> None:
    shared = MemoryStore()
    async with process(shared, times=TIMES) as one, process(shared, times=TIMES) as other:
        stale = b'{"name":"00000000000000aa","url":"%s","since":1}' % other.wire.url.encode()
        await shared.put("r/process/00000000000000aa", stale)
        await one.peers.look_at_list()
        assert one.peers.status().known == 2

        async def gone() -> bool:
            one.peers.look_around()
            return not (await shared.list("r/process/00000000000000aa")).entries

        await eventually(gone)
        assert one.peers.status().known == 1


async def test_records_of_the_dead_do_not_hold_up_a_start_for_long_and_nonsense_is_passed_over() -> None:
    shared = MemoryStore()
    for number in range(40):
        record = b'{"name":"%016x","url":"http://127.0.0.1:1","since":1}' % number
        await shared.put(f"r/process/{number:016x}", record)
    await shared.put("r/process/ffffffffffffffff", b"\xff not JSON")
    await shared.put("r/process/fffffffffffffffe", b'{"name":"fffffffffffffffe","url":"http://[","since":1}')
    await shared.put("r/process/no-name", b"{}")
    began = asyncio.get_running_loop().time()
    async with process(shared, times=TIMES) as one, process(shared, times=TIMES) as other:
        assert asyncio.get_running_loop().time() - began < 5
        await eventually(lambda: one.peers.status().reached == other.peers.status().reached == 1)
        token = await one.store.wait("v/a/", token=None, timeout=0)
        wait = asyncio.create_task(one.store.wait("v/a/", token=token, timeout=30))
        await asyncio.sleep(0)
        await other.store.put_new("v/a/devlog/0", b"x")
        assert await asyncio.wait_for(wait, 5) != token


async def test_a_start_wakes_nobody_anywhere() -> None:
    shared = MemoryStore()
    async with process(shared, times=TIMES) as one:
        await one.store.put_new("v/a/devlog/0", b"x")
        token = await one.store.wait("v/", token=None, timeout=0)
        wait = asyncio.create_task(one.store.wait("v/", token=token, timeout=0.5))
        async with process(shared, times=TIMES) as other:
            await eventually(
                lambda: one.peers.status().reached == 1 and other.name in one.store.notifier.others
            )
            await asyncio.sleep(0.1)
        assert await wait == token
