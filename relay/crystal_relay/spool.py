"""Spooling of bodies that are received whole before they are passed on: a budget of bytes, and unnamed temporary files.

An unnamed file disappears with its process.
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from crystal_relay.errors import Busy, StoreFull


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


def nameless_file(directory: Path | None = None) -> BinaryIO:
    """An unnamed temporary file, by default in the system's directory. Blocks. Raises StoreFull."""
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
    """The error for a temporary file that cannot be created or written."""
    return StoreFull(
        f"the relay has no room to receive this ({error.strerror})",
        hint="Its directory for temporary files (TMPDIR) is full or not writable.",
    )
