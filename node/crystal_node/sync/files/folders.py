"""Folders of the home, opened component by component and never through a link.

Each component is opened relative to the one above it with ``O_NOFOLLOW``, and a file is handled relative to its folder's
descriptor. Swapping a folder for a link at any moment makes the operation fail and writes nothing. Errors of the operating
system that concern one file become ``FileTrouble``.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from crystal_mirror.files.ports import DiskFull, FileTrouble
from crystal_node.base.home import DIRECTORY_MODE

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TEXTS = {
    errno.EACCES: "it cannot be read or written: permission denied",
    errno.EPERM: "it cannot be read or written: permission denied",
    errno.ELOOP: "a link stands in its place or on the way to it",
    errno.ENOTDIR: "a file or a link stands where one of its folders should be",
    errno.EISDIR: "a folder stands in its place",
    errno.EEXIST: "something else stands in its place",
    errno.ENAMETOOLONG: "this disk does not take so long a name",
    errno.EROFS: "this disk is read-only",
    errno.EIO: "the disk failed to read or write it",
}


@contextmanager
def troubles() -> Generator[None]:
    """Turns ``OSError`` into ``FileTrouble``."""
    try:
        yield
    except OSError as error:
        raise trouble(error) from error


def trouble(error: OSError) -> FileTrouble:
    if error.errno in _FULL:
        return DiskFull("the disk is full")
    return FileTrouble(_TEXTS.get(error.errno or 0, f"the system says: {error.strerror}"))


def open_root(root: Path) -> int:
    """Opens the home itself, which its owner may have made a link."""
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@contextmanager
def folder_of(root: Path, path: str, *, create: bool = False) -> Generator[tuple[int, str] | None]:
    """Opens the folder of a path. Yields its descriptor and the last component; None where there is no such folder.

    A file in the place of a folder counts as no folder; a link is an error.

    Raises:
        FileTrouble: a link or, with ``create``, a file stands where a folder should be; or it cannot be opened.
    """
    *above, name = path.split("/")
    with troubles():
        descriptor = open_root(root)
    try:
        for component in above:
            below = _entered(descriptor, component, create=create)
            if below is None:
                yield None
                return
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def _entered(folder: int, component: str, *, create: bool) -> int | None:
    with troubles():
        try:
            return os.open(component, FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                return None
            with suppress(FileExistsError):
                os.mkdir(component, DIRECTORY_MODE, dir_fd=folder)
                os.fsync(folder)
            return _entered(folder, component, create=False)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if not create and stat.S_ISREG(os.stat(component, dir_fd=folder, follow_symlinks=False).st_mode):
                return None
            raise


def prune(root: Path, path: str) -> None:
    """Removes the empty folders above a path, from the bottom up. The home stays."""
    above = path.split("/")[:-1]
    while above:
        with folder_of(root, "/".join(above)) as found:
            if found is None:
                return
            try:
                os.rmdir(found[1], dir_fd=found[0])
            except OSError:  # not empty, or not removable: it stays
                return
        above.pop()
