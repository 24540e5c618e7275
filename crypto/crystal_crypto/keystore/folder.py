"""A directory of small files that only their owner can use, for the key store of files.

Rules: when a call returns, what was written is on disk as a whole; after a crash the old bytes or the new ones are there.
Files are 0600 in a directory of 0700; one that others can use is refused with the remedy. Writers hold the directory's
lock.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final

from crystal_crypto.errors import KeyStoreError
from crystal_crypto.keystore.port import is_name
from crystal_crypto.limits import SECRET_BYTES_MAX, WRAPPED_OVERHEAD_BYTES

HEADER_FILE: Final = "_passphrase"
"""No secret's name begins with a mark."""

FILE_BYTES_MAX: Final = SECRET_BYTES_MAX + WRAPPED_OVERHEAD_BYTES

NOT_OURS_HINT: Final = (
    "Restore that file from a backup. If there is none, delete it, and run `crystal pair --code -`."
)

_TEMPORARY: Final = ".tmp"
# A link is not followed, and a pipe in place of a file does not make the reader wait.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretFolder:
    """The directory. It is made on the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """A file's bytes, or None. Never part of one."""
        path = self.path / name
        with reported(f"{path} cannot be read"):
            if not self.path.exists():
                return None
            refuse_others(self.path, self.path.stat(), "700")
            try:
                handle = os.open(path, _READ)
            except FileNotFoundError:
                return None
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    raise KeyStoreError(f"{path} is not a plain file")
                refuse_others(path, found, "600")
                data = file.read(FILE_BYTES_MAX + 1)
        if not 1 <= len(data) <= FILE_BYTES_MAX:
            raise KeyStoreError(
                f"{path} holds {found.st_size} bytes, which is no secret of ours", hint=NOT_OURS_HINT
            )
        return data

    def names(self) -> list[str]:
        """The names of the secrets, without the header and what a crash left behind."""
        with reported(f"{self.path} cannot be read"):
            if not self.path.exists():
                return []
            return sorted(path.name for path in self.path.iterdir() if is_name(path.name))

    @contextlib.contextmanager
    def locked(self) -> Generator["LockedFolder"]:
        """The directory, made if need be, locked for this writer."""
        with reported(f"{self.path} cannot be used"):
            if not self.path.exists():
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                _fsync_directory(self.path.parent)
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                refuse_others(self.path, os.fstat(handle), "700")
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield LockedFolder(self.path, handle)
            finally:
                os.close(handle)


class LockedFolder:
    """The directory for its writer. Each call is durable when it returns."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle

    def write(self, name: str, data: bytes) -> None:
        path, temporary = self._path / name, self._path / f".{name}{_TEMPORARY}"
        with reported(f"{path} cannot be written"):
            temporary.unlink(missing_ok=True)  # left by a crash; the lock says that nobody is writing it
            try:
                _write_durably(temporary, data)
                temporary.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            os.fsync(self._handle)

    def delete(self, name: str) -> None:
        path = self._path / name
        with reported(f"{path} cannot be deleted"):
            path.unlink(missing_ok=True)
            (self._path / f".{name}{_TEMPORARY}").unlink(missing_ok=True)
            os.fsync(self._handle)

    def sweep(self) -> None:
        """Deletes what crashes left behind, which may be a secret that was being written."""
        with reported(f"{self._path} cannot be cleaned"):
            for scrap in self._path.glob(f".*{_TEMPORARY}"):
                scrap.unlink(missing_ok=True)
            os.fsync(self._handle)


def refuse_others(path: Path, found: os.stat_result, mode: str) -> None:
    """Raises KeyStoreError if another user can use the file; the hint is the command that fixes it."""
    if found.st_uid != os.geteuid():
        raise KeyStoreError(
            f"{path} belongs to another user", hint=f"Give it to the user who runs crystal: chown USER {path}"
        )
    if found.st_mode & _OTHERS:
        raise KeyStoreError(
            f"{path} can be used by others than its owner", hint=f"Close it to others: chmod {mode} {path}"
        )


@contextlib.contextmanager
def reported(what: str) -> Generator[None]:
    """The operating system's error as KeyStoreError."""
    try:
        yield
    except OSError as error:
        raise KeyStoreError(
            f"{what}: {error.strerror or type(error).__name__}",
            hint="Check the disk's free space and the permissions of that place",
        ) from error


def _write_durably(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
