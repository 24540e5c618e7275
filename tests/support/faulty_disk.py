"""A disk under SQLite that fails when told to: the default VFS for as long as it is in use.

Failures are raised as SQLite's own file layer would report them, before the bytes are written or made durable.
"""

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum

import apsw

NAME = "crystal-faulty"


class Failure(Enum):
    """What fails, and how SQLite is told."""

    WRITE_FULL = "a write finds the disk full"
    WRITE_BROKEN = "a write fails"
    FLUSH_BROKEN = "a flush fails"


_RAISED = {
    Failure.WRITE_FULL: apsw.FullError,
    Failure.WRITE_BROKEN: apsw.IOError,
    Failure.FLUSH_BROKEN: apsw.IOError,
}


class FaultyDisk:
    """`fail` says what fails next. Any thread."""

    def __init__(self) -> None:
        self._failure: Failure | None = None
        self._after = 0
        self._left = 0
        self.failed = 0

    def fail(self, failure: Failure | None, *, after: int = 0, times: int = 1) -> None:
        """Let `after` of such calls pass, then fail `times` of them. None: nothing fails any more."""
        self._failure, self._after, self._left = failure, after, times

    def passes(self, *failures: Failure) -> None:
        """Raises what is due, if it is one of these."""
        if self._failure not in failures or not self._left:
            return
        if self._after:
            self._after -= 1
            return
        self._left -= 1
        self.failed += 1
        raise _RAISED[self._failure](self._failure.value)


@contextmanager
def faulty_disk() -> Generator[FaultyDisk]:
    """All databases that are opened meanwhile are on it."""
    disk = FaultyDisk()
    real = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, filename: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(real, filename, flags)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  (SQLite's names)
            disk.passes(Failure.WRITE_FULL, Failure.WRITE_BROKEN)
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:  # noqa: N802
            disk.passes(Failure.FLUSH_BROKEN)
            super().xSync(flags)

    class Vfs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(NAME, real, makedefault=True)

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> File:  # noqa: N802
            return File(name, flags)

    vfs = Vfs()
    try:
        yield disk
    finally:
        vfs.unregister()
        assert apsw.vfs_names()[0] == real
