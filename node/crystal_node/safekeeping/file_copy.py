"""Copying files of a home: what each copy was, progress on the way, and the place where a copy notices that it is to stop.

A file that is replaced while it is copied is copied as it was before. One that is written in place is read again, up to
``TRIES`` times, and then taken as it is. A file that is gone by then was deleted.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Annotated

import msgspec

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE
from crystal_node.base.wording import size
from crystal_node.sync.files.folders import READ, folder_of, troubles

TELL_SECONDS = 2.0
COPY_BYTES = 1024 * 1024
TRIES = 3
_EXECUTABLE = 0o100
_ODD_NAMES = frozenset({errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.EEXIST})

Tell = Callable[[str], None]


class CopiedFile(msgspec.Struct, frozen=True):
    """A file as it was copied, by its path below the root."""

    path: str
    size: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    modified_ns: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] = 0
    executable: bool = False


class BackupStopped(LocalStorage):
    """The backup is not wanted any more."""

    hint = "Nothing is left of it; the next one begins from the start."


def never() -> bool:
    return False


class Meter:
    """Counts the bytes of one phase and reports progress every ``TELL_SECONDS`` at most."""

    def __init__(self, tell: Tell | None, what: str, total: int, stopped: Callable[[], bool] = never) -> None:
        self._tell = tell
        self._what = what
        self._total = total
        self._stopped = stopped
        self._done = 0
        self._last = time.monotonic()

    def add(self, count: int) -> None:
        """Raises BackupStopped once ``stopped`` says so."""
        if self._stopped():
            raise BackupStopped("the backup was stopped")
        self._done += count
        now = time.monotonic()
        if self._tell is not None and now - self._last >= TELL_SECONDS:
            self._last = now
            self._tell(f"{self._what}: {size(min(self._done, self._total))} of {size(self._total)}")


def copy_file(root: Path, path: str, target: Path, meter: Meter) -> CopiedFile | None:
    """Copies one file of ``root`` to ``target``, which does not exist; None if the file is gone. Does not flush.

    Raises:
        FileTrouble: it cannot be read, or the target's disk does not take its name.
        OSError: the copy cannot be written.
    """
    with folder_of(root, path) as found:
        if found is None:
            return None
        try:
            with troubles():
                source = os.open(found[1], READ, dir_fd=found[0])
        except FileTrouble as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
    with os.fdopen(source, "rb", buffering=0) as file:
        with troubles():
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise FileTrouble("it is no regular file")
        target.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        with os.fdopen(_new(target), "wb", buffering=0) as copy:
            return _copied(file, copy, path, meter)


def write_new(target: Path, path: str, data: bytes) -> CopiedFile:
    """Writes ``data`` to a new file. Does not flush."""
    (target / path).parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with os.fdopen(_new(target / path), "wb", buffering=0) as copy:
        _write_all(copy, data)
    return CopiedFile(path, len(data), sha256(data).hexdigest())


def _new(target: Path) -> int:
    """Creates a file. Raises FileTrouble if the disk refuses the name, or takes it for another file's."""
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno in _ODD_NAMES:
            raise FileTrouble(
                "the other disk does not take its name, or takes it for another one's"
            ) from error
        raise


def _copied(file: FileIO, copy: FileIO, path: str, meter: Meter) -> CopiedFile:
    info, count, digest = _pass(file, copy, meter)
    for _ in range(TRIES - 1):
        with troubles():
            now = os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) == (info.st_size, info.st_mtime_ns):
            break
        info, count, digest = _pass(file, copy, meter)
    executable = bool(info.st_mode & _EXECUTABLE)
    if executable:
        with suppress(PermissionError):  # a disk without modes: the manifest knows
            os.fchmod(copy.fileno(), FILE_MODE | _EXECUTABLE)
    os.utime(copy.fileno(), ns=(info.st_mtime_ns, info.st_mtime_ns))
    return CopiedFile(path, count, digest, info.st_mtime_ns, executable)


def _pass(file: FileIO, copy: FileIO, meter: Meter) -> tuple[os.stat_result, int, str]:
    """Copies from the beginning. Returns the file's state before, the number of bytes copied, and their SHA-256."""
    with troubles():
        info = os.fstat(file.fileno())
        file.seek(0)
    copy.seek(0)
    copy.truncate()
    hashed, count = sha256(), 0
    while True:
        with troubles():
            data = file.read(COPY_BYTES)
        if not data:
            return info, count, hashed.hexdigest()
        hashed.update(data)
        _write_all(copy, data)
        count += len(data)
        meter.add(len(data))


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
