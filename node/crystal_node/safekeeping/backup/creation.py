"""Making a backup of this device's home while other processes go on using it.

::

    (nothing) --folder made, locked--> partial --databases, files, keys copied--> full
      --each file flushed, read back, checked; manifest written--> verified --renamed--> complete
      --older ones beyond --keep deleted--> done

A failure before the renaming leaves the folder as it was; a killed process leaves a partial backup, which the next one deletes.
Nothing writes to a complete backup.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path

from msgspec.structs import replace

from crystal_crypto.hierarchy import VaultSecret
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.home import DIRECTORY_MODE, Home, sync_directory, write_private
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.base.wording import size
from crystal_node.device.device import Device
from crystal_node.safekeeping.backup.databases import JOURNAL, copy_database, marker_paths, snapshots
from crystal_node.safekeeping.backup.folder import (
    DESTINATION_MARK,
    BackupOwner,
    complete,
    keep,
    next_number,
    partial,
    tidy,
)
from crystal_node.safekeeping.backup.keys import copy_keys
from crystal_node.safekeeping.backup.manifest import (
    HOME_NAME,
    MANIFEST_NAME,
    SUMS_NAME,
    VERSION,
    BackupManifest,
    Keys,
    LeftOut,
    encoded,
    read_manifest,
    sums,
)
from crystal_node.safekeeping.backup.tree import copy_tree, find_files
from crystal_node.safekeeping.backup.verification import Verified, open_journal, verify_files
from crystal_node.safekeeping.file_copy import CopiedFile, Meter, Tell, never, write_new

SPARE_BYTES = 16 * 1024 * 1024
"""Disk space needed beyond the copied files, for names, folders and the manifest."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The device of a backup and the secret that checks its memory. Read while the device is open; usable anywhere."""

    owner: BackupOwner
    secret: VaultSecret

    @classmethod
    def of(cls, device: Device) -> "Subject":
        member = device.member
        return cls(BackupOwner(member.vault.hex(), member.device_id.hex()), member.secret)


@dataclass(frozen=True, slots=True)
class BackedUp:
    """The outcome. ``gone``: older backups that were deleted; ``spared``: those kept because they are incomplete or hold
    foreign files; ``unread``: files that could not be read, in which case nothing is deleted."""

    folder: Path
    manifest: BackupManifest
    gone: tuple[Path, ...]
    spared: tuple[Path, ...]
    unread: tuple[LeftOut, ...]
    seconds: float


def back_up(
    settings: Settings,
    subject: Subject,
    destination: Path,
    *,
    count: int | None = None,
    with_keys: bool = False,
    marked: bool = False,
    tell: Tell | None = None,
    stopped: Callable[[], bool] = never,
) -> BackedUp:
    """Makes a backup in the folder ``destination`` and keeps the newest ``count`` of this device there; None: all.

    ``marked``: the folder must have been set up for backups; else it is created if its parent exists. ``stopped`` is asked
    while copying.

    Raises:
        Usage: the folder lies in the home, or no keys can be kept there.
        LocalStorage, OSError: the disk is full, not there, or fails; or a database of the home is damaged.
        HomeBusy: another backup of this home is being made.
        BackupStopped: ``stopped`` returned True.
    """
    started = time.monotonic()
    home = settings.home
    destination = ready_destination(settings, destination, marked=marked)
    with FileLock(home.backup_lock, purpose="crystal backup", wait_seconds=1.0):
        tidy(destination, subject.owner)
        with partial(destination, subject.owner, now_ms()) as folder:
            manifest, unread = _fill(settings, subject, folder, with_keys, tell, stopped)
            named = complete(folder)
        gone, spared = ([], []) if count is None or unread else keep(destination, subject.owner, named, count)
    seconds = time.monotonic() - started
    return BackedUp(named, manifest, tuple(gone), tuple(spared), tuple(unread), seconds)


def ready_destination(settings: Settings, destination: Path, *, marked: bool) -> Path:
    """Checks the folder for backups, or creates it. See ``back_up``."""
    destination = given_path(destination)
    root, data = settings.home.root.resolve(), settings.home.database.parent.resolve()
    for inner in (destination.resolve(), *destination.resolve().parents):
        if inner in (root, data):
            raise UsageError(
                f"{destination} lies in the memory home, which is what is backed up",
                hint="Choose a folder elsewhere, best on another disk.",
            )
    if marked and not (destination / DESTINATION_MARK).is_file():
        raise LocalStorage(
            f"{destination} is not there, or was not set up for backups",
            hint="Is its disk attached? `crystal backup setup --to FOLDER` chooses a folder.",
        )
    if not destination.is_dir():
        if not destination.parent.is_dir():
            raise UsageError(f"there is no folder {destination.parent}", hint="Is its disk attached?")
        try:
            destination.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            sync_directory(destination.parent)
        except OSError as error:
            raise LocalStorage(
                f"{destination} cannot be made: {error.strerror}",
                hint="Choose a folder that you may write to.",
            ) from error
    return destination


