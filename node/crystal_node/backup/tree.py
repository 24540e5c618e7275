"""Which files of a home a backup has beside the databases, and copying them.

::

    config.json                                     settings, which are no secrets
    the tree, as it is synced                       with what this device leaves out of the sync
    staging/, drop/                                 what waits to be taken in
    not: databases, locks, logs, the trash, links, and without --with-keys no secret

A file that is replaced while it is copied comes as it was before; one that is written in place is read again, and then taken
as it is. A file that is gone by then was deleted.
"""

import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from io import FileIO
from pathlib import Path

from crystal_mirror.files.names import fault_of
from crystal_mirror.files.ports import FileTrouble
from crystal_node.backup.manifest import Item, LeftOut
from crystal_node.backup.meter import Meter
from crystal_node.files.folders import READ, folder_of, troubles
from crystal_node.files.rounds import own_places
from crystal_node.files.rules import TreeRules
from crystal_node.files.scan import Scan
from crystal_node.home import DIRECTORY_MODE, FILE_MODE, Home

CONFIG = "config.json"
BESIDE = ("drop", "staging")
"""Folders of the home that are not of the tree and are backed up like it."""
API_KEYS = ".env"
"""A file of this name holds keys of somebody's services, wherever it is. The one beside the memory is in no backup."""
COPY_BYTES = 1024 * 1024
TRIES = 3
_EXECUTABLE = 0o100


@dataclass(frozen=True, slots=True)
class Found:
    """Files by their path in the home, with their sizes; ``left_out`` is what is not to be copied."""

    files: list[tuple[str, int]]
    left_out: list[LeftOut]


def rules_of(home: Home) -> TreeRules:
    """The tree with all that a person has excluded from the sync of this device."""
    databases, secrets = own_places(home)
    return TreeRules((), databases, secrets)


def find_files(home: Home, *, with_keys: bool) -> Found:
    """What is to be copied, as it stands now. ``with_keys``: keys of services, too."""
    scan = Scan(home.root, rules_of(home))
    files = [(local.path, local.stamp.size) for local in scan]
    refused = dict(scan.refused)
    for folder in BESIDE:
        if (home.root / folder).is_dir() and not (home.root / folder).is_symlink():
            below = Scan(home.root / folder, TreeRules(databases=frozenset()))
            files += [(f"{folder}/{local.path}", local.stamp.size) for local in below]
            refused |= {f"{folder}/{path}": why for path, why in below.refused.items()}
    if home.config_file.is_file():
        files.append((CONFIG, home.config_file.stat().st_size))
    secret = {path for path, _ in files if path.rpartition("/")[2] == API_KEYS and not with_keys}
    left_out = [LeftOut(path, "it holds keys of services") for path in sorted(secret)]
    left_out += [LeftOut(path, why) for path, why in sorted(refused.items())]
    return Found([each for each in files if each[0] not in secret], left_out)


def may_be_restored(path: str, home: Home) -> bool:
    """Whether a file of this path is one that ``find_files`` gives: a manifest may name anything."""
    folder, slash, rest = path.partition("/")
    if slash and folder in BESIDE:
        return fault_of(rest) is None
    return path == CONFIG or rules_of(home).fault(path) is None


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
    """Copies one file of ``root`` to ``target``; None if it is gone. Flushes nothing.

    Raises FileTrouble if it cannot be read, OSError if the copy cannot be written.
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
        descriptor = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
        )
        with os.fdopen(descriptor, "wb", buffering=0) as copy:
            return _copied(file, copy, path, meter)


def write_new(target: Path, path: str, data: bytes) -> Item:
    """Writes a file whose content is known. Flushes nothing."""
    (target / path).parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor = os.open(target / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb", buffering=0) as copy:
        _write_all(copy, data)
    return Item(path, len(data), sha256(data).hexdigest())


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
