"""Which files of a home a backup has beside the databases, and copying them.

::

    config.json                                     settings, which are no secrets
    the tree, as it is synced                       with what this device leaves out of the sync
    staging/, drop/                                 what waits to be taken in
    not: databases, locks, logs, the trash, links, and without --with-keys no secret

A file that is replaced while it is copied comes as it was before; one that is written in place is read again, and then taken
as it is. A file that is gone by then was deleted.
"""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import FileIO
from pathlib import Path

from crystal_mirror.file_paths import DEPTH_MAX, fault_of
from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, Home
from crystal_node.safekeeping.backup.manifest import Item, LeftOut, is_safe
from crystal_node.safekeeping.file_copy import Meter
from crystal_node.sync.files.folders import READ, folder_of, troubles
from crystal_node.sync.files.rounds import own_places
from crystal_node.sync.files.scan import Scan

CONFIG = "config.json"
BESIDE = ("drop", "staging")
"""Folders of the home that are not of the tree and are backed up like it."""
API_KEYS = ".env"
"""A file of this name holds keys of somebody's services, wherever it is. The one beside the memory is in no backup."""
COPY_BYTES = 1024 * 1024
TRIES = 3
_EXECUTABLE = 0o100
_ODD_NAMES = frozenset({errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class BackupFiles:
    """Files by their path in the home, with their sizes; ``left_out`` is what is not to be copied, ``unread`` what cannot be
    looked at."""

    files: list[tuple[str, int]]
    left_out: list[LeftOut]
    unread: list[LeftOut]


class _Everything(TreeRules):
    """Below ``BESIDE``, where a folder's name is an agent's, and in a folder of an odd name nothing is Crystal's own."""

    def is_own(self, path: str) -> bool:
        return False


def backup_rules(home: Home) -> TreeRules:
    """The tree with all that a person has excluded from the sync of this device."""
    databases, secrets = own_places(home)
    return TreeRules((), databases, secrets)


def find_files(home: Home, *, with_keys: bool) -> BackupFiles:
    """What is to be copied, as it stands now. ``with_keys``: keys of services, too."""
    files, refused = _scanned(home.root, backup_rules(home))
    for folder in BESIDE:
        if _is_folder(home.root / folder):
            below, refused_below = _scanned(home.root / folder, _Everything())
            files += [(f"{folder}/{path}", length) for path, length in below]
            refused |= {f"{folder}/{path}": why for path, why in refused_below.items()}
    if home.config_file.is_file():
        files.append((CONFIG, home.config_file.stat().st_size))
    secret = {path for path, _ in files if path.rpartition("/")[2] == API_KEYS and not with_keys}
    left_out = [LeftOut(path, "it holds keys of services") for path in sorted(secret)]
    unread: list[LeftOut] = []
    for path, why in sorted(refused.items()):
        (unread if _ought_to_be_read(home.root / path) else left_out).append(LeftOut(path, why))
    return BackupFiles([each for each in files if each[0] not in secret], left_out, unread)


def may_be_restored(path: str, home: Home) -> bool:
    """Whether a file of this path is one that ``find_files`` gives: a manifest may name anything."""
    folder, slash, rest = path.partition("/")
    if not is_safe(path) or (slash and folder in BESIDE):
        return is_safe(path) and bool(rest)
    return path == CONFIG or not backup_rules(home).is_own(path)


def _scanned(root: Path, rules: TreeRules, depth: int = 0) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """The files below a folder, and what is refused there. A name that not every system takes is no reason here, neither a
    file's nor a folder's."""
    scan = Scan(root, rules)
    files = [(local.path, local.stamp.size) for local in scan]
    refused: dict[str, str] = {}
    for path, why in scan.refused.items():
        named_oddly = fault_of(path) is not None and is_safe(path)
        length = _plain_length(root / path) if named_oddly else None
        if length is not None:
            files.append((path, length))
        elif named_oddly and depth < DEPTH_MAX and _is_folder(root / path):
            try:
                below, refused_below = _scanned(root / path, _Everything(), depth + 1)
            except FileTrouble as error:
                refused[path] = str(error)
                continue
            files += [(f"{path}/{each}", size) for each, size in below]
            refused |= {f"{path}/{each}": reason for each, reason in refused_below.items()}
        else:
            refused[path] = why
    return files, refused


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _plain_length(path: Path) -> int | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def _ought_to_be_read(path: Path) -> bool:
    """Whether something is a file or a folder, so that it was refused because it cannot be read now."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def copy_tree(
    root: Path, files: list[tuple[str, int]], target: Path, meter: Meter
) -> tuple[list[Item], list[LeftOut]]:
    """Copies files of one root to another. Returns what was copied, and what could not be read.

    Raises OSError where it cannot be written.
    """
    items: list[Item] = []
    unread: list[LeftOut] = []
    for path, _ in files:
        try:
            item = copy_file(root, path, target / path, meter)
        except FileTrouble as error:
            unread.append(LeftOut(path, str(error)))
            continue
        if item is not None:
            items.append(item)
    return items, unread


def copy_file(root: Path, path: str, target: Path, meter: Meter) -> Item | None:
    """Copies one file of ``root`` to ``target``, where none is; None if it is gone. Flushes nothing.

    Raises FileTrouble if it cannot be read or its name cannot be had, OSError if the copy cannot be written.
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


def write_new(target: Path, path: str, data: bytes) -> Item:
    """Writes a file whose content is known. Flushes nothing."""
    (target / path).parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with os.fdopen(_new(target / path), "wb", buffering=0) as copy:
        _write_all(copy, data)
    return Item(path, len(data), sha256(data).hexdigest())


def _new(target: Path) -> int:
    """A new file. Raises FileTrouble if this disk does not take its name, or takes it for another one's."""
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno in _ODD_NAMES:
            raise FileTrouble(
                "the other disk does not take its name, or takes it for another one's"
            ) from error
        raise


def _copied(file: FileIO, copy: FileIO, path: str, meter: Meter) -> Item:
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
    return Item(path, count, digest, info.st_mtime_ns, executable)


def _pass(file: FileIO, copy: FileIO, meter: Meter) -> tuple[os.stat_result, int, str]:
    """One copy from the beginning: how the file was before, how many bytes came of it, and their hash."""
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
