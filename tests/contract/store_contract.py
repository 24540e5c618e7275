"""What every store has to do, as tests. A store's tests are a class that inherits `StoreContract` and opens it:

    class TestMemoryStore(StoreContract):
        @asynccontextmanager
        async def opened(self, tmp_path):
            yield Opened(MemoryStore())

Keys are formed as a relay's channels have them, so that the same tests run through a server.
"""

import asyncio
import secrets
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_relay.errors import (
    AlreadyExists,
    BadRange,
    BadRequest,
    NotFound,
    SizeMismatch,
    StoreUnavailable,
)
from crystal_relay.store import Body, Store

WAKE_SECONDS_MAX = 5.0
"""A sleeper that is not woken by then is not woken."""


@dataclass
class Opened:
    """A store, and names in it that it takes: those of one vault."""

    store: Store
    vault: str = field(default_factory=lambda: secrets.token_hex(16))
    device: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def root(self) -> str:
        return f"v/{self.vault}/"

    def key(self, name: str, epoch: str = "0000000001") -> str:
        """A key that is written once."""
        return f"{self.root}mirror/{epoch}/{name}"

    @property
    def cursor(self) -> str:
        """A key that is overwritten."""
        return f"{self.root}cursor/{self.device}"


class StoreContract:
    """Inherit it, name the class Test…, and define `opened`. Set what differs."""

    race_rounds = 60
    paged_keys = 2_100
    big_bytes = 3 * 1024 * 1024 + 17

    @abstractmethod
    def opened(self, tmp_path: Path) -> AbstractAsyncContextManager[Opened]:
        """An empty store, closed at the end."""

    @pytest_asyncio.fixture
    async def at(self, tmp_path: Path) -> AsyncIterator[Opened]:
        async with self.opened(tmp_path) as opened:
            yield opened

    # --- one object ---

    async def test_what_was_put_is_read_back(self, at: Opened) -> None:
        for name, data in (
            ("a", b"x"),
            ("b", secrets.token_bytes(5000)),
            ("c", secrets.token_bytes(self.big_bytes)),
        ):
            await at.store.put_new(_blob(at, name) if len(data) > 1024 * 1024 else at.key(name), data)
        assert await read(at.store, at.key("a")) == b"x"
        found = await at.store.get(_blob(at, "c"))
        assert (found.size, found.start, found.length) == (self.big_bytes, 0, self.big_bytes)
        assert len(await found.read()) == self.big_bytes

    async def test_an_empty_object_is_an_object(self, at: Opened) -> None:
        await at.store.put_new(at.key("empty"), b"")
        await at.store.put_new(at.key("empty-streamed"), Body(0, lambda: _stream([])))
        assert await read(at.store, at.key("empty")) == b""
        assert await read(at.store, at.key("empty"), start=0, length=5) == b""
        listed = (await at.store.list(at.root)).entries
        assert [(entry.key, entry.size) for entry in listed] == [
            (at.key("empty"), 0),
            (at.key("empty-streamed"), 0),
        ]
        with pytest.raises(AlreadyExists):
            await at.store.put_new(at.key("empty"), b"now full")

    async def test_what_was_never_put_is_not_found(self, at: Opened) -> None:
        with pytest.raises(NotFound):
            await at.store.get(at.key("nothing"))

    async def test_put_new_never_touches_what_is_there(self, at: Opened) -> None:
        await at.store.put_new(at.key("slot"), b"first")
        for other in (b"second", b"first", b"", secrets.token_bytes(300_000)):
            with pytest.raises(AlreadyExists):
                await at.store.put_new(at.key("slot"), other)
        assert await read(at.store, at.key("slot")) == b"first"

    async def test_put_replaces_whole(self, at: Opened) -> None:
        for size in (10, 100_000, 0, 400_000, 3, 500_000, 200_000):
            data = secrets.token_bytes(size)
            await at.store.put(at.cursor, data)
            assert await read(at.store, at.cursor) == data
            assert [entry.size for entry in (await at.store.list(at.root)).entries] == [size]

    async def test_an_object_being_read_stays_what_it_was(self, at: Opened) -> None:
        old = secrets.token_bytes(700_000)
        await at.store.put(at.cursor, old)
        async with await at.store.get(at.cursor) as found:
            pieces = aiter(found)
            got = await anext(pieces)
            await at.store.put(at.cursor, secrets.token_bytes(700_000))
            await at.store.delete(at.cursor)
            async for piece in pieces:
                got += piece
        assert got == old

    async def test_an_object_may_be_left_unread(self, at: Opened) -> None:
        await at.store.put_new(_blob(at, "big"), secrets.token_bytes(self.big_bytes))
        for _ in range(40):
            async with await at.store.get(_blob(at, "big")) as found:
                assert found.size == self.big_bytes
        assert len(await read(at.store, _blob(at, "big"))) == self.big_bytes

    async def test_delete_is_idempotent_and_frees_the_key(self, at: Opened) -> None:
        for size in (10, 300_000):
            await at.store.put_new(at.key("gone"), secrets.token_bytes(size))
            await at.store.delete(at.key("gone"))
            await at.store.delete(at.key("gone"))
            with pytest.raises(NotFound):
                await at.store.get(at.key("gone"))
            assert (await at.store.list(at.root)).entries == ()
        await at.store.put_new(at.key("gone"), b"again")
        assert await read(at.store, at.key("gone")) == b"again"

    # --- parts ---

    @pytest.mark.parametrize("size", [1, 1000, 300_000])
    async def test_any_part_can_be_read(self, at: Opened, size: int) -> None:
        data = secrets.token_bytes(size)
        await at.store.put_new(at.key("whole"), data)
        for start in (0, 1, size // 2, size - 1, size):
            for length in (1, 2, size, size + 1, 10**9, None):
                found = await at.store.get(at.key("whole"), start=start, length=length)
                expected = data[start:] if length is None else data[start : start + length]
                assert (found.size, found.start, found.length) == (size, start, len(expected))
                assert await found.read() == expected

    async def test_parts_that_no_object_has_are_refused(self, at: Opened) -> None:
        await at.store.put_new(at.key("whole"), b"0123456789")
        with pytest.raises(BadRange):
            await at.store.get(at.key("whole"), start=11)
        for start, length in ((-1, None), (0, 0), (0, -1)):
            with pytest.raises(BadRequest):
                await at.store.get(at.key("whole"), start=start, length=length)
        with pytest.raises(NotFound):
            await at.store.get(at.key("nothing"), start=11)

    # --- streams ---

    async def test_a_streamed_body_arrives_whole(self, at: Opened) -> None:
        for name, sizes in (("small", [1, 0, 7]), ("odd", [70_001] * 9), ("one", [200_000])):
            pieces = [secrets.token_bytes(size) for size in sizes]
            await at.store.put_new(at.key(name), Body(sum(sizes), partial(_stream, pieces)))
            assert await read(at.store, at.key(name)) == b"".join(pieces)

    @pytest.mark.parametrize("declared", [0, 10, 5000, 200_000, 600_000])
    async def test_a_body_of_another_size_than_declared_leaves_nothing(
        self, at: Opened, declared: int
    ) -> None:
        for size in {max(0, declared - 1), declared // 2, declared + 1, declared + 100_000} - {declared}:
            await self._refuses(at, declared, size)
        await at.store.put_new(at.key("wrong"), b"free")

    async def _refuses(self, at: Opened, declared: int, size: int) -> None:
        pieces = [b"x" * min(10_000, size - begin) for begin in range(0, size, 10_000)]
        with pytest.raises(SizeMismatch):
            await at.store.put_new(at.key("wrong"), Body(declared, lambda: _stream(pieces)))
        with pytest.raises(SizeMismatch):
            await at.store.put(at.cursor, Body(declared, lambda: _stream(pieces)))
        assert (await at.store.list(at.root)).entries == ()

    @pytest.mark.parametrize("size", [5000, 600_000])
    async def test_a_body_whose_source_fails_leaves_nothing(self, at: Opened, size: int) -> None:
        async def failing() -> AsyncGenerator[bytes]:
            yield b"x" * (size // 2)
            raise SourceFailed

        with pytest.raises(SourceFailed):
            await at.store.put_new(at.key("broken"), Body(size, failing))
        with pytest.raises(NotFound):
            await at.store.get(at.key("broken"))
        assert (await at.store.list(at.root)).entries == ()

    @pytest.mark.parametrize("size", [5000, 600_000])
    async def test_a_cancelled_write_leaves_nothing_or_all(self, at: Opened, size: int) -> None:
        begun = asyncio.Event()

        async def stalling() -> AsyncGenerator[bytes]:
            yield b"x" * (size // 2)
            begun.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(at.store.put_new(at.key("stalled"), Body(size, stalling)))
        await asyncio.wait_for(begun.wait(), WAKE_SECONDS_MAX)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert (await at.store.list(at.root)).entries == ()
        await at.store.put_new(at.key("stalled"), b"free")

    # --- races ---

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
        bodies = {at.key(f"{number:06d}"): secrets.token_bytes(number * 37 % 9000) for number in range(300)}
        await asyncio.gather(*(at.store.put_new(key, body) for key, body in bodies.items()))
        assert [entry.key for entry in (await at.store.list(at.root)).entries] == sorted(bodies)
        found = await asyncio.gather(*(read(at.store, key) for key in bodies))
        assert found == list(bodies.values())

    # --- lists ---

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
        assert await names(at.store, f"{at.root}mirror/1") == keys[:4]
        assert await names(at.store, at.key("a", "1")) == keys[:1]
        assert await names(at.store, f"{at.root}mirror/3") == []
        assert await names(at.store, f"{at.root}cursor/") == [at.cursor]
        assert await names(at.store, at.root) == [at.cursor, *keys]

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
        pages = [await at.store.list(at.root)]
        while pages[-1].more:
            pages.append(await at.store.list(at.root, after=pages[-1].entries[-1].key))
        assert [len(page.entries) for page in pages] == [1000] * (self.paged_keys // 1000) + [
            self.paged_keys % 1000
        ]
        assert [entry.key for page in pages for entry in page.entries] == keys

    async def test_page_sizes_are_limited(self, at: Opened) -> None:
        for limit in (0, -1, 1001):
            with pytest.raises(BadRequest):
                await at.store.list(at.root, limit=limit)

    # --- names ---

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            "..",
            ".",
            "../x",
            "a/../b",
            "a//b",
            "/a",
            "a/",
            "A",
            "ä",
            "a b",
            "a%2fb",
            "a\\b",
            "a\n",
            "a\0",
            "x" * 260,
        ],
    )
    async def test_bad_names_are_refused_everywhere(self, at: Opened, bad: str) -> None:
        key = at.key(bad)
        for call in (
            at.store.put_new(key, b""),
            at.store.put(key, b""),
            at.store.delete(key),
            at.store.get(key),
        ):
            with pytest.raises(BadRequest):
                await call
        assert (await at.store.list(at.root)).entries == ()

    # --- waiting ---

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
        prefixes = [at.root, f"{at.root}mirror/", at.key(""), at.key("slot"), f"{at.root}mir"]
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

    async def test_a_write_before_the_wait_is_not_missed(self, at: Opened) -> None:
        token = await at.store.wait(at.root, token=None, timeout=0)
        await at.store.put_new(at.key("slot"), b"")
        for prefix in (at.root, f"{at.root}mirror/", at.key(""), at.key("slot")):
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

    # --- the end ---

    async def test_a_closed_store_refuses(self, at: Opened) -> None:
        await at.store.put_new(at.key("slot"), b"")
        await at.store.aclose()
        await at.store.aclose()
        for call in (
            at.store.put_new(at.key("x"), b""),
            at.store.get(at.key("slot")),
            at.store.list(at.root),
            at.store.delete(at.key("slot")),
            at.store.wait(at.root, token=None, timeout=0),
        ):
            with pytest.raises(StoreUnavailable):
                await call


class SourceFailed(Exception):
    """The source of a body, in these tests."""


async def read(store: Store, key: str, *, start: int = 0, length: int | None = None) -> bytes:
    return await (await store.get(key, start=start, length=length)).read()


async def names(store: Store, prefix: str) -> list[str]:
    return [entry.key for entry in (await store.list(prefix)).entries]


def _blob(at: Opened, name: str) -> str:
    return f"{at.root}blob/{name}"


async def _stream(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece
