"""``crystal keys``: where this device stores its keys, their passphrase, moving them, and databases encrypted at rest."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.base.settings import KeyStoreKind, resolve
from crystal_node.base.wording import size
from crystal_node.device.keys.moves import PassphraseChange, move_keys, remove_passphrase, set_passphrase
from crystal_node.device.keys.report import (
    DATABASE_WORDS,
    KeyReport,
    encryption_state,
    encryption_word,
    key_report,
)
from crystal_node.safekeeping.database_encryption import (
    Rewritten,
    decrypt_databases,
    encrypt_databases,
    rekey_databases,
)
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say

group = typer.Typer(no_args_is_help=False)

NewFile = Annotated[
    Path | None,
    typer.Option(
        "--new-file",
        metavar="FILE",
        help="The new passphrase: the one line of a file that only you can read. Default: asked for.",
    ),
]
Remove = Annotated[bool, typer.Option("--remove", help="Take the passphrase away: plain files again.")]
Target = Annotated[
    str, typer.Option("--to", metavar="PLACE", help="keyring: the system's keyring. file: files in the home.")
]

_RESTART = (
    "Commands without a terminal, such as the background service, need CRYSTAL_PASSPHRASE_FILE from now on: "
    "restart them."
)


@group.callback(invoke_without_command=True)
def run(context: typer.Context, as_json: Json = False) -> None:
    """Show where this device's keys are stored, move them, encrypt databases.

    Lists the keys, whether a passphrase protects them, and whether the databases are encrypted. Opens none of them.

    Example:

        crystal keys --json
    """
    if context.invoked_subcommand is not None:
        return

    found = key_report(resolve())
    if as_json:
        emit(_document(found))
    else:
        _print(found)


@group.command("passphrase")
def passphrase(new_file: NewFile = None, remove: Remove = False, as_json: Json = False) -> None:
    """Set, change or remove the passphrase of this home's keys.

    Every command that opens the keys then needs it: from the file that CRYSTAL_PASSPHRASE_FILE names, or typed. A copy of
    the home or of the disk then gives no key, and so nothing new. What was recorded is closed by it once the databases are
    encrypted (`crystal keys encrypt`). Interrupted, run it again. Nobody can reset it: without it, this machine has to join
    the vault again.

    Example:

        crystal keys passphrase
    """
    if remove and new_file is not None:
        raise UsageError(
            "there is no new passphrase where the old one is removed",
            hint="Leave out one of the two options.",
        )
    settings = resolve()
    change = remove_passphrase(settings) if remove else set_passphrase(settings, new_file)
    if as_json:
        emit({"passphrase": change is not PassphraseChange.NONE and not remove, "change": change.value})
        return
    match change:
        case PassphraseChange.SET:
            say("The passphrase is set: without it nobody can use the keys in this home.")
            if encryption_state(settings.home) is None:
                say(
                    "The memory in it stays as it was: anybody who has this disk can read it (`crystal keys encrypt`)."
                )
            note(_RESTART)
        case PassphraseChange.CHANGED:
            say("The passphrase is changed, and the keys are wrapped again.")
            note(_RESTART)
        case PassphraseChange.FINISHED:
            say("A change that was interrupted is finished; the passphrase just given is in force.")
        case PassphraseChange.REMOVED:
            say("The passphrase is removed: anybody who can read this home's files can use its keys.")
        case PassphraseChange.NONE:
            say("There was no passphrase.")


@group.command("encrypt")
def encrypt(as_json: Json = False) -> None:
    """Encrypt this machine's databases at rest.

    Afterwards nobody reads them without the key, which is stored with this device's other keys. If those are plain files, close
    them as well (`crystal keys passphrase`, or `crystal keys move --to keyring`): until then a copy of the whole home opens the
    databases. Later backups of this home are encrypted with the same key. Not covered: files in agents/, sessions/, staging/
    and drop/, logs, earlier backups, and the agents' own transcripts. Stop the background service first. If it is interrupted,
    run it again: nothing is lost at any point.

    Example:

        crystal keys encrypt
    """
    done = encrypt_databases(resolve(), None if as_json else note)
    if as_json:
        emit(_rewritten(done))
        return
    if done.files:
        say(f"Encrypted: {', '.join(done.files)} ({size(done.bytes)}).")
    else:
        say("This machine's databases are encrypted.")
    for each in done.left:
        say(
            f"! {each} is damaged and was not encrypted, so anybody can read it: delete it if you do not need it."
        )
    if done.key_beside:
        say("! Their key is in a plain file beside them: a copy of the whole home opens them.")
        say("  `crystal keys passphrase` or `crystal keys move --to keyring` protects the key.")


@group.command("rekey")
def rekey(as_json: Json = False) -> None:
    """Replace the key of this machine's encrypted databases.

    Use it if somebody may have seen the key: in a copy of the home from before it was protected, or in a lost backup with keys.
    Every database is written again under a new key. The former key stays in the key store, because backups that were made
    with it need it; it opens nothing that is written later. Stop the background service first. If it is interrupted, run it
    again: both keys are there until it is done.

    Example:

        crystal keys rekey
    """
    done = rekey_databases(resolve(), None if as_json else note)
    if as_json:
        emit(_rewritten(done))
        return
    if done.files:
        say(f"Under a new key: {', '.join(done.files)} ({size(done.bytes)}).")
    else:
        say("The interrupted replacement is finished: every database has the new key.")
    for each in done.left:
        say(f"! {each} is damaged and was left under the former key: delete it if you do not need it.")
    if done.key_beside:
        say("! The new key is in a plain file beside them: a copy of the whole home opens them.")
        say("  `crystal keys passphrase` or `crystal keys move --to keyring` protects the key.")


@group.command("decrypt")
def decrypt(as_json: Json = False) -> None:
    """Decrypt this machine's databases.

    Stop the background service first. If it is interrupted, run it again. The key stays in the key store, because backups
    that were made meanwhile need it.

    Example:

        crystal keys decrypt
    """
    done = decrypt_databases(resolve(), None if as_json else note)
    if as_json:
        emit(_rewritten(done))
    elif done.files:
        say(
            f"Decrypted: {', '.join(done.files)} ({size(done.bytes)}). Anybody who has this disk can read them."
        )
    else:
        say("This machine's databases are not encrypted.")


@group.command("move")
def move(to: Target, as_json: Json = False) -> None:
    """Move this device's keys into the system's keyring, or out.

    They are copied, read back and compared before they are deleted where they were. Interrupted, run it again.

    Example:

        crystal keys move --to keyring
    """
    if to not in (KeyStoreKind.KEYRING, KeyStoreKind.FILE):
        raise UsageError(f"there is no place {to!r} to move keys to", hint="Use --to keyring or --to file.")
    moved = move_keys(resolve(), KeyStoreKind(to))
    if as_json:
        emit({"place": moved.kind.value, "moved": list(moved.names)})
        return
    where = "the system's keyring" if moved.kind is KeyStoreKind.KEYRING else str(moved.settings.home.secrets)
    if moved.names:
        say(f"Moved to {where}: {', '.join(moved.names)}. Nothing is left where they were.")
    else:
        say(f"This device's keys are in {where}, and nowhere else.")


def _rewritten(done: Rewritten) -> dict[str, object]:
    return {
        "databases": encryption_word(done.state),
        "rewritten": list(done.files),
        "bytes": done.bytes,
        "left": list(done.left),
        "key_beside": done.key_beside,
    }


def _document(found: KeyReport) -> dict[str, object]:
    return {
        "place": found.kind.value,
        "where": found.where,
        "passphrase": found.passphrase.value,
        "databases": encryption_word(found.databases),
        "passphrase_file": found.passphrase_file or None,
        "names": None if found.names is None else list(found.names),
        "copies_left_in": found.left or None,
    }


def _print(found: KeyReport) -> None:
    say(f"place       {found.where}")
    if found.names is not None:
        say(f"keys        {', '.join(found.names) or 'none'}")
    say(f"passphrase  {found.passphrase_words}")
    say(f"at rest     {DATABASE_WORDS[found.databases]}")
    if found.left:
        say(
            f"! a move was interrupted: {found.left} may hold copies. Run `crystal keys move --to {found.kind}`"
        )
