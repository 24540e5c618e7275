"""How this device's keys are kept, without opening any: for ``crystal keys`` and ``crystal doctor``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from crystal_core.encryption import EncryptionState, read_marker
from crystal_crypto.keystore import SealState
from crystal_node.base.errors import NotSetUp
from crystal_node.base.home import Home
from crystal_node.base.settings import KeyStoreKind, Settings
from crystal_node.device.keys.device_keys import file_store


class PassphraseState(StrEnum):
    """Whether the keys have a passphrase. ``UNFINISHED``: setting or removing one was interrupted."""

    NONE = "none"
    SET = "set"
    UNFINISHED = "unfinished"
    KEYRING = "keyring"


_WORDS = {
    PassphraseState.NONE: "none: anyone who can read the files can use the keys",
    PassphraseState.SET: "set",
    PassphraseState.UNFINISHED: "a change was interrupted: run `crystal keys passphrase` again, with --remove if that was it",
    PassphraseState.KEYRING: "the keyring's own",
}


DATABASE_WORDS: Final = {
    None: "databases are plain: anyone who can read the files can read them (`crystal keys encrypt`)",
    EncryptionState.ENCRYPTED: "databases are encrypted",
    EncryptionState.ENCRYPTING: "encrypting them was interrupted: run `crystal keys encrypt` again",
    EncryptionState.REKEYING: "replacing their key was interrupted: run `crystal keys rekey` again",
    EncryptionState.DECRYPTING: "decrypting them was interrupted: run `crystal keys decrypt` again",
}


def encryption_state(home: Home) -> EncryptionState | None:
    """How far the databases are encrypted; None: not at all. Needs no key. Raises VaultDataError for a damaged marker."""
    markers = [read_marker(folder) for folder in (home.state, home.database.parent)]
    states = {None if marker is None else marker.state for marker in markers}
    if len(states) == 1:
        return states.pop()
    if EncryptionState.REKEYING in states:
        return EncryptionState.REKEYING
    # Killed between the two: that in state/ is written first, and removed last.
    return EncryptionState.DECRYPTING if markers[0] is None else markers[0].state


def encryption_word(state: EncryptionState | None) -> str:
    """For programs: "plain", or the state's own word."""
    return "plain" if state is None else state.value


@dataclass(frozen=True, slots=True)
class KeyReport:
    """``names`` is None for a keyring, which is not opened; ``left``: where an interrupted move may have left copies;
    ``databases``: how far they are encrypted at rest, None for not at all."""

    kind: KeyStoreKind
    where: str
    passphrase: PassphraseState
    passphrase_file: str
    names: tuple[str, ...] | None
    left: str
    databases: EncryptionState | None = None

    @property
    def key_beside(self) -> bool:
        """Whether a copy of the whole home holds the keys in the clear."""
        return self.kind is KeyStoreKind.FILE and self.passphrase is PassphraseState.NONE

    @property
    def passphrase_words(self) -> str:
        source = f", read from {self.passphrase_file}" if self.passphrase_file else ""
        return _WORDS[self.passphrase] + (source if self.passphrase is PassphraseState.SET else "")


def key_report(settings: Settings) -> KeyReport:
    """The report on this home's keys.

    Raises:
        NotSetUp: this home has no keys yet.
        KeyStoreError: the files cannot be read.
    """
    config, home = settings.config, settings.home
    file = str(home.passphrase_file or "")
    match config.key_store:
        case KeyStoreKind.FILE:
            store = file_store(home)
            state = store.passphrase_state()
            return KeyReport(
                KeyStoreKind.FILE,
                f"files in {home.secrets}",
                _told(state),
                file,
                tuple(store.names()),
                config.key_store_left,
                encryption_state(home),
            )
        case KeyStoreKind.KEYRING:
            backend = f" ({config.keyring_backend})" if config.keyring_backend else ""
            where = f"the system's keyring{backend}"
            return KeyReport(
                KeyStoreKind.KEYRING,
                where,
                PassphraseState.KEYRING,
                file,
                None,
                config.key_store_left,
                encryption_state(home),
            )
        case _:
            raise NotSetUp(f"{home.root} has no keys yet")


def _told(state: SealState | None) -> PassphraseState:
    if state is None:
        return PassphraseState.NONE
    return PassphraseState.SET if state is SealState.SEALED else PassphraseState.UNFINISHED
