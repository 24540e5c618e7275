"""The contract of stores, first part: single objects, parts of them, streams, names."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from functools import partial

import pytest

from crystal_relay.errors import AlreadyExists, BadRange, BadRequest, BodyTooLarge, NotFound, SizeMismatch
from crystal_relay.limits import OBJECT_BYTES_MAX
from crystal_relay.store import Body
from tests.contract.opened import WAKE_SECONDS_MAX, Opened, OpensStore, names, read, stream


class ObjectsContract(OpensStore):
    """Of one object at a time."""

    async def test_what_was_put_is_read_back(self, at: Opened) -> None:
        for name, data in (
            ("a", b"x"),
            ("b", secrets.token_bytes(5000)),
            ("c", secrets.token_bytes(self.big_bytes)),
        ):
            await at.store.put_new(at.blob(name) if len(data) > 1024 * 1024 else at.key(name), data)
        assert await read(at.store, at.key("a")) == b"x"
        found = await at.store.get(at.blob("c"))
        assert (found.size, found.start, found.length) == (self.big_bytes, 0, self.big_bytes)
        assert len(await found.read()) == self.big_bytes

    async def test_an_empty_object_is_an_object(self, at: Opened) -> None:
        await at.store.put_new(at.key("empty"), b"")
        await at.store.put_new(at.key("empty-streamed"), Body(0, lambda: stream([])))
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

    async def test_a_failed_overwrite_leaves_what_was_there(self, at: Opened) -> None:
        async def failing() -> AsyncGenerator[bytes]:
            yield b"x" * 100
            raise SourceFailed

        await at.store.put(at.cursor, b"old")
        for size in (1000, 300_000):
            with pytest.raises(SizeMismatch):
                await at.store.put(at.cursor, Body(size, lambda: stream([b"short"])))
            with pytest.raises(SourceFailed):
                await at.store.put(at.cursor, Body(size, failing))
            with pytest.raises(AlreadyExists):
                await at.store.put_new(at.cursor, bytes(size))
            assert await read(at.store, at.cursor) == b"old"
        assert [entry.size for entry in (await at.store.list(at.root)).entries] == [3]

    async def test_a_key_holds_what_was_done_to_it_last(self, at: Opened) -> None:
        """Small objects may be kept somewhere else than large ones, and in memory besides."""
        for number, size in enumerate((10, 300_000, 20, 30, 300_001, 0)):
            data = bytes([number]) * size
            await at.store.put_new(at.key("slot"), data)
            assert await read(at.store, at.key("slot")) == data
            await at.store.delete(at.key("slot"))
            with pytest.raises(NotFound):
                await at.store.get(at.key("slot"))
        await at.store.put_new(at.cursor, b"1")
        await at.store.put(at.cursor, bytes(300_000))
        await at.store.delete(at.cursor)
        await at.store.put(at.cursor, b"2")
        assert await read(at.store, at.cursor) == b"2"
        assert await names(at.store, at.root) == [at.cursor]

    async def test_sizes_that_no_object_has_are_refused_unread(self, at: Opened) -> None:
        def unread() -> AsyncGenerator[bytes]:
            raise AssertionError("the body was asked for")

        for size, error in ((OBJECT_BYTES_MAX + 1, BodyTooLarge), (-1, BadRequest)):
            for put in (at.store.put_new, at.store.put):
                with pytest.raises(error):
                    await put(at.cursor, Body(size, unread))
        assert (await at.store.list(at.root)).entries == ()

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
        await at.store.put_new(at.blob("big"), secrets.token_bytes(self.big_bytes))
        for _ in range(40):
            async with await at.store.get(at.blob("big")) as found:
                assert found.size == self.big_bytes
        assert len(await read(at.store, at.blob("big"))) == self.big_bytes

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

    async def test_a_streamed_body_arrives_whole(self, at: Opened) -> None:
        for name, sizes in (("small", [1, 0, 7]), ("odd", [70_001] * 9), ("one", [200_000])):
            pieces = [secrets.token_bytes(size) for size in sizes]
            await at.store.put_new(at.key(name), Body(sum(sizes), partial(stream, pieces)))
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
            await at.store.put_new(at.key("wrong"), Body(declared, lambda: stream(pieces)))
        with pytest.raises(SizeMismatch):
            await at.store.put(at.cursor, Body(declared, lambda: stream(pieces)))
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


class SourceFailed(Exception):
    """The source of a body, in these tests."""
