"""Reading a growing file of lines by byte offset, through rotation, truncation and replacement.

A state identifies what was read by content, not by inode: the hashes of the file's first bytes and of the last bytes before the
offset, as they were consumed. If both are unchanged, the file has only grown (or was moved, copied, or away for a while) and is
read on; otherwise it is another file and is read from its start. A last line without newline is left for the next pass; in a
quiet file the caller may take it (``LineReader.unended``).
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import structs

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A longer line is skipped and counted without being held in memory."""
PASS_BYTES_MAX = 4 * 1024 * 1024
"""A pass ends at the first line end after this many bytes, or within a line that is being skipped."""
BLOCK_BYTES = 256 * 1024
FIRST_LINE_BYTES_MAX = 1024 * 1024
MARK_BYTES = 1024
"""How many bytes of the file's head, and before the offset, a state's hashes cover."""


OFFSET_MAX = 2**62
Count = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
MarkCount = Annotated[int, msgspec.Meta(ge=0, le=MARK_BYTES)]


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """How far a file was read.

    ``head`` and ``tail`` are SHA-256 hashes of the first ``head_bytes`` bytes and of the last ``tail_bytes`` bytes before
    ``offset``. ``inside_line``: the offset is within a line whose rest is to be dropped. ``stepped_over``: something in this
    file was skipped on purpose; if it has to be read again, messages without a time stay out before the offset
    ``unsure_until``.

    ``looked``: what follows the offset was read when the file was quiet, and is no whole record. ``memo`` is the adapter's own:
    what earlier lines say about later ones.

    ``size`` (bytes), ``modified`` and ``changed`` (nanoseconds) and ``inode`` are those of the file when it was read: while
    all are the same there is nothing to do, and the file need not be opened. They decide nothing else.
    """

    offset: Count = 0
    head_bytes: MarkCount = 0
    head: bytes = b""
    tail_bytes: MarkCount = 0
    tail: bytes = b""
    inside_line: bool = False
    size: int = -1
    modified: int = -1
    changed: int = -1
    inode: int = -1
    stepped_over: bool = False
    looked: bool = False
    unsure_until: Count = 0
    memo: bytes = b""


START = FileState()


