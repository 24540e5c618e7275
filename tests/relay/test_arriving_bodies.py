"""Bodies while they arrive: the next piece is on its way while one is written, and nothing is written once that has ended."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crystal_relay.errors import SizeMismatch, StoreFull
from crystal_relay.limits import PIECE_BYTES
from crystal_relay.server.object_requests import keep_body
from crystal_relay.spool import COPIED_BYTES_MAX, write_arriving
from crystal_relay.store import Body

PIECES = [bytes([number]) * PIECE_BYTES for number in range(6)]


class Writer:
    """Notes what it is given. Each writing takes a moment."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.written: list[bytes | bytearray] = []
        self.running = 0
        self.begun = asyncio.Event()
        self._fails_at = fails_at

    async def write(self, pieces: Sequence[bytes | bytearray]) -> None:
        assert not self.running, "one at a time"
        self.running += 1
        self.begun.set()
        try:
            await asyncio.sleep(0.02)
            self.written += pieces
            if len(self.written) - 1 == self._fails_at:
                raise StoreFull("the disk is full")
        finally:
            self.running -= 1


def body_of(pieces: Sequence[bytes], size: int | None = None, given: list[int] | None = None) -> Body:
    async def source() -> AsyncIterator[bytes]:
        for number, piece in enumerate(pieces):
            if given is not None:
                given.append(number)
            yield piece
            await asyncio.sleep(0)

    return Body(sum(map(len, pieces)) if size is None else size, source)


async def test_pieces_are_written_in_order_while_the_next_ones_arrive() -> None:
    writer, given = Writer(), list[int]()
    writing = asyncio.create_task(write_arriving(body_of([*PIECES, b"rest"], given=given), writer.write))
    await writer.begun.wait()
    await asyncio.sleep(0.005)
    assert not writer.written
    assert len(given) > 2
    await writing
    assert writer.written == [*PIECES, b"rest"]


@pytest.mark.parametrize("size", [64, 1448, COPIED_BYTES_MAX - 1])
async def test_small_pieces_are_put_together_and_larger_ones_passed_on_as_they_are(size: int) -> None:
    small = [bytes([number % 256]) * size for number in range(3 * PIECE_BYTES // size)]
    large = bytes(COPIED_BYTES_MAX)
    writer = Writer()
    await write_arriving(body_of([*small, large, *small]), writer.write)
    assert b"".join(writer.written) == b"".join([*small, large, *small])
    assert len(writer.written) <= 2 * 3 + 3
    assert max(map(len, writer.written)) < PIECE_BYTES + size
    assert any(piece is large for piece in writer.written), "not copied"


async def test_a_write_that_fails_ends_the_body() -> None:
    writer, given = Writer(fails_at=1), list[int]()
    with pytest.raises(StoreFull):
        await write_arriving(body_of(PIECES, given=given), writer.write)
    assert not writer.running
    assert len(writer.written) == 2
    assert len(given) < len(PIECES)


@pytest.mark.parametrize("size", [len(PIECES) * PIECE_BYTES - 1, len(PIECES) * PIECE_BYTES + 1])
async def test_nothing_is_being_written_any_more_when_a_body_of_another_size_is_refused(size: int) -> None:
    writer = Writer()
    with pytest.raises(SizeMismatch):
        await write_arriving(body_of(PIECES, size), writer.write)
    assert not writer.running
    assert writer.written == PIECES[: len(writer.written)]


async def test_who_leaves_waits_for_the_write_that_runs() -> None:
    writer = Writer()
    writing = asyncio.create_task(write_arriving(body_of(PIECES), writer.write))
    await writer.begun.wait()
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    assert writing.cancelled()
    assert not writer.running
    assert len(writer.written) == 1


def test_pieces_that_wait_to_be_read_are_kept_together() -> None:
    cycle = cast(Any, SimpleNamespace(body=bytearray()))
    first = b"one "
    keep_body(cycle, first)
    assert cycle.body is first, "not copied"
    for piece in (b"two ", b"three"):
        keep_body(cycle, piece)
    assert cycle.body == b"one two three"
    assert first == b"one "
