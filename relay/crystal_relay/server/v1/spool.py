"""A drop's body while it arrives: small ones in memory, large ones in a temporary file without a name.

The old wire format names no digest and no id, so a drop can only be placed (is it a repeated one? after which other?) once
all of it is there. The file has no name, so a crash leaves nothing. What may be in flight is bounded; beyond that the relay
is busy.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

from crystal_relay.errors import Busy, StoreFull
from crystal_relay.limits import MIB, PIECE_BYTES
from crystal_relay.server.v1.names import DIGEST_DIGITS
from crystal_relay.store import Body, checked_pieces

MEMORY_BYTES_MAX = 1 * MIB
"""Up to this size a body stays in memory."""
IN_MEMORY_BYTES_MAX = 64 * MIB
IN_FILES_BYTES_MAX = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Received:
    """A body that is all there, to be stored any number of times, and the beginning of its SHA-256."""

    body: Body
    digest: str


class Spool:
    """Of one relay process."""

    def __init__(self) -> None:
        self._in_memory = 0
        self._in_files = 0

    @asynccontextmanager
    async def receive(self, body: Body) -> AsyncGenerator[Received]:
        """The body once it has arrived, for the time of the context. Raises Busy, StoreFull, and what its source raises."""
        self.reserve(body.size)
        try:
            if body.size <= MEMORY_BYTES_MAX:
                whole = b"".join([piece async for piece in checked_pieces(body)])
                digest = hashlib.sha256(whole).hexdigest()[:DIGEST_DIGITS]
                yield Received(Body(len(whole), lambda: _once(whole)), digest)
            else:
                with _temporary_file() as file:
                    digest = await _write(file, body)
                    yield Received(Body(body.size, lambda: _read(file)), digest)
        finally:
            self.release(body.size)

    def reserve(self, size: int) -> None:
        """Take the room for a body of that size. Raises Busy."""
        small = size <= MEMORY_BYTES_MAX
        used = self._in_memory if small else self._in_files
        if used + size > (IN_MEMORY_BYTES_MAX if small else IN_FILES_BYTES_MAX):
            raise Busy("the relay receives too much at once")
        self._count(size, small=small)

    def release(self, size: int) -> None:
        """Give it back."""
        self._count(-size, small=size <= MEMORY_BYTES_MAX)

    def _count(self, size: int, *, small: bool) -> None:
        if small:
            self._in_memory += size
        else:
            self._in_files += size


def _temporary_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError:
        raise _no_room() from None


async def _write(file: IO[bytes], body: Body) -> str:
    digest = hashlib.sha256()

    def write(data: bytes) -> None:
        digest.update(data)
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    gathered = bytearray()
    try:
        async for piece in checked_pieces(body):
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                await asyncio.to_thread(write, bytes(gathered))
                gathered.clear()
        await asyncio.to_thread(write, bytes(gathered))
    except OSError:
        raise _no_room() from None
    return digest.hexdigest()[:DIGEST_DIGITS]


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece


async def _once(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


def _no_room() -> StoreFull:
    return StoreFull("the relay has no room to receive this", hint="Make room for temporary files (TMPDIR).")
