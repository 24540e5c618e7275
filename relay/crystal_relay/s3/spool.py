"""Large bodies on their way to the bucket: written to a temporary file that has no name, then sent from it.

So a body that turns out too short, too long or broken never reaches the bucket, and memory stays small whatever the size.
What is on the way is bounded: who comes when it is full is told to come again.
"""

import hashlib
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from crystal_relay.errors import Busy
from crystal_relay.limits import PIECE_BYTES
from crystal_relay.s3.bucket import Content


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
            raise Busy(f"too much is on its way to the object store: {self._what} is used up")
        self.taken += size
        try:
            yield
        finally:
            self.taken -= size


class Blocks:
    """A file to send, in blocks of a size that is worth a call.

    What sends it below the SDK asks for 16 KiB at a time. It takes what it is given, so it is given more: for 8 MiB
    32 turns in place of 512, each of which would let another thread in between.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """At least `size` bytes, unless the file ends."""
        return self._file.read(size if size <= 0 else max(size, PIECE_BYTES))

    def seek(self, offset: int, whence: int = 0) -> int:
        """As a file's."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As a file's."""
        return self._file.tell()


class Spool:
    """One body in a file without a name. All methods block; one thread at a time. Raises Busy when the disk is full."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: None takes the system's for temporary files."""
        try:
            self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=directory, prefix="crystal-relay-"))  # noqa: SIM115
        except OSError as error:
            raise _no_room(error) from None
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._size = 0

    def write(self, piece: bytes) -> None:
        """Append."""
        try:
            self._file.write(piece)
        except OSError as error:
            raise _no_room(error) from None
        self._md5.update(piece)
        self._size += len(piece)

    def flush(self) -> None:
        """After the last piece."""
        try:
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from None

    def content(self) -> Content:
        """What was written and flushed, to send."""
        return Content(Blocks(self._file), self._size, self._md5.digest())

    def close(self) -> None:
        """The bytes are gone with it. Idempotent."""
        self._file.close()


def _no_room(error: OSError) -> Busy:
    return Busy(
        f"a large body cannot be received ({error.strerror})",
        hint="The relay's directory for temporary files (TMPDIR) is full or not writable.",
    )
