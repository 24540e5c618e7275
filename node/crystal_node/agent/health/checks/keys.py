"""The key store and its passphrase. A keyring is asked to keep and return a test secret."""

from crystal_crypto.errors import KeyStoreError
from crystal_node.agent.health.findings import Finding, Severity
from crystal_node.base.settings import KeyStoreKind, Settings
from crystal_node.device.keys.device_keys import keyring_store
from crystal_node.device.keys.report import PassphraseState, key_report


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


def _why_files(settings: Settings) -> str:
    try:
        keyring_store(settings.home).probe()
    except KeyStoreError as error:
        return f"there is no keyring to use ({error})"
    return "as was chosen; the system's keyring would work, too (`crystal keys move --to keyring`)"
