"""Large bodies on their way to the bucket: written to a temporary file that has no name, then sent from it.

So a body that turns out too short, too long or broken never reaches the bucket, and memory stays small whatever the size.
"""

import hashlib
from pathlib import Path
from typing import BinaryIO

from crystal_relay.limits import PIECE_BYTES
from crystal_relay.s3.bucket import Content
from crystal_relay.spool import nameless_file, write_all


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


class BucketSpool:
    """One body in a file without a name. All methods block; one thread at a time. Raises StoreFull when the disk is full."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: None takes the system's for temporary files."""
        self._file = nameless_file(directory)
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._size = 0

    def write(self, piece: bytes) -> None:
        """Append."""
        write_all(self._file, piece)
        self._md5.update(piece)
        self._size += len(piece)

    def content(self) -> Content:
        """What was written, to send."""
        return Content(Blocks(self._file), self._size, self._md5.digest())

    def close(self) -> None:
        """The bytes are gone with it. Idempotent."""
        self._file.close()
