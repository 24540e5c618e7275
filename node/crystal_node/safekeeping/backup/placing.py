"""Filling an empty home from a backup: what may be overwritten, and where each file goes.

While it is under way, ``state/backup-restore.json`` says of which backup; it is the first thing that is written and the last
that goes. In between the home has no ``config.json``, and so no other command uses it.
"""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec

from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import FILE_MODE, Home, sync_directory, write_private
from crystal_node.safekeeping.backup.databases import database_paths
from crystal_node.safekeeping.backup.keys import SECRETS
from crystal_node.safekeeping.backup.manifest import HOME_NAME, BackupDamaged, BackupManifest, Item
from crystal_node.safekeeping.backup.meter import Meter, Tell
from crystal_node.safekeeping.backup.tree import CONFIG, backup_rules, copy_file, may_be_restored
from crystal_node.safekeeping.backup.verifying import verify_backup
from crystal_node.sync.files.scan import Scan

_LEFT_OVER = ("-wal", "-shm", "-journal")
_EXECUTABLE = 0o100


class BackupRestoreProgress(msgspec.Struct, frozen=True):
    """Which backup is being brought back; ``with_keys``: whether its keys are taken, too; ``anew``: as a new device."""

    device: str
    number: int
    folder: str
    with_keys: bool
    anew: bool


def checked(home: Home, folder: Path, tell: Tell | None) -> BackupManifest:
    """A backup's manifest, after all of it was read back.

    Raises:
        LocalStorage: it is no backup.
        BackupDamaged: it is not as it was written, or names what may not stand in a home.
    """
    verified = verify_backup(folder, lambda _: None, tell)
    verified.check()
    for item in verified.manifest.items:
        if _place(home, item.path) is None:
            raise BackupDamaged(f"{folder} names {item.path!r}, which is no file of a home")
    return verified.manifest


def begin(
    home: Home, folder: Path, manifest: BackupManifest, *, with_keys: bool, anew: bool
) -> BackupRestoreProgress:
    """Takes the home for this restore, or goes on with one that was interrupted.

    Raises Usage if anything is here that would be overwritten.
    """
    found = read_progress(home)
    if found is not None:
        if (found.device, found.number, found.anew) != (manifest.device, manifest.number, anew):
            raise UsageError(
                f"a restore of {found.folder} into this home was interrupted",
                hint="Finish that one first, with the same options, or take another home: CRYSTAL_HOME=~/.crystal-2.",
            )
        return found
    held = [path for path in (home.config_file, *database_paths(home).values()) if path.exists()]
    if not held and home.root.is_dir():
        held = [home.root / local.path for local in islice(Scan(home.root, backup_rules(home)), 1)]
    if held:
        raise UsageError(
            f"there is something in this home already: {held[0]}",
            hint="Move it away first, or restore into another home: CRYSTAL_HOME=~/.crystal-2.",
        )
    home.create()
    progress = BackupRestoreProgress(manifest.device, manifest.number, str(folder), with_keys, anew)
    write_private(home.backup_restore_file, msgspec.json.encode(progress))
    return progress


def read_progress(home: Home) -> BackupRestoreProgress | None:
    """What an interrupted restore left. Raises LocalStorage for a file that says nothing."""
    try:
        return msgspec.json.decode(home.backup_restore_file.read_bytes(), type=BackupRestoreProgress)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LocalStorage(
            f"{home.backup_restore_file} is damaged",
            hint="Restore into another, empty home: CRYSTAL_HOME=~/.crystal-2.",
        ) from error


def end(home: Home) -> None:
    home.backup_restore_file.unlink(missing_ok=True)
    sync_directory(home.state)


def fill(
    home: Home, folder: Path, manifest: BackupManifest, wanted: Callable[[str], bool], tell: Tell | None
) -> None:
    """Copies the files that are ``wanted``, by their paths in the backup, durably.

    Raises BackupDamaged if one of them is not as it was written any more.
    """
    items = [item for item in manifest.items if wanted(item.path)]
    meter = Meter(tell, "restoring", sum(item.size for item in items))
    folders: set[Path] = set()
    for item in items:
        place = _place(home, item.path)
        if place is None:
            raise BackupDamaged(f"{folder} names {item.path!r}, which is no file of a home")
        for ending in _LEFT_OVER if place.suffix == ".db" else ():
            Path(f"{place}{ending}").unlink(missing_ok=True)
        place.unlink(missing_ok=True)
        copied = copy_file(folder / HOME_NAME, item.path, place, meter)
        if copied is None or copied.sha256 != item.sha256:
            raise BackupDamaged(f"{HOME_NAME}/{item.path} is damaged: it changed while it was restored")
        _finish(place, item)
        folders |= {place.parent, *(each for each in place.parents if home.root in each.parents)}
    for each in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        sync_directory(each)
    sync_directory(home.root)


def _place(home: Home, path: str) -> Path | None:
    """Where a file of a backup goes; None if it is of no home."""
    database = database_paths(home).get(path)
    if database is not None:
        return database
    folder, _, name = path.rpartition("/")
    if folder == SECRETS:
        return home.secrets / name
    if path == CONFIG:
        return home.config_file
    return home.root / path if may_be_restored(path, home) else None


def _finish(place: Path, item: Item) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, FILE_MODE | _EXECUTABLE if item.executable else FILE_MODE)
        if item.modified_ns:
            os.utime(descriptor, ns=(item.modified_ns, item.modified_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
