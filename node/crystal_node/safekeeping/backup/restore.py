"""Restoring a backup into an empty home: as the device that it is of, or with the recovery kit as a new device of the vault.

As the same device, whose keys are in the backup or in this home::

    empty --backup read back whole--> backup-restore.json written --files, databases, keys copied--> filled
      --own stream restarted, files that are not in the backup given up--> ready --config.json written--> set up
      --backup-restore.json deleted--> done

What comes back is an older copy of the device. It records in a new incarnation from now on, so that nothing which the device
recorded after the backup has the same name; sync resolves the rest, as for any copy of a device.

As a new device, where the keys are lost, or the device itself may still be in use::

    empty --backup read back whole--> backup-restore.json written --files copied--> files here, halted
      --crystal_node.safekeeping.recovery restores from the backup's databases--> a new device of the vault, synced
      --what is known of the files made this device's--> files synced from the next round on --> done

The files are there first, with what was known of them and without the home's marker: the first round leaves them alone, and
later ones continue where the backup's device was. What that device had not sent comes along under its old names.

A process that is killed anywhere is followed by another that does the same again. While ``state/backup-restore.json`` is there,
the home has no ``config.json``, and so no other command uses it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_crypto.kit import Kit
from crystal_mirror.streams.outbox import restart_stream
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import LocalStorage, NotSetUp, UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.home import FILE_MODE, Home, sync_directory, write_private
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Config, KeyStoreKind, Settings, read_config
from crystal_node.device.device import opened
from crystal_node.device.keys.device_keys import file_store, keyring_store
from crystal_node.device.recovery_kit import WrongKit
from crystal_node.safekeeping.backup.databases import FILES, WEAVER, WORKS, database_paths, marker_paths
from crystal_node.safekeeping.backup.keys import SECRETS
from crystal_node.safekeeping.backup.manifest import HOME_NAME, BackupDamaged, BackupManifest, Keys
from crystal_node.safekeeping.backup.tree import CONFIG, backup_rules, may_be_restored
from crystal_node.safekeeping.backup.verification import verify_backup
from crystal_node.safekeeping.file_copy import CopiedFile, Meter, Tell, copy_file
from crystal_node.safekeeping.recovery.restore import Core, Restored, restore
from crystal_node.sync.files.rounds import adopt_files
from crystal_node.sync.files.scan import Scan

IDENTITY = "identity"
"""The name of a device's own keys in its key store."""
KEPT = frozenset({FILES, WORKS, WEAVER})
"""Databases about the home's files, which hold on any device."""
_LEFT_OVER = ("-wal", "-shm", "-journal")
_EXECUTABLE = 0o100
_WAIT_SECONDS = 5.0


class KeysMissing(NotSetUp):
    """Neither the backup nor this machine has the keys of the device that the backup is of."""

    hint = (
        "With the recovery kit it comes back as a new device: add --kit FILE, or --kit - to type it. Or put that device's keys "
        "(its folder state/secrets) into the empty home, and run it again."
    )


@dataclass(frozen=True, slots=True)
class RestoredDevice:
    """The outcome. ``keys``: where the device's keys are now; ``from_backup``: whether they came with the backup."""

    settings: Settings
    manifest: BackupManifest
    keys: KeyStoreKind
    from_backup: bool


@dataclass(frozen=True, slots=True)
class RestoredAsNew:
    """The outcome of the recovery, and the manifest of the backup."""

    restored: Restored
    manifest: BackupManifest


class BackupRestoreProgress(msgspec.Struct, frozen=True):
    """The backup that is being restored; ``with_keys``: with its keys; ``anew``: as a new device."""

    device: str
    number: int
    folder: str
    with_keys: bool
    anew: bool


def restore_device(settings: Settings, folder: Path, tell: Tell | None = None) -> RestoredDevice:
    """Restores the device of the backup in this home. Where nothing else is said, an error has changed nothing.

    Raises:
        LocalStorage, BackupDamaged: it is no backup, or not as it was written.
        UsageError: this home is not empty.
        KeysMissing: the device's keys are neither there nor here.
        KeyStoreError: the keys cannot be read.
    """
    folder = given_path(folder)
    home = settings.home
    manifest = _checked(home, folder, tell)
    found = read_progress(home)
    if found is not None and not found.anew and read_config(home.config_file).vault == manifest.vault:
        _end(home)  # killed in the last step: the device may have been used since
        config = read_config(home.config_file)
        return RestoredDevice(
            replace(settings, config=config), manifest, KeyStoreKind(config.key_store), found.with_keys
        )
    kind, with_keys, backend = _keys(settings, folder, manifest)
    if found is not None:
        with_keys = found.with_keys
    config_bytes = _config(folder, kind, backend)
    with_config = replace(settings, config=from_json(config_bytes, Config))
    _begin(home, folder, manifest, with_keys=with_keys, anew=False)
    with FileLock(home.setup_lock, purpose="crystal backup restore", wait_seconds=_WAIT_SECONDS):
        _fill(home, folder, manifest, lambda path: path != CONFIG and (with_keys or not _is_key(path)), tell)
        with opened(with_config) as device:
            if device.member.device_id.hex() != manifest.device:
                raise KeysMissing("the keys that are here are another device's than the backup's")
            with device.journal.transaction() as transaction:
                restart_stream(device.member, transaction)
            adopt_files(device, {item.path for item in manifest.items})
        write_private(home.config_file, config_bytes)
        _end(home)
    return RestoredDevice(with_config, manifest, kind, with_keys)


