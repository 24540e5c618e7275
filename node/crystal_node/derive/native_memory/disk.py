"""Another program's file: read when it is quiet, and replaced only while it is still what was read.

A link to a file (as of people who keep their dotfiles elsewhere) stays a link: what it leads to is replaced. The mode stays,
line ends too. Any other program may write at the same time; what it wrote before the replacement is noticed.
"""

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.home import FILE_MODE, sync_directory, write_private
from crystal_node.derive.native_memory.places import FILE_BYTES_MAX

QUIET_SECONDS = 2.0
"""A file that was changed more recently is read by the next run: a program may still be writing it."""
_TEMPORARY = ".crystal-tmp-"


class LeftAlone(Exception):
    """The file cannot be kept in step as it is. The message says why, for people."""


@dataclass(frozen=True, slots=True)
class NativeFile:
    """A file as it was read. ``data`` None: there is none. ``target``: where it really is."""

    target: Path
    data: bytes | None
    mode: int = FILE_MODE
    changed_ns: int = 0

    @property
    def lines(self) -> list[str]:
        text = (self.data or b"").decode("utf-8-sig").replace("\r\n", "\n")
        return text.removesuffix("\n").split("\n") if text else []

    @property
    def is_quiet(self) -> bool:
        """Whether nobody has changed it for a moment. A clock that was set back does not make it loud for ever."""
        age = time.time() - self.changed_ns / 1e9
        return self.data is None or age >= QUIET_SECONDS or age < -QUIET_SECONDS

    def encoded(self, lines: list[str]) -> bytes:
        """Lines as this file has them."""
        end = "\r\n" if b"\r\n" in (self.data or b"") else "\n"
        bom = b"\xef\xbb\xbf" if (self.data or b"").startswith(b"\xef\xbb\xbf") else b""
        return bom + "".join(line + end for line in lines).encode()


def read(path: Path, home: Path) -> NativeFile:
    """Reads a file. ``home``: Crystal's, in which no such file may be.

    Raises:
        LeftAlone: it is no file that this user may write, is too large, or is no text.
        OSError: it cannot be read.
    """
    try:
        target = path.resolve(strict=False)
    except RuntimeError as error:
        raise LeftAlone("it is a link that leads nowhere") from error
    if target.is_relative_to(home.resolve()):
        raise LeftAlone("it is in Crystal's own home, whose files are synced as they are")
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise LeftAlone("it is a link that leads nowhere") from None
        if not target.parent.is_dir() and not target.parent.parent.is_dir():
            raise LeftAlone("its folder is not here") from None
        return NativeFile(target, None)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise LeftAlone("it is not a regular file")
        if info.st_size > FILE_BYTES_MAX:
            raise LeftAlone(f"it has more than {FILE_BYTES_MAX:,} bytes")
        data = file.read(FILE_BYTES_MAX + 1)
    if info.st_uid != os.geteuid() or not info.st_mode & stat.S_IWUSR or info.st_nlink > 1:
        raise LeftAlone("it is read-only, another user's, or has a second name (a hard link)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LeftAlone("it is not UTF-8 text") from error
    if "\0" in text or "\r" in text.replace("\r\n", "\n"):
        raise LeftAlone("it has a NUL byte, or a carriage return that ends no line")
    return NativeFile(target, data, stat.S_IMODE(info.st_mode), info.st_mtime_ns)


def temporary(file: NativeFile, slot: str) -> Path:
    """The file that is to replace it, beside it. It is there from ``prepare`` until the replacement, and no longer."""
    return file.target.with_name(f"{_TEMPORARY}{slot}")


def prepare(file: NativeFile, data: bytes, path: Path, kept: Path) -> Path:
    """Writes ``data`` to ``path``, durably, once what the file has is kept in ``kept``. Raises OSError."""
    if file.data is not None:
        write_private(kept, file.data)
    file.target.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):  # a run that died left it
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as out:
        os.fchmod(out.fileno(), file.mode)
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    sync_directory(path.parent)
    return path


def commit(file: NativeFile, prepared: Path, *, remove: bool) -> bool:
    """Replaces the file by the prepared one (or with ``remove`` has neither); False, and nothing is changed, if it is no longer
    what was read. Raises OSError."""
    if not is_still(file):
        return False
    prepared.replace(file.target)
    if remove:
        file.target.unlink()
    sync_directory(file.target.parent)
    return True


def is_still(file: NativeFile) -> bool:
    """Whether it has the bytes that were read. Raises OSError."""
    try:
        return file.target.read_bytes() == file.data
    except FileNotFoundError:
        return file.data is None