class NotAFile(OSError):
    """A transcript's path is a link, a folder or a device."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """A complete line without its end, or None for one over the limit. ``start`` and ``end`` are byte offsets."""

    data: bytes | None
    start: int
    end: int


class LineReader:
    """The complete lines of one file from a state on. Use as a context manager; ``state()`` after the last line.

    ``restarted``: it is another file than the state's, and is read from its start (``from_start``). ``more``: the pass ended at
    its bound. ``unended``: a last line without newline, in a file that was last changed at ``quiet_ns`` or before.
    ``stepped_over``, ``unsure_until``, ``memo``: see ``FileState``.
    """

    def __init__(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> None:
        """Raises OSError: the file cannot be opened, or is not a regular file."""
        self._file = open_regular(path)
        try:
            self._found = os.fstat(self._file.fileno())
            before = state or START
            self._head = self._at(0, before.head_bytes)
            self._tail = self._at(max(0, before.offset - before.tail_bytes), before.tail_bytes)
            self.restarted = before.offset > 0 and not self._still_stands(before)
        except BaseException:
            self._file.close()
            raise
        self.stepped_over = before.stepped_over
        self.unsure_until = min(before.unsure_until, self._found.st_size)
        self.memo = before.memo
        self.from_start = self.restarted or before.offset == 0
        self.more = False
        self.unended: FileLine | None = None
        self._quiet = self._found.st_mtime_ns <= quiet_ns
        self._offset, self._dropping = before.offset, before.inside_line
        if self.restarted:
            self._offset, self._dropping, self._head, self._tail = 0, False, b"", b""
            if self.stepped_over:
                self.unsure_until = self._found.st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def lines(self) -> Iterator[FileLine]:
        """Complete lines, until the end of the file or of the pass. A yielded line counts as read."""
        self._file.seek(self._offset)
        limit = self._offset + PASS_BYTES_MAX
        held = bytearray()
        while block := self._file.read(BLOCK_BYTES):
            *complete, rest = block.split(b"\n")
            for part in complete:
                held += part
                held += b"\n"
                line = self._consume(held)
                held.clear()
                if line is not None:
                    yield line
                if self._offset >= limit:
                    self.more = self._offset < self._found.st_size
                    return
            held += rest
            if self._dropping or len(held) > LINE_BYTES_MAX:
                # The offset moves into the line: the rest of it, now or in a later pass, is dropped.
                line = self._drop(held)
                held.clear()
                if line is not None:
                    yield line
                if self._offset >= limit:
                    self.more = True
                    return
        if held and self._quiet and self._offset + len(held) == self._found.st_size:
            self.unended = FileLine(bytes(held), self._offset, self._found.st_size)

    def take_unended(self) -> None:
        """Counts the last line as read without its newline, which would later be an empty line."""
        if self.unended is not None and self.unended.data is not None:
            self._advance(bytearray(self.unended.data))

    def first_line(self) -> bytes | None:
        """The first line; None if it is longer than ``FIRST_LINE_BYTES_MAX`` or has no end yet."""
        line, end, _ = self._at(0, FIRST_LINE_BYTES_MAX).partition(b"\n")
        return line if end else None

    def state(self) -> FileState:
        """The state after what was read."""
        return FileState(
            offset=self._offset,
            head_bytes=len(self._head),
            head=sha256(self._head).digest(),
            tail_bytes=len(self._tail),
            tail=sha256(self._tail).digest(),
            inside_line=self._dropping,
            size=self._found.st_size,
            modified=self._found.st_mtime_ns,
            changed=self._found.st_ctime_ns,
            inode=self._found.st_ino,
            stepped_over=self.stepped_over,
            looked=self._quiet and not self.more,
            unsure_until=self.unsure_until,
            memo=self.memo,
        )

    def skip_to_end(self) -> FileState:
        """The state after everything in the file; an incomplete line is dropped, and its rest when it comes."""
        size = self._found.st_size
        self._head = self._at(0, min(MARK_BYTES, size))
        self._tail = self._at(size - min(MARK_BYTES, size), min(MARK_BYTES, size))
        self._offset = size
        self._dropping = size > 0 and not self._tail.endswith(b"\n")
        self.stepped_over = self.stepped_over or size > 0
        return self.state()

    def _consume(self, held: bytearray) -> FileLine | None:
        """Moves past a complete line. None: it was the rest of a dropped one."""
        start = self._offset
        self._advance(held)
        if self._dropping:
            self._dropping = False
            return None
        if len(held) - 1 > LINE_BYTES_MAX:
            return FileLine(None, start, self._offset)
        return FileLine(bytes(held[: -2 if held.endswith(b"\r\n") else -1]), start, self._offset)

    def _drop(self, held: bytearray) -> FileLine | None:
        start = self._offset
        self._advance(held)
        if self._dropping:
            return None
        self._dropping = True
        return FileLine(None, start, self._offset)

    def _advance(self, consumed: bytearray) -> None:
        self._offset += len(consumed)
        if len(self._head) < MARK_BYTES:
            self._head += bytes(consumed[: MARK_BYTES - len(self._head)])
        self._tail = (self._tail + bytes(consumed[-MARK_BYTES:]))[-MARK_BYTES:]

    def _still_stands(self, state: FileState) -> bool:
        return sha256(self._head).digest() == state.head and sha256(self._tail).digest() == state.tail

    def _at(self, start: int, length: int) -> bytes:
        self._file.seek(start)
        return self._file.read(length)


def unchanged(path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
    """Whether size, times and inode are as they were: a cheap check before opening the file. A last line without newline is
    read once more when the file has not changed since ``quiet_ns``. Raises OSError."""
    if state is None:
        return False
    found = path.lstat()
    waits = state.offset < state.size and not state.inside_line and not state.looked
    return not (waits and found.st_mtime_ns <= quiet_ns) and (
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
    ) == (
        state.size,
        state.modified,
        state.changed,
        state.inode,
    )


def unsure(state: FileState | None) -> FileState:
    """A state of a file that is to be skipped and cannot be read: messages without a time stay out of everything that it holds
    when it can be read."""
    return structs.replace(state or START, size=-1, stepped_over=True, unsure_until=OFFSET_MAX)


def open_regular(path: Path) -> FileIO:
    """Opens a regular file without following a link in the last component, and without waiting on pipes or devices."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFile(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise
