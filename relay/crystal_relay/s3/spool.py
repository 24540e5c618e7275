"""Spooling of large bodies: written to an unnamed temporary file, then sent to the bucket.

So a body that is too short, too long or broken never reaches the bucket, and memory is bounded.
"""

import hashlib
from pathlib import Path
from typing import BinaryIO

from crystal_relay.limits import PIECE_BYTES
from crystal_relay.s3.bucket import Content
from crystal_relay.spool import nameless_file, write_all


class Blocks:
    """A file that is sent in large blocks.

    The library below the SDK reads 16 KiB at a time, and accepts more: larger blocks take 32 reads for 8 MiB instead of 512,
    each of which would let another thread run in between.
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
        """Close the file, which deletes it. Idempotent."""
        self._file.close()
