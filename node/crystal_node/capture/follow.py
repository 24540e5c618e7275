"""Following a file of lines by byte offset, through growth, rotation, truncation and replacement.

A state names what was read by content, not by inode: the hash of the file's first bytes and the hash of the last bytes
before the offset. If both still stand, the file has only grown (or was moved or copied) and is read on; otherwise it is
another file, and is read from its start. A last line without its newline is left for the next time.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A longer line is stepped over, and counted, without being held in memory."""
PASS_BYTES_MAX = 4 * 1024 * 1024
"""A pass ends at the first line end behind this many bytes."""
BLOCK_BYTES = 256 * 1024
MARK_BYTES = 512
"""How much of the file's head, and of what stands before the offset, a state remembers the hash of."""


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """How far a file was read. ``inside_line``: the offset stands within a line whose rest is to be dropped.

    ``size`` and ``modified`` (nanoseconds) are those of the file when it was read: if both are unchanged there is
    nothing to do. ``head`` and ``tail`` are SHA-256 hashes of the first ``head_bytes`` bytes and of the last
    ``tail_bytes`` bytes before ``offset``.
    """

    offset: int = 0
    head_bytes: int = 0
    head: bytes = b""
    tail_bytes: int = 0
    tail: bytes = b""
    inside_line: bool = False
    size: int = -1
    modified: int = -1


START = FileState()


class NotAFile(OSError):
    """A transcript's path is a link, a folder or a device."""


@dataclass(frozen=True, slots=True)
class Line:
    """A complete line without its end, or None for one over the limit. ``end`` is the offset behind it."""

    data: bytes | None
    end: int


class LineReader:
    """The complete lines of one file from a state on. Use as a context manager; ``state()`` after the last line."""

    def __init__(self, path: Path, state: FileState | None) -> None:
        """Raises OSError: the file cannot be opened, or is not a regular file."""
        self._file = _open_regular(path)
        found = os.fstat(self._file.fileno())
        self.size, self.modified = found.st_size, found.st_mtime_ns
        before = state or START
        self.restarted = before.offset > 0 and not self._still_stands(before)
        self._offset = 0 if self.restarted else before.offset
        self._dropping = before.inside_line and not self.restarted
        self.more = False

    def __enter__(self) -> "LineReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def lines(self) -> Iterator[Line]:
        """Complete lines, until the end of the file or of the pass. What was yielded counts as read."""
        self._file.seek(self._offset)
        started = self._offset
        held = bytearray()
        while block := self._file.read(BLOCK_BYTES):
            parts = block.split(b"\n")
            for part in parts[:-1]:
                held += part
                self._offset += len(held) + 1
                if self._dropping:
                    self._dropping = False
                elif len(held) > LINE_BYTES_MAX:
                    yield Line(None, self._offset)
                else:
                    yield Line(bytes(held).removesuffix(b"\r"), self._offset)
                held.clear()
                if self._offset - started >= PASS_BYTES_MAX:
                    self.more = self._offset < self.size
                    return
            held += parts[-1]
            if len(held) > LINE_BYTES_MAX:
                # The offset moves into the line: whatever comes of it, now or in a later pass, is dropped.
                self._offset += len(held)
                held.clear()
                if not self._dropping:
                    self._dropping = True
                    yield Line(None, self._offset)

    def state(self) -> FileState:
        """The state behind what was read."""
        head_bytes = min(MARK_BYTES, self._offset)
        tail_bytes = min(MARK_BYTES, self._offset)
        return FileState(
            offset=self._offset,
            head_bytes=head_bytes,
            head=self._hash(0, head_bytes),
            tail_bytes=tail_bytes,
            tail=self._hash(self._offset - tail_bytes, tail_bytes),
            inside_line=self._dropping,
            size=self.size,
            modified=self.modified,
        )

    def skip_to_end(self) -> FileState:
        """The state behind everything there is now; a half line is dropped, its rest too when it comes."""
        self._offset = self.size
        self._file.seek(max(0, self.size - 1))
        self._dropping = self.size > 0 and self._file.read(1) != b"\n"
        return self.state()

    def _still_stands(self, state: FileState) -> bool:
        if self.size < state.offset:
            return False
        head_stands = self._hash(0, state.head_bytes) == state.head
        return head_stands and self._hash(state.offset - state.tail_bytes, state.tail_bytes) == state.tail

    def _hash(self, start: int, length: int) -> bytes:
        self._file.seek(start)
        return sha256(self._file.read(length)).digest()


def unchanged(path: Path, state: FileState | None) -> bool:
    """Whether the file is just as it was left, by size and time: a cheap look before opening it. Raises OSError."""
    if state is None:
        return False
    found = path.lstat()
    return found.st_size == state.size and found.st_mtime_ns == state.modified


def _open_regular(path: Path) -> BinaryIO:
    """Opens without following a link in the last part, and without waiting on pipes or devices."""
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_CLOEXEC", 0)
    )
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFile(f"{path} is not a regular file")
        return os.fdopen(descriptor, "rb", buffering=BLOCK_BYTES)
    except BaseException:
        os.close(descriptor)
        raise
