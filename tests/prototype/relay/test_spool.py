"""A drop's body while it arrives: bounded, whole, and told apart from another."""

import hashlib
import resource
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crystal_prototype.relay.spool import IN_FILES_BYTES_MAX, IN_MEMORY_BYTES_MAX, MEMORY_BYTES_MAX, V1Spool
from crystal_relay.errors import Busy, SizeMismatch, StoreFull
from crystal_relay.limits import MIB
from crystal_relay.store import Body, body_of, whole_body


@pytest.mark.parametrize("size", [1, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX + 1, 3 * MIB + 7])
async def test_what_was_received_can_be_read_again_and_again(size: int) -> None:
    whole = bytes(range(256)) * (size // 256 + 1)
    whole = whole[:size]
    async with V1Spool().receive(body_of(whole)) as received:
        assert received.digest == hashlib.sha256(whole).hexdigest()[:32]
        for _ in range(2):
            assert await whole_body(received.body) == whole


@pytest.mark.parametrize("size", [10, 3 * MIB])
@pytest.mark.parametrize("off", [-1, 1])
async def test_a_body_of_another_size_than_declared_is_refused(size: int, off: int) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"x" * (size + off)

    spool = V1Spool()
    with pytest.raises(SizeMismatch):
        async with spool.receive(Body(size, pieces)):
            pytest.fail("it was taken")


def test_what_is_in_flight_is_bounded_and_given_back() -> None:
    spool = V1Spool()
    for size, limit in ((MEMORY_BYTES_MAX, IN_MEMORY_BYTES_MAX), (100 * MIB, IN_FILES_BYTES_MAX)):
        for _ in range(2):
            with ExitStack() as held:
                for _ in range(limit // size):
                    held.enter_context(spool.room(size))
                with pytest.raises(Busy):
                    held.enter_context(spool.room(size))


async def test_no_room_for_temporary_files_is_said_as_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = V1Spool()
    body = body_of(b"x" * (4 * MIB))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
    try:
        with pytest.raises(StoreFull):
            async with spool.receive(body):
                pytest.fail("it was taken")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StoreFull):
        async with spool.receive(body):
            pytest.fail("it was taken")
    monkeypatch.undo()
    async with spool.receive(body) as received:
        assert received.body.size == 4 * MIB
