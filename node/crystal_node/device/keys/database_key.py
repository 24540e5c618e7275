"""Finding the key of encrypted databases: those of this home, of a backup, or of a home that is being restored.

The key is a secret of the device like its others (``DeviceKeys.database_keys``). Databases name it by an id, so that one from
another key store is never tried. A process looks for a key once and keeps it.
"""

from collections.abc import Iterator
from pathlib import Path

from crystal_core.encryption import key_id
from crystal_core.errors import DatabaseKeyMissing
from crystal_crypto.errors import KeyStoreError
from crystal_node.base.home import Home
from crystal_node.base.process_memory import keep_others_out
from crystal_node.base.settings import KeyStoreKind, read_config, resolve
from crystal_node.device.keys.device_keys import DeviceKeys, file_store_in_use, keyring_store

_found: dict[str, bytes] = {}


def find_key(folder: Path, wanted: str) -> bytes:
    """The key with the id ``wanted``, for databases in ``folder``.

    Looked for in the key store of the home that the folder is of (a backup may hold one), then in that of this process's home.

    Raises:
        DatabaseKeyMissing: it is in neither.
        KeyStoreError, PassphraseNeeded, WrongPassphrase: a key store cannot be opened, and the key is in no other.
    """
    if wanted in _found:
        return _found[wanted]
    keep_others_out()
    failure: KeyStoreError | None = None
    for home, kind in _places(folder):
        config = read_config(home.config_file)
        try:
            store = (
                file_store_in_use(home)
                if kind is KeyStoreKind.FILE
                else keyring_store(home, config.keyring_backend)
            )
            keys = DeviceKeys(store, kind, "").database_keys()
            key = next((key for key in keys if key_id(key) == wanted), None)
        except KeyStoreError as error:
            if kind == config.key_store:  # else there may well be none
                failure = failure or error
            continue
        if key is not None:
            _found[wanted] = key
            return key
    if failure is not None:
        raise failure
    raise DatabaseKeyMissing(
        f"the databases in {folder} are encrypted, and their key is in no key store here"
    )


def _places(folder: Path) -> Iterator[tuple[Home, KeyStoreKind]]:
    """Where the key may be: both kinds, since a backup holds a keyring's secrets as files, and while a home is being restored
    its settings are not there yet."""
    own = resolve().home
    folder = folder.absolute()
    homes = [own]
    if folder not in (own.state, own.database.parent):
        homes.insert(0, Home(folder.parent, passphrase_file=own.passphrase_file))
    for home in homes:
        if home.secrets.is_dir():
            yield home, KeyStoreKind.FILE
        yield home, KeyStoreKind.KEYRING
