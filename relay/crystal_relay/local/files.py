"""Large objects as files: written under a temporary name, made durable, then renamed. A row makes them exist.

    begun --all bytes, fsync--> synced --rename, fsync of the directory--> placed --row committed--> an object
    begun, synced, placed --error--> removed; --crash--> swept at the next start

A name is random and never used twice, so a reader of an overwritten object goes on reading the old bytes.
"""

import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from crystal_relay.limits import MIB
from crystal_relay.local.disk_space import Reservation

HINTED_BYTES = 2 * MIB
"""After so many bytes of a file the system is told to begin writing them to the disk."""

_TEMPORARY = ".tmp"
_PLACED = ".obj"


class ObjectFiles:
    """The directory of large objects. All calls block; any thread may make them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(self) -> None:
        """Make the 256 directories, durably. Idempotent."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for number in range(256):
            (self._directory / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)
        sync_directory(self._directory)
        sync_directory(self._directory.parent)

    def is_prepared(self) -> bool:
        """Whether the directories are there."""
        return all((self._directory / f"{number:02x}").is_dir() for number in range(256))

    def sweep(self, is_used: Callable[[str], bool]) -> int:
        """Remove remains of crashes: temporary files, and files that no row names. Returns how many."""
        removed = 0
        for path in self._all():
            if path.suffix == _TEMPORARY or (path.suffix == _PLACED and not is_used(path.stem)):
                path.unlink()
                removed += 1
        return removed

    def new(self, claim: Reservation) -> "FileInProgress":
        """A new file for the claimed space. Does not touch the disk yet."""
        return FileInProgress(self, claim)

    def open(self, name: str) -> BinaryIO:
        """Open an object's file. Raises FileNotFoundError."""
        return self.path(name).open("rb", buffering=0)

    def remove(self, name: str) -> None:
        """Remove an object's file. No error if it is gone."""
        self.path(name).unlink(missing_ok=True)

    def path(self, name: str, suffix: str = _PLACED) -> Path:
        """Where the file of that name is."""
        return self._directory / name[:2] / f"{name}{suffix}"

    def _all(self) -> Iterator[Path]:
        for directory in sorted(self._directory.iterdir()):
            if directory.is_dir():
                yield from directory.iterdir()


class FileInProgress:
    """A file that is being received. One call at a time, then either `place` or `discard`."""

    def __init__(self, files: ObjectFiles, claim: Reservation) -> None:
        self._claim = claim
        self.name = secrets.token_hex(16)
        self._temporary = files.path(self.name, _TEMPORARY)
        self._placed = files.path(self.name)
        self._file: FileIO | None = None
        self._written = 0
        self._hinted = 0

    def begin(self) -> None:
        """Create it. Raises OSError."""
        self._file = FileIO(self._temporary, "xb", opener=_open_private)

    def write(self, pieces: Sequence[bytes | bytearray]) -> None:
        """Append. Raises OSError."""
        assert self._file is not None, "begin comes first"
        for piece in pieces:
            view = memoryview(piece)
            while view:
                written = self._file.write(view)
                self._claim.use(written)
                self._written += written
                view = view[written:]
        if self._written - self._hinted >= HINTED_BYTES:
            begin_writing(self._file.fileno(), self._hinted, self._written - self._hinted)
            self._hinted = self._written

    def place(self) -> None:
        """Make the bytes and then the name durable. Raises OSError, after which the file may exist anyway."""
        assert self._file is not None, "begin comes first"
        sync_file(self._file.fileno())
        self._file.close()
        self._temporary.rename(self._placed)
        sync_directory(self._placed.parent)

    def discard(self) -> None:
        """Remove the file in any state. Idempotent. On failure, the sweep of the next start removes it."""
        self._claim.release()
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        for path in (self._temporary, self._placed):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_file(descriptor: int) -> None:
    """Force a file's bytes to the disk. On macOS `fsync` alone leaves them in the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def begin_writing(descriptor: int, start: int, length: int) -> None:
    """Have the system begin to write these bytes to the disk, so that a flush takes less time. No more than a hint."""
    if sys.platform == "linux":
        with suppress(OSError):
            # What has yet to be written stays in memory: Linux begins to write it, and drops only what was written before.
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Force a directory's names to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
