"""A drop's body while it arrives: small ones in memory, large ones in a temporary file without a name.

The old wire format has no digest and no id, so a drop's id and order are known only once all of it has arrived. The file has
no name, so a crash leaves nothing behind. The bytes in flight are bounded; beyond that the relay is busy.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

from crystal_prototype.relay.names import DIGEST_DIGITS
from crystal_relay.limits import MIB, PIECE_BYTES
from crystal_relay.spool import Budget, nameless_file, write_all, write_arriving
from crystal_relay.store import Body, body_of, whole_body

MEMORY_BYTES_MAX = 1 * MIB
"""Up to this size a body stays in memory."""
IN_MEMORY_BYTES_MAX = 64 * MIB
IN_FILES_BYTES_MAX = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Received:
    """A complete body, which can be read any number of times, and the beginning of its SHA-256."""

    body: Body
    digest: str


class V1Spool:
    """The spool of one relay process."""

    def __init__(self) -> None:
        self._memory = Budget(IN_MEMORY_BYTES_MAX, "the room for small drops")
        self._files = Budget(IN_FILES_BYTES_MAX, "the room for large drops")

    @asynccontextmanager
    async def receive(self, body: Body) -> AsyncGenerator[Received]:
        """Yield the body once it has arrived. Raises Busy, StoreFull, and what its source raises."""
        with self.room(body.size):
            if body.size <= MEMORY_BYTES_MAX:
                whole = await whole_body(body)
                digest = hashlib.sha256(whole).hexdigest()[:DIGEST_DIGITS]
                yield Received(body_of(whole), digest)
            else:
                with nameless_file() as file:
                    digest = await _write(file, body)
                    yield Received(Body(body.size, lambda: _read(file)), digest)

    def room(self, size: int) -> AbstractContextManager[None]:
        """Reserve room for a body of that size. Raises Busy."""
        return (self._memory if size <= MEMORY_BYTES_MAX else self._files).of(size)


async def _write(file: BinaryIO, body: Body) -> str:
    digest = hashlib.sha256()

    def write(pieces: Sequence[bytes | bytearray]) -> None:
        for piece in pieces:
            digest.update(piece)
            write_all(file, piece)

    await write_arriving(body, lambda pieces: asyncio.to_thread(write, pieces))
    return digest.hexdigest()[:DIGEST_DIGITS]


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece
