"""What bodies need that are received whole before they go on: a bound on their bytes, and files without a name for large ones.

Such a file is gone with its process, whatever happens to it.
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from crystal_relay.errors import Busy, StoreFull


class Budget:
    """A number of bytes that all bodies on their way share. One event loop."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self.taken = 0

    @contextmanager
    def of(self, size: int) -> Generator[None]:
        """Hold `size` bytes of it. Raises Busy."""
        if self.taken + size > self._limit:
            raise Busy(f"the relay receives too much at once: {self._what} is used up")
        self.taken += size
        try:
            yield
        finally:
            self.taken -= size


def nameless_file(directory: Path | None = None) -> BinaryIO:
    """A temporary file that goes when it is closed. Blocks. `directory`: None takes the system's. Raises StoreFull."""
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=0, dir=directory, prefix="crystal-relay-"))
    except OSError as error:
        raise no_room(error) from None


def write_all(file: BinaryIO, data: bytes) -> None:
    """Append all of it. Blocks. Raises StoreFull."""
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise no_room(error) from None


def no_room(error: OSError) -> StoreFull:
    """For a temporary file that cannot be made or written: nothing was stored."""
    return StoreFull(
        f"the relay has no room to receive this ({error.strerror})",
        hint="Its directory for temporary files (TMPDIR) is full or not writable.",
    )
