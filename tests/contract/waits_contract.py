"""The contract of stores, third part: waiting, and the end."""

import asyncio

import pytest

from crystal_relay.errors import BadRequest, StoreUnavailable
from tests.contract.opened import WAKE_SECONDS_MAX, Opened, OpensStore, names


class WaitsContract(OpensStore):
    """Of sleepers, and of closed stores."""

    async def test_a_wait_without_a_token_returns_one_at_once(self, at: Opened) -> None:
        for token in (None, "", "unknown", "0123456789abcdef-5", "x" * 60):
            fresh = await asyncio.wait_for(at.store.wait(at.root, token=token, timeout=30), WAKE_SECONDS_MAX)
            assert fresh
            assert fresh != token

    async def test_a_wait_ends_at_its_time_with_the_same_token(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        for timeout in (0, 0.05):
            assert await at.store.wait(at.root, token=token, timeout=timeout) == token

    async def test_a_write_wakes_who_waits_for_its_prefix(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        prefixes = [at.root, at.channel, at.key(""), at.key("slot"), at.channel[:-4]]
        waits = [asyncio.create_task(at.store.wait(prefix, token=token, timeout=30)) for prefix in prefixes]
        await asyncio.sleep(0.1)
        assert not any(wait.done() for wait in waits)
        await at.store.put_new(at.key("slot"), b"")
        fresh = await asyncio.wait_for(asyncio.gather(*waits), WAKE_SECONDS_MAX)
        assert token not in fresh
        assert await at.store.wait(at.root, token=fresh[0], timeout=0.05) == fresh[0]

    async def test_an_overwrite_wakes_too(self, at: Opened) -> None:
        await at.store.put(at.cursor, b"1")
        token = await at.store.wait(at.root, token=None, timeout=0)
        wait = asyncio.create_task(at.store.wait(f"{at.root}cursor/", token=token, timeout=30))
        await asyncio.sleep(0.05)
        await at.store.put(at.cursor, b"2")
        assert await asyncio.wait_for(wait, WAKE_SECONDS_MAX) != token

    async def test_a_deletion_wakes_nobody(self, at: Opened) -> None:
        await at.store.put_new(at.key("slot"), b"")
        token = await at.store.wait(at.root, token=None, timeout=0)
        wait = asyncio.create_task(at.store.wait(at.root, token=token, timeout=0.2))
        await at.store.delete(at.key("slot"))
        assert await wait == token

    async def test_a_write_before_the_wait_is_not_missed(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        await at.store.put_new(at.key("slot"), b"")
        for prefix in (at.root, at.channel, at.key(""), at.key("slot")):
            woken = await asyncio.wait_for(at.store.wait(prefix, token=token, timeout=30), WAKE_SECONDS_MAX)
            assert woken != token

    async def test_writes_elsewhere_wake_nobody_for_long(self, at: Opened) -> None:
        """Waking for nothing is allowed; never sleeping again would be a busy loop."""
        token = await at.store.wait(f"{at.root}devlog/", token=None, timeout=0)
        await at.store.put_new(at.key("slot"), b"")
        token = await at.store.wait(f"{at.root}devlog/", token=token, timeout=0.05)
        assert await at.store.wait(f"{at.root}devlog/", token=token, timeout=0.05) == token

    async def test_no_write_is_missed_in_a_race_of_writers_and_a_waiter(self, at: Opened) -> None:
        total = 120
        seen: set[str] = set()

        async def watch() -> None:
            token = await at.store.wait(at.root, token=None, timeout=0)
            while True:
                seen.update(await names(at.store, at.root))
                if len(seen) == total:
                    return
                woken = await at.store.wait(at.root, token=token, timeout=WAKE_SECONDS_MAX)
                assert woken != token, f"slept through a write: {len(seen)} of {total} seen"
                token = woken

        async def write(first: int) -> None:
            for number in range(first, total, 4):
                await at.store.put_new(at.key(f"{number:06d}"), b"")
                await asyncio.sleep(0.001 * (number % 3))

        async with asyncio.timeout(60):
            await asyncio.gather(watch(), watch(), *(write(first) for first in range(4)))

    async def test_many_waiters_are_all_woken(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        waits = [asyncio.create_task(at.store.wait(at.root, token=token, timeout=30)) for _ in range(12)]
        await asyncio.sleep(0.1)
        await at.store.put_new(at.key("slot"), b"")
        woken = await asyncio.wait_for(asyncio.gather(*waits), WAKE_SECONDS_MAX)
        assert token not in woken

    async def test_a_cancelled_wait_leaves_the_others_asleep(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        waits = [asyncio.create_task(at.store.wait(at.root, token=token, timeout=30)) for _ in range(3)]
        await asyncio.sleep(0.05)
        waits[0].cancel()
        await asyncio.sleep(0.05)
        assert [wait.done() for wait in waits] == [True, False, False]
        await at.store.put_new(at.key("slot"), b"")
        await asyncio.wait_for(asyncio.gather(*waits[1:]), WAKE_SECONDS_MAX)

    async def test_waiting_times_are_limited(self, at: Opened) -> None:
        for timeout in (-1, 61, float("nan")):
            with pytest.raises(BadRequest):
                await at.store.wait(at.root, token=None, timeout=timeout)

    async def test_a_closed_store_refuses(self, at: Opened) -> None:
        await at.store.put_new(at.key("slot"), b"")
        await at.store.aclose()
        await at.store.aclose()
        for call in (
            at.store.put_new(at.key("x"), b""),
            at.store.put(at.cursor, b""),
            at.store.get(at.key("slot")),
            at.store.list(at.root),
            at.store.delete(at.key("slot")),
            at.store.wait(at.root, token=None, timeout=0),
        ):
            with pytest.raises(StoreUnavailable):
                await call
