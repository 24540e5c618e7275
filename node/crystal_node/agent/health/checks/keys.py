"""The key store, its passphrase, and encryption at rest. A keyring is asked to keep and return a test secret."""

from crystal_core.encryption import EncryptionState
from crystal_crypto.errors import KeyStoreError
from crystal_node.agent.health.findings import Finding, Severity
from crystal_node.base.settings import KeyStoreKind, Settings
from crystal_node.device.keys.device_keys import keyring_store
from crystal_node.device.keys.report import DATABASE_WORDS, PassphraseState, key_report
from crystal_node.safekeeping.database_encryption import plain_copies


def key_store(settings: Settings) -> list[Finding]:
    report = key_report(settings)
    if report.left:
        fix = f"crystal keys move --to {report.kind}"
        what = f"{report.where}; a move was interrupted, and copies may be in the {report.left}"
        return [Finding("key store", Severity.WARNING, what, fix)]
    if report.kind is KeyStoreKind.KEYRING:
        keyring_store(settings.home, settings.config.keyring_backend).probe()
        return [Finding("key store", Severity.OK, f"{report.where}, which kept and returned a test secret")]
    return [Finding("key store", Severity.OK, f"{report.where}: {_why_files(settings)}")]


def passphrase(settings: Settings) -> list[Finding]:
    """Whether the passphrase is set. A wrong one shows when the device is opened."""
    report = key_report(settings)
    if report.passphrase is PassphraseState.UNFINISHED:
        return [Finding("passphrase", Severity.WARNING, report.passphrase_words, "crystal keys passphrase")]
    return [Finding("passphrase", Severity.OK, report.passphrase_words)]


def encryption(settings: Settings) -> list[Finding]:
    """Whether the databases are encrypted at rest, all of them, with a key that is not beside them."""
    report = key_report(settings)
    what = DATABASE_WORDS[report.databases]
    match report.databases:
        case None:
            return [Finding("at rest", Severity.OK, what)]
        case EncryptionState.ENCRYPTING:
            return [Finding("at rest", Severity.WARNING, what, "crystal keys encrypt")]
        case EncryptionState.REKEYING:
            return [Finding("at rest", Severity.WARNING, what, "crystal keys rekey")]
        case EncryptionState.DECRYPTING:
            return [Finding("at rest", Severity.WARNING, what, "crystal keys decrypt")]
        case EncryptionState.ENCRYPTED:
            pass
    plain = ", ".join(path.name for path in plain_copies(settings.home))
    if plain:
        return [Finding("at rest", Severity.WARNING, f"{what}, but not {plain}", "crystal keys encrypt")]
    if report.key_beside:
        what += ", but their key is in a plain file beside them: a copy of the home opens them"
        return [Finding("at rest", Severity.WARNING, what, "crystal keys passphrase")]
    return [Finding("at rest", Severity.OK, what)]


def _why_files(settings: Settings) -> str:
    try:
        keyring_store(settings.home).probe()
    except KeyStoreError as error:
        return f"there is no keyring to use ({error})"
    return "as was chosen; the system's keyring would work, too (`crystal keys move --to keyring`)"
