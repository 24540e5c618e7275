"""Whether an agent without a terminal could start on this home at all. Asked before a service is made of it."""

from crystal_crypto.errors import PassphraseNeeded
from crystal_node.base.errors import NotSetUp
from crystal_node.base.settings import Settings
from crystal_node.device.keys.report import PassphraseState, key_report

_HOW = (
    "Write it to a file that only you can read (chmod 600), and run the command again with CRYSTAL_PASSPHRASE_FILE naming that "
    "file: the service then knows the file's name, never the passphrase."
)


def check_startable(settings: Settings) -> None:
    """Raises:
    NotSetUp: there is no vault here yet.
    PassphraseNeeded: the keys need a passphrase that nobody can type there, and no file is named.
    """
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    found = key_report(settings)
    if found.passphrase is PassphraseState.SET and not found.passphrase_file:
        raise PassphraseNeeded(
            "this device's keys are closed by a passphrase, and nobody can type it for a service", hint=_HOW
        )
