"""Atomic changes of another program's settings file.

That program, an editor and another Crystal may write it at the same time. So one Crystal at a time changes it (a lock on the
folder), the file is compared once more before it is replaced, and replaced in one step. The target of a link is replaced, and
the link stays. Mode and byte order mark stay, too.
"""

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.base.errors import HomeBusy, LocalStorage
from crystal_node.base.home import FILE_MODE, locked_directory, sync_directory

FILE_BYTES_MAX = 64 * 1024 * 1024
_TRIES_MAX = 5
_MARK = "\ufeff"


def read_text(path: Path) -> str | None:
    """The file's text without a byte order mark; None if there is no file.

    Raises:
        DamagedDocument: it is no UTF-8, no file, or too large.
    """
    data = _read(path)
    return None if data is None else _decoded(path, data).removeprefix(_MARK)


def change(path: Path, changed: Callable[[str], str], *, backup: Path | None = None) -> bool:
    """Replaces the file's text by ``changed`` of it ("" if there is no file). Returns whether anything was written.

    ``backup`` gets the bytes from before, if there is no file of that name yet.

    Raises:
        DamagedDocument: the file cannot be read; whatever ``changed`` raises. Nothing was changed then.
        HomeBusy: another program writes it again and again.
        LocalStorage: it is somebody else's.
    """
    target = _target(path)
    with locked_directory(target.parent):
        for _ in range(_TRIES_MAX):
            before = _read(target)
            text = "" if before is None else _decoded(target, before)
            mark = _MARK if text.startswith(_MARK) else ""
            after = (mark + changed(text.removeprefix(_MARK))).encode()
            if after == (before or b""):
                return False
            if before is not None and backup is not None:
                _keep(backup, before)
            if _replace(target, before, after):
                return True
    raise HomeBusy(f"{path} is being written by another program", hint="Close it, or try again.")


def remove(path: Path) -> None:
    """Removes a file that was made here, and a link with its target."""
    for each in (_target(path), path):
        with suppress(FileNotFoundError):
            each.unlink()


def _target(path: Path) -> Path:
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:
        raise LocalStorage(f"{path} is a link that leads nowhere", hint="Mend or remove the link.") from error
    if not target.parent.is_dir():
        raise LocalStorage(f"there is no folder {target.parent} for {path.name}")
    return target


def _read(path: Path) -> bytes | None:
    try:
        # Without waiting: a pipe of that name has no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DamagedDocument(f"{path} is no file")
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise DamagedDocument(f"{path} is no file") from None
    if len(data) > FILE_BYTES_MAX:
        raise DamagedDocument(f"{path} is over {FILE_BYTES_MAX // 1024 // 1024} MiB")
    return data


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedDocument(f"{path}: the byte at {error.start} is no UTF-8") from None


def _replace(target: Path, before: bytes | None, after: bytes) -> bool:
    """Replaces the file if it still holds the old bytes. Returns whether it did."""
    mode = FILE_MODE
    with suppress(FileNotFoundError):
        found = target.stat()
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid():
            raise LocalStorage(f"{target} belongs to another user", hint="Run this as its owner.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(after)
            file.flush()
            os.fsync(descriptor)
        if _read(target) != before:
            temporary.unlink()
            return False
        temporary.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_directory(target.parent)
    return True


def _keep(backup: Path, data: bytes) -> None:
    """Keeps the first backup, atomically: made by a link, which never replaces a file."""
    if backup.exists():
        return
    temporary = backup.with_name(f".{backup.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(temporary, backup)
    finally:
        temporary.unlink()
