"""Bringing a backup back as the device that it is of: into a home that holds nothing but, perhaps, that device's keys.

::

    empty --backup read back whole--> backup-restore.json written --files, databases, keys copied--> filled
      --own stream begun anew, files that are not in the backup given up--> ready --config.json written--> set up
      --backup-restore.json deleted--> done

A process that is killed anywhere is followed by another that does the same again. What comes back is an older copy of the
device. It names what it records from now on in a new incarnation, so that nothing which the device recorded after the backup
has the same name; all else the sync sorts out, as for any copy of a device. If the device itself is still in use somewhere,
the two would be in each other's way: then the backup is brought back as a new device (``asnewdevice``).
"""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from crystal_mirror.outbox import restart_stream
from crystal_node.base.errors import NotSetUp
from crystal_node.base.home import write_private
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Config, KeyStoreKind, Settings, read_config
from crystal_node.device.device import opened
from crystal_node.device.keys.device_keys import file_store, keyring_store
from crystal_node.safekeeping.backup.keys import SECRETS
from crystal_node.safekeeping.backup.manifest import HOME_NAME, BackupDamaged, BackupManifest, Keys
from crystal_node.safekeeping.backup.meter import Tell
from crystal_node.safekeeping.backup.placing import begin, checked, end, fill, read_progress
from crystal_node.safekeeping.backup.tree import CONFIG
from crystal_node.sync.files.comeback import adopt_files

IDENTITY = "identity"
"""The name of a device's own keys in its key store."""
_WAIT_SECONDS = 5.0


class KeysMissing(NotSetUp):
    """Neither the backup nor this machine has the keys of the device that the backup is of."""

    hint = (
        "With the recovery kit it comes back as a new device: add --kit FILE, or --kit - to type it. Or put that device's keys "
        "(its folder state/secrets) into the empty home, and run it again."
    )


@dataclass(frozen=True, slots=True)
class RestoredDevice:
    """``keys``: where the device's keys are now; ``from_backup``: whether they came with the backup."""

    settings: Settings
    manifest: BackupManifest
    keys: KeyStoreKind
    from_backup: bool


def restore_device(settings: Settings, folder: Path, tell: Tell | None = None) -> RestoredDevice:
    """Brings it back in this home.

    Raises:
        LocalStorage, BackupDamaged: it is no backup, or not as it was written; nothing was changed.
        Usage: this home holds something; nothing was changed.
        KeysMissing: the device's keys are neither there nor here; nothing was changed.
        KeyStoreError: the keys cannot be read.
    """
    folder = folder.expanduser().absolute()
    home = settings.home
    manifest = checked(home, folder, tell)
    found = read_progress(home)
    if found is not None and not found.anew and read_config(home.config_file).vault == manifest.vault:
        end(home)  # killed in the last step: the device may have been used since
        config = read_config(home.config_file)
        return RestoredDevice(
            replace(settings, config=config), manifest, KeyStoreKind(config.key_store), found.with_keys
        )
    kind, with_keys, backend = _keys(settings, folder, manifest)
    if found is not None:
        with_keys = found.with_keys
    config_bytes = _config(folder, kind, backend)
    with_config = replace(settings, config=msgspec.json.decode(config_bytes, type=Config))
    begin(home, folder, manifest, with_keys=with_keys, anew=False)
    with FileLock(home.setup_lock, purpose="crystal backup restore", wait_seconds=_WAIT_SECONDS):
        fill(home, folder, manifest, lambda path: path != CONFIG and (with_keys or not _is_key(path)), tell)
        with opened(with_config) as device:
            if device.member.device_id.hex() != manifest.device:
                raise KeysMissing("the keys that are here are another device's than the backup's")
            with device.journal.transaction() as transaction:
                restart_stream(device.member, transaction)
            adopt_files(device, {item.path for item in manifest.items})
        write_private(home.config_file, config_bytes)
        end(home)
    return RestoredDevice(with_config, manifest, kind, with_keys)


def _is_key(path: str) -> bool:
    return path.startswith(f"{SECRETS}/")


def _keys(settings: Settings, folder: Path, manifest: BackupManifest) -> tuple[KeyStoreKind, bool, str]:
    """Where the keys will be, whether they come from the backup, and the keyring's class. What is here comes first: a relay's
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
    """The backup's settings, with the place where the keys are now."""
    path = folder / HOME_NAME / CONFIG
    if path.is_symlink() or not path.is_file():
        raise BackupDamaged(f"{folder} holds no {CONFIG}")
    read_config(path)  # another's word: of the right form, and of no later version
    settings = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    settings |= {"key_store": kind.value, "keyring_backend": backend, "key_store_left": ""}
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
