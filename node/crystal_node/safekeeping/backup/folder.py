"""The folder that holds backups: their names, whose they are, and what may be deleted there.

::

    .crystal-<device>-<time>.partial    being written, by the holder of a lock on it; else left by a crash
    crystal-1a2b3c4d-<time>             complete, and read back before it got this name
    .crystal-<device>-<time>.removing   a complete one that is being deleted

Only what is provably this device's is deleted: a complete backup whose manifest names it and that holds nothing else, file by
file and never through a link; and its own partial ones, which have its whole id in their names. Everything else in the folder
is left alone and reported.
"""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from crystal_node.base.errors import HomeBusy, LocalStorage
from crystal_node.base.home import DIRECTORY_MODE, sync_directory
from crystal_node.safekeeping.backup.manifest import (
    HOME_NAME,
    MANIFEST_NAME,
    SUMS_NAME,
    BackupManifest,
    read_manifest,
)

DESTINATION_MARK = ".crystal-backups"
"""Marks a folder that was set up for backups: an empty mount point does not have it."""
PARTIAL = ".partial"
REMOVING = ".removing"

_COMPLETE = re.compile(r"crystal-[0-9a-f]{8}-(?P<time>[0-9]{8}T[0-9]{6}Z(-[0-9]{1,4})?)")
_HIDDEN = re.compile(
    r"\.crystal-(?P<device>[0-9a-f]{32})-(?P<time>[0-9]{8}T[0-9]{6}Z(-[0-9]{1,4})?)\.(?P<state>partial|removing)"
)
_SAME_SECOND_MAX = 100


class BackupOwner(msgspec.Struct, frozen=True):
    """The device that a backup is of."""

    vault: str
    device: str


@dataclass(frozen=True, slots=True)
class FoundBackup:
    """A backup in the folder: its manifest, or why that cannot be read."""

    folder: Path
    manifest: BackupManifest | None
    fault: str = ""

    def is_of(self, owner: BackupOwner) -> bool:
        found = self.manifest
        return found is not None and (found.vault, found.device) == (owner.vault, owner.device)


def backups(destination: Path) -> list[FoundBackup]:
    """All folders named like a backup, of any device, oldest first."""
    found: list[FoundBackup] = []
    for path in sorted(destination.iterdir()):
        if not _COMPLETE.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        try:
            found.append(FoundBackup(path, read_manifest(path)))
        except LocalStorage as error:
            found.append(FoundBackup(path, None, str(error)))
    return sorted(found, key=_age)


def _age(found_backup: FoundBackup) -> tuple[str, int, str]:
    """Sorts by device and number: the clock may have gone back."""
    manifest = found_backup.manifest
    return (manifest.device, manifest.number, "") if manifest else ("", 0, found_backup.folder.name)


