"""The files of a home that a backup holds beside the databases.

::

    config.json                                     settings, which are no secrets
    the tree, as it is synced                       with what this device leaves out of the sync
    staging/, drop/                                 what waits to be taken in
    not: databases, locks, logs, the trash, links, and without --with-keys no secret
"""

import stat
from dataclasses import dataclass
from pathlib import Path

from crystal_mirror.file_paths import DEPTH_MAX, fault_of
from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import Home
from crystal_node.safekeeping.backup.manifest import LeftOut, is_safe
from crystal_node.safekeeping.file_copy import CopiedFile, Meter, copy_file
from crystal_node.sync.files.rules import own_places
from crystal_node.sync.files.scan import Scan

CONFIG = "config.json"
BESIDE = ("drop", "staging")
"""Folders outside the tree that are backed up like it."""
API_KEYS = ".env"
"""A file of this name may hold API keys, wherever it is. The one beside the memory is in no backup."""


@dataclass(frozen=True, slots=True)
class BackupFiles:
    """Files by their path in the home, with sizes; ``left_out``: not to be copied; ``unread``: cannot be read."""

    files: list[tuple[str, int]]
    left_out: list[LeftOut]
    unread: list[LeftOut]


class _Everything(TreeRules):
    """Rules without own files, for ``BESIDE`` and for folders with odd names: nothing there is Crystal's own."""

    def is_own(self, path: str) -> bool:
        return False


def backup_rules(home: Home) -> TreeRules:
    """The rules of the tree without a person's exclusions."""
    databases, secrets = own_places(home)
    return TreeRules((), databases, secrets)


def find_files(home: Home, *, with_keys: bool) -> BackupFiles:
    """The files to copy. ``with_keys``: API keys, too."""
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
    """Whether ``find_files`` could return this path: a manifest may name anything."""
    folder, slash, rest = path.partition("/")
    if not is_safe(path) or (slash and folder in BESIDE):
        return is_safe(path) and bool(rest)
    return path == CONFIG or not backup_rules(home).is_own(path)


def _scanned(root: Path, rules: TreeRules, depth: int = 0) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """The files below a folder, and what is refused there. Names that not every system accepts are no reason to refuse here."""
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
    """Whether a refused path is a file or a folder, and so was refused only because it cannot be read."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def copy_tree(
    root: Path, files: list[tuple[str, int]], target: Path, meter: Meter
) -> tuple[list[CopiedFile], list[LeftOut]]:
    """Copies files of one root to another. Returns what was copied, and what could not be read.

    Raises OSError where it cannot be written.
    """
    items: list[CopiedFile] = []
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
