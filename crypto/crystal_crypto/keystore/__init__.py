"""Where a device keeps its secrets: the system's keyring if it works, else files that only their owner can read, wrapped
under a passphrase if the person wants one.

Rules: when a store call returns, the whole secret is on disk. Nothing here reads the environment or asks a person; the
composition root chooses the place and passes the passphrase.

    port            what every key store offers        files        secrets in files, plain or wrapped
    system_keyring  the system's keyring               folder       locking, writing and deleting these files
                                                       passphrase   format of the header and of wrapped secrets
"""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_crypto.errors import KeyStoreError
from crystal_crypto.identity import Random
from crystal_crypto.keystore.files import AskPassphrase, FileKeyStore, nobody_to_ask
from crystal_crypto.keystore.passphrase import SealState
from crystal_crypto.keystore.port import KeyStore
from crystal_crypto.keystore.system_keyring import KEYRING_SECONDS_MAX, KeyringKeyStore

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

__all__ = (
    "KEYRING_SECONDS_MAX",
    "AskPassphrase",
    "Choice",
    "FileKeyStore",
    "KeyStore",
    "KeyringKeyStore",
    "Preference",
    "SealState",
    "choose_keystore",
    "nobody_to_ask",
)


class Preference(Enum):
    """Which store is wanted."""

    AUTO = "auto"
    KEYRING = "keyring"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Choice:
    """The store that was chosen, where it is (`FILE` or `KEYRING`), and why, in words for the person."""

    store: KeyStore
    place: Preference
    reason: str


def choose_keystore(
    directory: Path,
    *,
    service: str,
    preference: Preference = Preference.AUTO,
    backend: "KeyringBackend | None" = None,
    seconds_max: float = KEYRING_SECONDS_MAX,
    random: Random = os.urandom,
    passphrase: AskPassphrase = nobody_to_ask,
) -> Choice:
    """The keyring if it is wanted and works, else files in `directory`.

    `service` names this home in the keyring; `backend` defaults to the system's own. Raises KeyStoreError if the keyring
    was asked for and does not work: a secret is never silently stored where the person did not want it.
    """
    if preference is Preference.FILE:
        return Choice(FileKeyStore(directory, passphrase), Preference.FILE, "files were asked for")
    try:
        keyring = KeyringKeyStore(service, backend, seconds_max=seconds_max)
        keyring.probe(random)
    except KeyStoreError as error:
        if preference is Preference.KEYRING:
            raise
        return Choice(FileKeyStore(directory, passphrase), Preference.FILE, f"no usable keyring: {error}")
    return Choice(keyring, Preference.KEYRING, f"{keyring.description} kept and returned a test secret")
