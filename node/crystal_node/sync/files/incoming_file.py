"""A fetched file, assembled beside its place and then put there: whole and durable, or not at all.

::

    .crystal-tmp-<mark> in the same folder --parts, one by one--> all there --fsync--> read back, part by part
        --the file in its place is still what was looked at?--> link or rename --> fsync of the folder

Many files are made durable side by side, and each folder once for all of them: a flush of the disk costs milliseconds, whatever
is in it. The system begins to write a large file while it grows. What a flush failed for is thrown away: the system tells of it
only once, and what it has in memory need not be on the disk. The disk (``disk``) has it fetched again after a growing pause.

The mark names path and content: after a crash, the next attempt finds the parts that are there, checks them and goes on behind
them. Where no file stood, the new one is linked, which fails if something stands there by now; where one stood, it is
checked immediately before the rename. Its mode is 0600; it is 0700 only if it is executable and replaces a file that is, here.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from crystal_mirror.files.ports import DiskFull, FileMoved, FileTrouble, LocalFile, TooLargeHere
from crystal_mirror.files.tree import content_digest
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_node.base.file_rules import TEMPORARY_PREFIX
from crystal_node.sync.files.folders import folder_of, trouble, troubles
from crystal_node.sync.files.parts import read_at
from crystal_node.sync.files.scan import look_in

DISK_SPACE_BYTES_MIN = 64 * 1024 * 1024
"""Disk space that a fetched file leaves free for the memory; a twentieth of the disk, if that is less."""
HINTED_BYTES = 4 * 1024 * 1024
"""After so many bytes the system is told to begin writing them to the disk: at the end there is little left to wait for."""
READ_BY_ONE_BYTES_MAX = 8 * 1024 * 1024
"""A larger file is read back by several threads."""
_READ_BACK_THREADS = 2

_MARK_DIGITS = 24
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class FlushFailed(FileTrouble):
    """The disk did not make the file durable, and what was fetched of it is gone."""


def temporary_name(row: FileRow) -> str:
    """The same for the same content at the same path."""
    mark = sha256(row.path.encode() + b"\0" + content_digest(row.parts)).hexdigest()
    return TEMPORARY_PREFIX + mark[:_MARK_DIGITS]


class IncomingFile:
    """The file while it is assembled. Holds its folder open, so that nobody can swap the folder."""

    def __init__(
        self, root: Path, row: FileRow, placed: Callable[[LocalFile], LocalFile] = lambda local: local
    ) -> None:
        """``placed`` is told of the file once it is in its place, and returns what ``self.placed`` does. Raises FileTrouble."""
        self._row = row
        self._placed = placed
        self._unhinted = 0
        self.name = temporary_name(row)
        self._stack = ExitStack()
        found = self._stack.enter_context(folder_of(root, row.path, create=True))
        if found is None:
            self._stack.close()
            raise FileMoved("its folder was removed a moment ago")
        self._folder, self._target = found
        try:
            with troubles():
                self._file = self._opened()
                self._have = self._checked()
                self._check_disk_space()
        except BaseException:
            self._stack.close()
            raise

    def have(self) -> int:
        return self._have

    def add(self, data: bytes) -> None:
        try:
            with troubles():
                view = memoryview(data)
                while view:
                    view = view[os.write(self._file, view) :]
                self._unhinted += len(data)
                if self._unhinted >= HINTED_BYTES:
                    _begin_writing(self._file, self._unhinted)
                    self._unhinted = 0
        except DiskFull:
            self._abandon()  # a partial file only takes disk space until there is more
            raise

    def complete(self, expected: LocalFile | None) -> None:
        """Makes it durable beside its place and reads it back. May run in another thread. Raises FileTrouble."""
        try:
            with troubles():
                self._complete(keeps_bit=expected is not None and self._is_executable_now())
                if not self._is_whole():
                    raise FileTrouble("the disk did not keep what was written")
        except DiskFull:
            self._abandon()
            raise

    def put_in_place(self, expected: LocalFile | None) -> None:
        """Moves what is complete into its place, which has to be made durable with the folder. Raises FileTrouble."""
        try:
            with troubles():
                self._place(expected)
        except DiskFull:
            self._abandon()
            raise

    @property
    def folder(self) -> tuple[int, int]:
        """Names its folder, however it is reached."""
        info = os.fstat(self._folder)
        return info.st_dev, info.st_ino

    def flush_folder(self) -> None:
        """Makes all that was put in place in this folder durable. May run in another thread. Raises FileTrouble."""
        with troubles():
            os.fsync(self._folder)

    def placed(self) -> LocalFile:
        """The file in its place. Raises FileTrouble if another one is there by now."""
        placed = look_in(self._folder, self._target, self._row.path)
        if placed is None or placed.stamp.inode != os.fstat(self._file).st_ino:
            raise FileMoved("the file was replaced a moment after it came")
        return self._placed(placed)

    def close(self) -> None:
        self._stack.close()

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.name, flags, 0o600, dir_fd=self._folder)
        self._stack.callback(os.close, descriptor)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            # Left by a crash between link and unlink, or planted: begin with a file of our own.
            os.unlink(self.name, dir_fd=self._folder)
            descriptor = os.open(self.name, flags | os.O_EXCL, 0o600, dir_fd=self._folder)
            self._stack.callback(os.close, descriptor)
        return descriptor

    def _is_whole(self) -> bool:
        """Whether the file holds all parts and nothing else, as it is read back. A large one is read by several threads."""
        parts = self._row.parts
        ends = list(accumulate(part.length for part in parts))
        size = ends[-1] if ends else 0
        if os.fstat(self._file).st_size != size:
            return False
        placed = [(end - part.length, part) for end, part in zip(ends, parts, strict=True)]
        if size <= READ_BY_ONE_BYTES_MAX:
            return self._holds(placed)
        with ThreadPoolExecutor(_READ_BACK_THREADS, "read back") as threads:
            stripes = [placed[start::_READ_BACK_THREADS] for start in range(_READ_BACK_THREADS)]
            return all(list(threads.map(self._holds, stripes)))

    def _holds(self, parts: Sequence[tuple[int, FilePart]]) -> bool:
        """Whether the file has each part at its offset."""
        for offset, part in parts:
            data = read_at(self._file, offset, part.length)
            if len(data) != part.length or sha256(data).digest() != part.content:
                return False
        return True

    def _checked(self) -> int:
        """Counts the intact parts from the beginning, truncates the file behind them, and seeks there."""
        offset = have = 0
        for part in self._row.parts if os.fstat(self._file).st_size else ():
            data = read_at(self._file, offset, part.length)
            if len(data) != part.length or sha256(data).digest() != part.content:
                break
            offset, have = offset + part.length, have + 1
        if os.fstat(self._file).st_size != offset:
            os.ftruncate(self._file, offset)
        os.lseek(self._file, offset, os.SEEK_SET)
        return have

    def _check_disk_space(self) -> None:
        """Raises TooLargeHere. A file row may state any size: a device need not send the bytes that fill this disk."""
        found = os.fstatvfs(self._folder)
        free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        missing = self._row.size - os.fstat(self._file).st_size
        if missing > 0 and free - missing < min(DISK_SPACE_BYTES_MIN, whole // 20):
            self._abandon()
            raise TooLargeHere("the disk has no room for it")

    def _is_executable_now(self) -> bool:
        """Whether the file that is replaced has the bit on this disk."""
        now = look_in(self._folder, self._target, self._row.path)
        return now is not None and now.executable

    def _complete(self, *, keeps_bit: bool) -> None:
        os.fchmod(self._file, 0o700 if self._row.executable and keeps_bit else 0o600)
        moment = self._row.modified_at * 1_000_000
        with suppress(OverflowError, OSError):  # a time that this file system cannot store
            os.utime(self._file, ns=(moment, moment))
        try:
            os.fsync(self._file)
        except OSError as error:
            self._abandon()
            found = trouble(error)
            if not isinstance(found, DiskFull):
                found = FlushFailed(f"{found}; it is fetched again later")
            raise found from error

    def _place(self, expected: LocalFile | None) -> None:
        if expected is None:
            try:
                try:
                    self._link()
                except FileExistsError:
                    with suppress(OSError):  # an empty folder was not synced; one that holds anything stays
                        os.rmdir(self._target, dir_fd=self._folder)
                    self._link()
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        now = look_in(self._folder, self._target, self._row.path)
        if (now is None) != (expected is None) or (now and expected and now.stamp != expected.stamp):
            raise FileMoved("the file changed while another version was fetched")
        os.rename(self.name, self._target, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _link(self) -> None:
        """Raises FileExistsError if anything stands in the place."""
        folder = self._folder
        os.link(self.name, self._target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(self.name, dir_fd=folder)

    def _abandon(self) -> None:
        with suppress(OSError):
            os.unlink(self.name, dir_fd=self._folder)


def _begin_writing(descriptor: int, length: int) -> None:
    """Have the system begin to write the last bytes of an open file to the disk. No more than a hint."""
    if sys.platform == "linux":
        with suppress(OSError):
            # What has yet to be written stays in memory: Linux begins to write it, and drops only what was written before.
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.posix_fadvise(descriptor, end - length, length, os.POSIX_FADV_DONTNEED)
