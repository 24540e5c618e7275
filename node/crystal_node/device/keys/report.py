"""How this device's keys are kept, without opening any: for ``crystal keys`` and ``crystal doctor``."""

from dataclasses import dataclass
from enum import StrEnum

from crystal_crypto.keystore import SealState
from crystal_node.base.errors import NotSetUp
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


@dataclass(frozen=True, slots=True)
class KeyReport:
    """``names`` is None for a keyring, which is not opened; ``left``: where an interrupted move may have left copies."""

    kind: KeyStoreKind
    where: str
    passphrase: PassphraseState
    passphrase_file: str
    names: tuple[str, ...] | None
    left: str

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
            )
        case KeyStoreKind.KEYRING:
            backend = f" ({config.keyring_backend})" if config.keyring_backend else ""
            where = f"the system's keyring{backend}"
            return KeyReport(
                KeyStoreKind.KEYRING, where, PassphraseState.KEYRING, file, None, config.key_store_left
            )
        case _:
            raise NotSetUp(f"{home.root} has no keys yet")


def _told(state: SealState | None) -> PassphraseState:
    if state is None:
        return PassphraseState.NONE
    return PassphraseState.SET if state is SealState.SEALED else PassphraseState.UNFINISHED
