"""The device's keys in a backup, where they are wanted: a holder of such a backup is that device.

Files that a passphrase protects are copied as they are. Keys from the system's keyring become plain files, since only that
keyring has their password. All files have mode 0600, on file systems with modes.
"""

import stat
from pathlib import Path

from crystal_crypto.keystore.folder import HEADER_FILE, SecretFolder
from crystal_node.base.errors import UsageError
from crystal_node.base.home import DIRECTORY_MODE, Home
from crystal_node.base.settings import KeyStoreKind, Settings
from crystal_node.device.keys.device_keys import NAMES, keyring_store
from crystal_node.safekeeping.backup.manifest import Keys
from crystal_node.safekeeping.file_copy import CopiedFile, write_new

SECRETS = "state/secrets"
_OTHERS = 0o077


def copy_keys(settings: Settings, target: Path) -> tuple[list[CopiedFile], Keys]:
    """Copies this device's keys to a backup's home.

    Raises:
        UsageError: that disk cannot keep others from reading them.
        KeyStoreError: they cannot be read.
    """
    folder = target / SECRETS
    folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
        raise UsageError(
            f"{target} is on a disk that lets everybody read what is on it: no keys are put there",
            hint="Choose another disk, or leave --with-keys out and keep the recovery kit.",
        )
    in_keyring = settings.config.key_store == KeyStoreKind.KEYRING
    found, kind = _from_keyring(settings) if in_keyring else _from_files(settings.home)
    return [write_new(target, f"{SECRETS}/{name}", data) for name, data in sorted(found.items())], kind


def _from_files(home: Home) -> tuple[dict[str, bytes], Keys]:
    """The files as they are, under the lock of the key store."""
    folder = SecretFolder(home.secrets)
    with folder.locked():
        found = {name: folder.read(name) for name in (HEADER_FILE, *folder.names())}
    kept = {name: data for name, data in found.items() if data is not None}
    return kept, Keys.SEALED if HEADER_FILE in kept else Keys.PLAIN


def _from_keyring(settings: Settings) -> tuple[dict[str, bytes], Keys]:
    keyring = keyring_store(settings.home, settings.config.keyring_backend)
    found = {name: keyring.load(name) for name in NAMES}
    return {name: data for name, data in found.items() if data is not None}, Keys.PLAIN
