"""The contract of stores, second part: many writers, and lists."""

import asyncio
import secrets

import pytest

from crystal_relay.errors import AlreadyExists, BadRequest
from tests.contract.opened import Opened, OpensStore, names, read


class ListsContract(OpensStore):
    """Of many objects and many writers."""

    @pytest.mark.parametrize("size", [100, 300_000])
    async def test_of_sixteen_writers_of_one_key_exactly_one_wins(self, at: Opened, size: int) -> None:
        rounds = self.race_rounds if size < 1000 else max(3, self.race_rounds // 10)
        for number in range(rounds):
            key = at.key(f"{number:08d}")
            bodies = [bytes([writer]) * size for writer in range(16)]
            results = await asyncio.gather(
                *(at.store.put_new(key, body) for body in bodies), return_exceptions=True
            )
            won = [writer for writer, result in enumerate(results) if result is None]
            assert len(won) == 1, f"round {number}: {len(won)} winners"
            assert all(isinstance(result, AlreadyExists) for result in results if result is not None)
            assert await read(at.store, key) == bodies[won[0]]

    async def test_of_writers_with_equal_bytes_one_wins_too(self, at: Opened) -> None:
        for size in (10, 300_000):
            writes = (at.store.put_new(at.key(f"{size}"), bytes(size)) for _ in range(4))
            results = await asyncio.gather(*writes, return_exceptions=True)
            assert results.count(None) == 1
            assert all(isinstance(result, AlreadyExists) for result in results if result is not None)

    async def test_an_overwritten_object_is_never_seen_mixed_or_missing(self, at: Opened) -> None:
        bodies = [
            bytes([number]) * size for number, size in enumerate((10, 3_000, 150_000, 400_000, 20, 300_000))
        ]
        await at.store.put(at.cursor, bodies[0])
        writing = True

        async def reader() -> int:
            seen = 0
            while writing:
                assert await read(at.store, at.cursor) in bodies
                seen += 1
                await asyncio.sleep(0)
            return seen

        readers = [asyncio.create_task(reader()) for _ in range(3)]
        for number in range(30):
            await asyncio.gather(
                at.store.put(at.cursor, bodies[number % 6]), at.store.put(at.cursor, bodies[(number + 1) % 6])
            )
            await asyncio.sleep(0)
        writing = False
        assert all(await asyncio.gather(*readers))

    async def test_concurrent_writes_to_many_keys_all_arrive(self, at: Opened) -> None:
        bodies = {
            at.key(f"{number:06d}"): secrets.token_bytes(number * 37 % 9000)
            for number in range(self.many_keys)
        }
        await asyncio.gather(*(at.store.put_new(key, body) for key, body in bodies.items()))
        assert [entry.key for entry in (await at.store.list(at.root)).entries] == sorted(bodies)
        found = await asyncio.gather(*(read(at.store, key) for key in bodies))
        assert found == list(bodies.values())

    async def test_a_list_is_in_byte_order_and_goes_on_after_a_key(self, at: Opened) -> None:
        names = [
            ".x",
            "-",
            "0",
            "00",
            "09",
            "1",
            "10",
            "9",
            "_",
            "a",
            "a-b",
            "a.b",
            "a_b",
            "ab",
            "b",
            "z" * 60,
        ]
        keys = sorted(at.key(name, epoch) for name in names for epoch in ("1", "1-", "10", "2"))
        for key in keys[::2] + keys[1::2]:
            await at.store.put_new(key, key.encode())
        for size in (1, 2, 7, len(keys) - 1, len(keys), 1000):
            found: list[str] = []
            while True:
                page = await at.store.list(at.root, after=found[-1] if found else "", limit=size)
                assert len(page.entries) <= size
                assert all(entry.size == len(entry.key) for entry in page.entries)
                found += [entry.key for entry in page.entries]
                if not page.more:
                    break
                assert page.entries
            assert found == keys

    async def test_a_list_holds_its_prefix_only(self, at: Opened) -> None:
        keys = [at.key(name, epoch) for epoch in ("1", "10", "2") for name in ("a", "b")]
        for key in [*keys, at.cursor]:
            await at.store.put_new(key, b"")
        assert await names(at.store, at.key("", "1")) == keys[:2]
        assert await names(at.store, f"{at.channel}1") == keys[:4]
        assert await names(at.store, at.key("a", "1")) == keys[:1]
        assert await names(at.store, f"{at.channel}3") == []
        assert await names(at.store, f"{at.root}cursor/") == [at.cursor]
        assert await names(at.store, at.root) == sorted([at.cursor, *keys])

    async def test_a_list_goes_on_after_keys_that_are_not_there(self, at: Opened) -> None:
        keys = [at.key(name) for name in ("b", "d", "f")]
        for key in keys:
            await at.store.put_new(key, b"")
        prefix = at.key("")
        for after, expected in ((at.key("a"), keys), (at.key("b"), keys[1:]), (at.key("c"), keys[1:])):
            assert [entry.key for entry in (await at.store.list(prefix, after=after)).entries] == expected
        for after, expected in (
            (at.key("f"), []),
            (at.key("g"), []),
            (at.root, keys),
            ("a", keys),
            ("w", []),
        ):
            assert [entry.key for entry in (await at.store.list(prefix, after=after)).entries] == expected

    async def test_more_than_a_thousand_keys_come_in_pages(self, at: Opened) -> None:
        keys = [at.key(f"{number:016d}") for number in range(self.paged_keys)]
        for first in range(0, len(keys), 100):
            await asyncio.gather(*(at.store.put_new(key, b"x") for key in keys[first : first + 100]))
        pages = [await at.store.list(at.root, limit=self.page_keys)]
        while pages[-1].more:
            after = pages[-1].entries[-1].key
            pages.append(await at.store.list(at.root, after=after, limit=self.page_keys))
        full, rest = divmod(self.paged_keys, self.page_keys)
        assert [len(page.entries) for page in pages] == [self.page_keys] * full + [rest]
        assert [entry.key for page in pages for entry in page.entries] == keys

    async def test_pages_miss_nothing_that_was_there_throughout(self, at: Opened) -> None:
        """Others write and delete between the pages, also the key that the next page goes on after."""
        stay = [at.key(f"{number:02d}-stays") for number in range(10)]
        go = [at.key(f"{number:02d}-goes") for number in range(10)]
        await asyncio.gather(*(at.store.put_new(key, b"") for key in stay + go))
        found: list[str] = []
        more = True
        while more:
            page = await at.store.list(at.root, after=found[-1] if found else "", limit=3)
            found += [entry.key for entry in page.entries]
            more = page.more
            number = len(found)
            await at.store.delete(found[-1] if found[-1] in go else go[number % 10])
            await at.store.put_new(at.key(f"{number:02d}-new"), b"")
            await at.store.put_new(at.key(f"00-new-{number}"), b"")
        assert found == sorted(set(found))
        assert set(stay) <= set(found)

    async def test_page_sizes_are_limited(self, at: Opened) -> None:
        for limit in (0, -1, 1001):
            with pytest.raises(BadRequest):
                await at.store.list(at.root, limit=limit)