@contextmanager
def partial(destination: Path, owner: BackupOwner, now_ms: int) -> Generator[Path]:
    """A new partial backup, locked. It is deleted on an error."""
    folder = _made(destination, owner, datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ"))
    with _locked(folder) as mine:
        if not mine:
            raise HomeBusy(f"another backup is being written to {folder}")
        try:
            yield folder
        except BaseException:
            with suppress(OSError):
                _empty(folder)
            raise


def complete(folder: Path) -> Path:
    """Gives a partial backup its name, durably."""
    found = _HIDDEN.fullmatch(folder.name)
    assert found is not None, "made by partial"
    named = folder.with_name(_name(found["device"], found["time"]))
    folder.rename(named)
    sync_directory(named.parent)
    return named


def tidy(destination: Path, owner: BackupOwner) -> None:
    """Deletes what crashes of this device left."""
    for path in sorted(destination.iterdir()):
        found = _HIDDEN.fullmatch(path.name)
        if found is None or found["device"] != owner.device or path.is_symlink() or not path.is_dir():
            continue
        with _locked(path) as mine:
            if mine and found["state"] == PARTIAL[1:]:
                _empty(path)
            elif mine:  # else another process writes it now
                _delete_listed(path)


def keep(destination: Path, owner: BackupOwner, newest: Path, count: int) -> tuple[list[Path], list[Path]]:
    """Deletes the oldest complete backups of this device beyond ``count``, never ``newest``. Returns the deleted ones, and
    those spared because they are incomplete or hold something else."""
    own = [each for each in backups(destination) if each.is_of(owner) and each.folder != newest]
    surplus = own[: max(len(own) + 1 - count, 0)]
    gone: list[Path] = []
    spared: list[Path] = []
    for found_backup in surplus:
        if found_backup.manifest is None or not _is_whole(found_backup.folder, found_backup.manifest):
            spared.append(found_backup.folder)
            continue
        found = _COMPLETE.fullmatch(found_backup.folder.name)
        assert found is not None, "found by its name"
        removing = found_backup.folder.with_name(f".crystal-{owner.device}-{found['time']}{REMOVING}")
        found_backup.folder.rename(removing)
        sync_directory(destination)
        _delete_listed(removing)
        gone.append(found_backup.folder)
    return gone, spared


def next_number(destination: Path, owner: BackupOwner) -> int:
    return (
        max(
            (each.manifest.number for each in backups(destination) if each.manifest and each.is_of(owner)),
            default=0,
        )
        + 1
    )


def _name(device: str, time: str) -> str:
    return f"crystal-{device[:8]}-{time}"


def _made(destination: Path, owner: BackupOwner, moment: str) -> Path:
    for attempt in range(_SAME_SECOND_MAX):
        time = f"{moment}-{attempt}" if attempt else moment
        folder = destination / f".crystal-{owner.device}-{time}{PARTIAL}"
        if not (destination / _name(owner.device, time)).exists():
            with suppress(FileExistsError):
                folder.mkdir(mode=DIRECTORY_MODE)
                return folder
    raise HomeBusy(f"too many backups of this second are in {destination}")


@contextmanager
def _locked(folder: Path) -> Generator[bool]:
    """Tries to lock the folder. Yields whether that succeeded."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True  # a file system without locks: the home's own lock has to do
        else:
            yield True
    finally:
        os.close(descriptor)


def _files_below(folder: Path) -> tuple[set[str], list[str]]:
    """Files and links below a folder, and its folders, deepest first. Follows no link."""
    files: set[str] = set()
    folders: list[str] = []
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    waiting.append(f"{path}/")
                else:
                    files.add(path)
    return files, sorted(folders, key=lambda path: path.count("/"), reverse=True)


def _is_whole(folder: Path, manifest: BackupManifest) -> bool:
    """Whether the folder holds exactly the files of the manifest, with their sizes."""
    listed = {f"{HOME_NAME}/{item.path}": item.size for item in manifest.items}
    files, _ = _files_below(folder)
    if files != listed.keys() | {MANIFEST_NAME, SUMS_NAME}:
        return False
    infos = ((folder / path).lstat() for path in listed)
    return all(info.st_size == size for info, size in zip(infos, listed.values(), strict=True))


def _delete_listed(folder: Path) -> None:
    """Deletes a complete backup, the manifest last. Foreign files in it stay, and the folder with them."""
    try:
        manifest = read_manifest(folder)
    except LocalStorage:
        manifest = None  # all else is deleted already, or somebody changed it: what is there stays
    listed = {f"{HOME_NAME}/{item.path}" for item in manifest.items} if manifest is not None else set[str]()
    files, folders = _files_below(folder)
    for path in sorted(files & listed):
        (folder / path).unlink(missing_ok=True)
    for path in folders:
        with suppress(OSError):
            (folder / path).rmdir()
    if {path.name for path in folder.iterdir()} <= {MANIFEST_NAME, SUMS_NAME}:
        (folder / SUMS_NAME).unlink(missing_ok=True)
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        folder.rmdir()


def _empty(folder: Path) -> None:
    """Deletes a partial backup, which holds only what its writer put there."""
    files, folders = _files_below(folder)
    for path in sorted(files):
        (folder / path).unlink(missing_ok=True)
    for path in folders:
        (folder / path).rmdir()
    folder.rmdir()