async def restore_as_new(
    settings: Settings,
    folder: Path,
    kit: Kit,
    *,
    enrolment_token: str = "",
    lead: bool = False,
    wants_lead: Callable[[Core], bool] = lambda _: False,
    tell: Tell | None = None,
) -> RestoredAsNew:
    """Restores the backup in this home as a new device. ``folder`` is absolute; the other arguments and errors are those of
    ``crystal_node.safekeeping.recovery.restore.restore``. The errors below have changed nothing.

    Raises:
        LocalStorage, BackupDamaged: it is no backup, or not as it was written.
        WrongKit: the kit is another vault's.
        UsageError: this home is not empty.
    """
    home = settings.home
    manifest = _checked(home, folder, tell)
    if kit.vault.hex() != manifest.vault:
        raise WrongKit("that kit belongs to another vault than the backup")
    if any(item.path in marker_paths(home) for item in manifest.items):
        raise UsageError(
            "the databases in this backup are encrypted with their device's own key, which no recovery kit holds",
            hint="With that device's keys it comes back as the same device: leave --kit out. Without them "
            "`crystal recovery restore` brings back all that was synced.",
        )
    if read_progress(home) is None or not home.config_file.exists():
        _begin(home, folder, manifest, with_keys=False, anew=True)
        own = database_paths(home).keys() - KEPT
        _fill(home, folder, manifest, lambda path: _is_wanted(path, own), tell)
    restored = await restore(
        settings,
        kit,
        source=folder / HOME_NAME,
        enrolment_token=enrolment_token,
        lead=lead,
        wants_lead=wants_lead,
        with_files=False,
    )
    with opened(restored.settings) as device:
        adopt_files(device, {item.path for item in manifest.items}, relay_lost=restored.relay_lost)
    _end(home)
    return RestoredAsNew(restored, manifest)


def relay_of(folder: Path) -> str:
    """The address of the relay that the backup's device used; "" if it had none."""
    return read_config(given_path(folder) / HOME_NAME / CONFIG).relay_url


def read_progress(home: Home) -> BackupRestoreProgress | None:
    """The progress of an interrupted restore; None if there is none. Raises LocalStorage if the file is damaged."""
    try:
        return from_json(home.backup_restore_file.read_bytes(), BackupRestoreProgress)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UNDECODABLE as error:
        raise LocalStorage(
            f"{home.backup_restore_file} is damaged",
            hint="Restore into another, empty home: CRYSTAL_HOME=~/.crystal-2.",
        ) from error


def _checked(home: Home, folder: Path, tell: Tell | None) -> BackupManifest:
    """Reads the whole backup. Returns its manifest.

    Raises:
        LocalStorage: it is no backup.
        BackupDamaged: it is not as it was written, or names a path that no home has.
    """
    verified = verify_backup(folder, lambda _: None, tell)
    verified.check()
    for item in verified.manifest.items:
        if _place(home, item.path) is None:
            raise BackupDamaged(f"{folder} names {item.path!r}, which is no file of a home")
    return verified.manifest


def _begin(
    home: Home, folder: Path, manifest: BackupManifest, *, with_keys: bool, anew: bool
) -> BackupRestoreProgress:
    """Claims the home for this restore, or continues an interrupted one. Raises UsageError if anything would be overwritten."""
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


def _end(home: Home) -> None:
    home.backup_restore_file.unlink(missing_ok=True)
    sync_directory(home.state)


def _fill(
    home: Home, folder: Path, manifest: BackupManifest, wanted: Callable[[str], bool], tell: Tell | None
) -> None:
    """Copies the files whose paths in the backup are ``wanted``, durably. Raises BackupDamaged if one of them has changed."""
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


def _keys(settings: Settings, folder: Path, manifest: BackupManifest) -> tuple[KeyStoreKind, bool, str]:
    """Where the keys will be, whether they come from the backup, and the keyring's class. Keys that are here come first: their
    token may be newer than the backup's."""
    home = settings.home
    if IDENTITY in file_store(home).names():
        return KeyStoreKind.FILE, False, ""
    if manifest.keys is not Keys.NONE:
        return KeyStoreKind.FILE, True, ""
    config = read_config(folder / HOME_NAME / CONFIG)
    if config.key_store == KeyStoreKind.KEYRING:
        keyring = keyring_store(home, config.keyring_backend)
        if keyring.load(IDENTITY) is not None:
            return KeyStoreKind.KEYRING, False, keyring.backend_name
    raise KeysMissing("the keys of the device that this backup is of are neither in it nor on this machine")


def _config(folder: Path, kind: KeyStoreKind, backend: str) -> bytes:
    """The backup's ``config.json`` with the new place of the keys."""
    path = folder / HOME_NAME / CONFIG
    if path.is_symlink() or not path.is_file():
        raise BackupDamaged(f"{folder} holds no {CONFIG}")
    read_config(path)  # foreign data: checks the form and the version
    settings = from_json(path.read_bytes(), dict[str, object])
    settings |= {"key_store": kind.value, "keyring_backend": backend, "key_store_left": ""}
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"


def _is_key(path: str) -> bool:
    return path.startswith(f"{SECRETS}/")


def _is_wanted(path: str, own: set[str]) -> bool:
    return path not in own and path != CONFIG and not path.startswith(f"{SECRETS}/")


def _place(home: Home, path: str) -> Path | None:
    """Where a file of a backup goes; None if no home has such a file."""
    database = (database_paths(home) | marker_paths(home)).get(path)
    if database is not None:
        return database
    folder, _, name = path.rpartition("/")
    if folder == SECRETS:
        return home.secrets / name
    if path == CONFIG:
        return home.config_file
    return home.root / path if may_be_restored(path, home) else None


def _finish(place: Path, item: CopiedFile) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, FILE_MODE | _EXECUTABLE if item.executable else FILE_MODE)
        if item.modified_ns:
            os.utime(descriptor, ns=(item.modified_ns, item.modified_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
