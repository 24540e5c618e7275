"""Spooling of bodies that are received whole before they are passed on: a budget of bytes, and unnamed temporary files.

An unnamed file disappears with its process.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from crystal_relay.errors import Busy, RelayError, StoreFull
from crystal_relay.limits import KIB, PIECE_BYTES
from crystal_relay.store import Body, checked_pieces
from crystal_relay.threads import to_its_end

Writing: TypeAlias = Callable[[Sequence[bytes | bytearray]], Coroutine[Any, Any, None]]
COPIED_BYTES_MAX = 32 * KIB
"""Pieces below this size are copied together: a write for each of them costs more."""


class Budget:
    """A number of bytes shared by all bodies in transit. One event loop."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self.taken = 0

    @contextmanager
    def of(self, size: int) -> Generator[None]:
        """Hold `size` bytes of the budget. Raises Busy."""
        if self.taken + size > self._limit:
            raise Busy(f"the relay receives too much at once: {self._what} is used up")
        self.taken += size
        try:
            yield
        finally:
            self.taken -= size


async def write_arriving(body: Body, write: Writing) -> None:
    """Give the pieces of a body to `write`, some at a time: what is received next arrives while what came before is written.

    Small pieces are put together, larger ones are passed on as they are. `write` is called again only when it has returned, and
    has returned when this ends, however it does.
    """
    gathered: list[bytes | bytearray] = []
    size = 0
    writing: asyncio.Task[None] | None = None
    try:
        async for piece in checked_pieces(body):
            if len(piece) >= COPIED_BYTES_MAX:
                gathered.append(piece)
            elif gathered and isinstance(gathered[-1], bytearray):
                gathered[-1] += piece
            else:
                gathered.append(bytearray(piece))
            size += len(piece)
            if size >= PIECE_BYTES:
                if writing is not None:
                    await to_its_end(writing)
                writing = asyncio.create_task(write(gathered))
                gathered, size = [], 0
    except BaseException:
        # Nobody may close a file under the thread that writes to it. What it raises comes second here.
        if writing is not None:
            with suppress(RelayError):
                await to_its_end(writing)
        raise
    if writing is not None:
        await to_its_end(writing)
    if gathered:
        await to_its_end(asyncio.create_task(write(gathered)))


def nameless_file(directory: Path | None = None) -> BinaryIO:
    """An unnamed temporary file, by default in the system's directory. Blocks. Raises StoreFull."""
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=0, dir=directory, prefix="crystal-relay-"))
    except OSError as error:
        raise no_room(error) from None


def write_all(file: BinaryIO, data: bytes | bytearray) -> None:
    """Append all of it. Blocks. Raises StoreFull."""
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise no_room(error) from None


def no_room(error: OSError) -> StoreFull:
    """The error for a temporary file that cannot be created or written."""
    return StoreFull(
        f"the relay has no room to receive this ({error.strerror})",
        hint="Its directory for temporary files (TMPDIR) is full or not writable.",
    )
