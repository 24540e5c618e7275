"""Linux reports what changes in folders and in all below them; while nothing changes, no process is woken (inotify(7)).

`watchfiles`, which serves other systems, wakes 20 times a second for each watch to look whether something came. A folder that
was just made may have got files before it is watched: they are reported with it, and the caller looks again
(``base.changes``).
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from crystal_node.base.errors import LocalStorage

_CLOEXEC, _NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x800
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS = 0x01000000
_NO_ROOM = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_LEFT_OUT = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_WATCHED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _MOVE_SELF
_HEAD = struct.Struct("iIII")
"""Watch, mask, cookie, length of the name, which follows and is padded with zeros."""
_READ_BYTES = 256 * 1024

Event = tuple[str, bool]
"""A path, and whether something is new there."""


class Inotify:
    """The events below some folders. Belongs to one event loop; ``close`` it."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Watches the folders, following links. Those that are gone or may not be read are left out.

        Raises LocalStorage: the system has no room for so many watches. OSError: it cannot watch.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._paths: dict[int, str] = {}
        self._roots: set[int] = set()
        self._fd = self._libc.inotify_init1(_CLOEXEC | _NONBLOCK)
        if self._fd < 0:
            raise _failure("inotify")
        try:
            for folder in folders:
                watched = len(self._paths)
                if self._add(folder):
                    self._roots.update(list(self._paths)[watched:])
                    for _ in self._below(folder):
                        pass
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    async def next(
        self, concerns: Callable[[str], bool], settle: float, burst: float
    ) -> frozenset[Event] | None:
        """Waits for events at paths that concern the caller, and then until they pause for ``settle`` seconds, at most for
        ``burst``. None: more came than the system keeps, or one of the folders is gone. Anything may have changed then, and
        what is new since is not watched: begin anew. Raises LocalStorage, OSError, as at the start."""
        loop = asyncio.get_running_loop()
        while True:
            await _readable(self._fd)
            found = self._concerning(concerns)
            if found is None:
                return None
            until = loop.time() + burst
            while True:
                await asyncio.sleep(settle)  # what concerns nobody wakes no more often than this
                more = self._concerning(concerns) if found else set[Event]()
                if more is None:
                    return None
                found |= more
                if not more or loop.time() >= until:
                    break
            if found:
                return frozenset(found)

    def _concerning(self, concerns: Callable[[str], bool]) -> set[Event] | None:
        """What came and concerns the caller; None if anything may have changed."""
        came = set(self._read())  # a new file causes several events
        if ("", True) in came:
            return None
        return {(path, new) for path, new in came if concerns(path)}

    def _read(self) -> Iterator[Event]:
        """What came; an empty path if anything may have changed."""
        for watch, mask, name in _raw_events(self._fd):
            if mask & _OVERFLOW or (mask & (_IGNORED | _MOVE_SELF) and watch in self._roots):
                yield "", True
            elif mask & _IGNORED:
                self._paths.pop(watch, None)
            elif (folder := self._paths.get(watch)) is not None and name:
                yield from self._followed(os.path.join(folder, name), mask)  # noqa: PTH118

    def _followed(self, path: str, mask: int) -> Iterator[Event]:
        yield path, bool(mask & (_CREATE | _MOVED_TO))
        if mask & _IS_FOLDER and mask & _MOVED_FROM:
            for watch, folder in list(self._paths.items()):
                if folder == path or folder.startswith(path + os.sep):
                    self._libc.inotify_rm_watch(self._fd, watch)
        elif mask & (_CREATE | _MOVED_TO) and self._add(path):
            for each in self._below(path):
                yield each, True

    def _below(self, folder: str) -> Iterator[str]:
        """Watches all folders below one, and yields what is in them. Every folder once, whatever links lead to it."""
        for parent, folders, files in os.walk(folder, followlinks=True):
            folders[:] = [name for name in folders if self._add(os.path.join(parent, name))]  # noqa: PTH118
            for name in (*folders, *files):
                yield os.path.join(parent, name)  # noqa: PTH118

    def _add(self, folder: str) -> bool:
        """Watches one folder; False if it is none, may not be read, or is watched already. Raises LocalStorage, OSError."""
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _WATCHED | _ONLY_FOLDERS)
        if watch < 0:
            if ctypes.get_errno() in _LEFT_OUT:
                return False
            raise _failure(folder)
        if watch in self._paths:
            return False
        self._paths[watch] = folder
        return True


class Appearing:
    """Waits for folders that do not exist yet, by watching the nearest existing folders above them. ``close`` it."""

    def __init__(self, missing: Sequence[str]) -> None:
        """Raises LocalStorage, OSError: the system cannot watch so many."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._awaited: dict[int, set[str]] = {}
        self._there = False
        self._fd = self._libc.inotify_init1(_CLOEXEC | _NONBLOCK)
        if self._fd < 0:
            raise _failure("inotify")
        try:
            for folder in missing:
                self._watch_above(folder)
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    async def wait(self) -> None:
        """Returns when a folder may exist, or one above it."""
        while not self._there:
            await _readable(self._fd)
            for watch, mask, name in _raw_events(self._fd):
                self._there |= bool(mask & (_OVERFLOW | _IGNORED)) or name in self._awaited.get(watch, ())

    def _watch_above(self, folder: str) -> None:
        above, name = os.path.split(folder)
        absent = True
        while above != os.path.dirname(above):  # noqa: PTH120
            watch = self._libc.inotify_add_watch(
                self._fd, os.fsencode(above), _CREATE | _MOVED_TO | _ONLY_FOLDERS
            )
            if watch >= 0:
                self._awaited.setdefault(watch, set()).add(name)
                # It may have appeared before the watch began. One that is there but may not be read is no reason to look.
                self._there |= absent and os.path.isdir(os.path.join(above, name))  # noqa: PTH112, PTH118
                return
            absent = ctypes.get_errno() == errno.ENOENT
            if ctypes.get_errno() not in _LEFT_OUT:
                raise _failure(above)
            above, name = os.path.split(above)


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _raw_events(descriptor: int) -> Iterator[tuple[int, int, str]]:
    """Watch, mask and name of each event that came."""
    while True:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            name = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
            at += _HEAD.size + length
            yield watch, mask, os.fsdecode(name)


def _failure(what: str) -> OSError | LocalStorage:
    number = ctypes.get_errno()
    if number not in _NO_ROOM:
        return OSError(number, os.strerror(number), what)
    return LocalStorage(
        f"this system lets you watch no more folders ({os.strerror(number)}): {what}",
        hint="Allow more, as root: `sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024`. "
        "Until then changes are seen some minutes later.",
    )