def _fill(
    settings: Settings,
    subject: Subject,
    folder: Path,
    with_keys: bool,
    tell: Tell | None,
    stopped: Callable[[], bool],
) -> tuple[BackupManifest, list[LeftOut]]:
    """Copies everything, checks it on the disk, and writes the manifest."""
    target = folder / HOME_NAME
    target.mkdir(mode=DIRECTORY_MODE)
    items, meter = _databases(settings, target, folder, with_keys, tell, stopped)
    found = find_files(settings.home, with_keys=with_keys)
    copied, unread = copy_tree(settings.home.root, found.files, target, meter)
    unread += found.unread
    items += copied
    keys = Keys.NONE
    if with_keys:
        secrets, keys = copy_keys(settings, target)
        items += secrets
    manifest = BackupManifest(
        format="crystal-backup",
        version=VERSION,
        vault=subject.owner.vault,
        device=subject.owner.device,
        number=next_number(folder.parent, subject.owner),
        made_ms=now_ms(),
        program=version("memory-crystal"),
        keys=keys,
        epoch=0,
        sequence=0,
        digest="",
        unsent=_unsent(target / JOURNAL),
        items=tuple(sorted(items, key=lambda item: item.path)),
        left_out=(*found.left_out, *unread),
    )
    meter = Meter(tell, "reading back", manifest.bytes, stopped)
    verified = verify_files(target, manifest, lambda _: subject.secret, meter, flush=True)
    _refuse_damage(verified)
    epoch, sequence = verified.position
    manifest = replace(manifest, epoch=epoch, sequence=sequence, digest=verified.digest)
    _sync_folders(target)
    data = encoded(manifest)
    write_private(folder / MANIFEST_NAME, data)
    write_private(folder / SUMS_NAME, sums(manifest, data))
    if read_manifest(folder) != manifest:
        raise LocalStorage(f"{folder} cannot be read back as it was written")
    return manifest, unread


def _databases(
    settings: Settings,
    target: Path,
    folder: Path,
    with_keys: bool,
    tell: Tell | None,
    stopped: Callable[[], bool],
) -> tuple[list[CopiedFile], Meter]:
    """Checks the disk space for everything, and copies the databases."""
    home = settings.home
    items: list[CopiedFile] = []
    with snapshots(home) as taken:
        total = sum(each.bytes for each in taken) + sum(
            length for _, length in find_files(home, with_keys=with_keys).files
        )
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if free < total + SPARE_BYTES:
            raise LocalStorage(
                f"the backup needs {size(total + SPARE_BYTES)}, and {size(free)} are free at {folder.parent}",
                hint="Make room there, or choose another folder. Older backups are not touched before a new one is whole.",
            )
        if tell is not None:
            tell(f"backing up {size(total)}")
        meter = Meter(tell, "copying", total, stopped)
        items += _markers(home, target)  # first: they say how the copies are written
        for each in taken:
            path = target / each.place
            path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            copy_database(each, path, meter)
            with path.open("rb") as file:
                hashed = file_digest(file, "sha256").hexdigest()
            items.append(CopiedFile(each.place, path.stat().st_size, hashed))
    return items, meter


def _markers(home: Home, target: Path) -> list[CopiedFile]:
    return [
        write_new(target, place, path.read_bytes())
        for place, path in marker_paths(home).items()
        if path.is_file()
    ]


def _refuse_damage(found: Verified) -> None:
    """Raises LocalStorage if a copy is damaged, by the backup's disk or already in the home."""
    for path, what in found.problems.items():
        if path in found.unsound:
            raise LocalStorage(
                f"the home's {path.removeprefix(HOME_NAME + '/')} is damaged, so no backup was made: {what}",
                hint="`crystal doctor` and `crystal repair` look after it. Backups that were made before are untouched.",
            )
        raise LocalStorage(
            f"{path} cannot be read back as it was written, so no backup was made: {what}",
            hint="Look after the disk that the backup was to go to. Backups that were made before are untouched.",
        )


def _unsent(journal: Path) -> int:
    """Operations that are not durable yet."""
    opened = open_journal(journal)
    try:
        return opened.outbox_count()
    finally:
        opened.close()


def _sync_folders(home: Path) -> None:
    """Makes the names durable, from the bottom up; the contents are already."""
    for folder, _, _ in os.walk(home, topdown=False):
        sync_directory(Path(folder))
    sync_directory(home.parent)
