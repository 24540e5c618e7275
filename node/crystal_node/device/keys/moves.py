"""Moving this device's keys between keyring and files, and closing the files with a passphrase.

Everything here can be killed at any point and run again. A move copies, compares, switches, and deletes last. ``config.json``
says which key store is in force:

    key_store A                            everything is in A
        |  key_store_left = B              B may hold copies from now on
        v
    A, left B   --clear B, copy to B, read back from B--+     killed here: A is in force, whole
        |  key_store = B, key_store_left = A  <---------+
        v
    B, left A   --delete in A--+                              killed here: B is in force, whole
        |  key_store_left = "" <+
        v
    key_store B                            everything is in B

The same command continues from any of these states; the command for the other direction reverses it. Meanwhile nobody else
syncs or sets up this home, so that no secret is stored where it would be deleted.
"""

import hmac
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from msgspec import structs

from crystal_crypto.errors import KeyStoreError, WrongPassphrase
from crystal_crypto.keystore import FileKeyStore, KeyringKeyStore, KeyStore, SealState
from crystal_crypto.memory import wiped
from crystal_node.base.errors import NotSetUp, UsageError
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import KeyStoreKind, Settings, read_config
from crystal_node.device.keys.device_keys import NAMES, file_store, keyring_store
from crystal_node.device.keys.passphrase import ask_new_passphrase, has_terminal

_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the keys are now, and the names of the keys that this call copied there."""

    settings: Settings
    kind: KeyStoreKind
    names: tuple[str, ...]


class PassphraseChange(StrEnum):
    """What a command did with the passphrase."""

    SET = "set"
    CHANGED = "changed"
    FINISHED = "finished"
    REMOVED = "removed"
    NONE = "none"


def move_keys(settings: Settings, target: KeyStoreKind) -> Moved:
    """Moves all keys to ``target``, or finishes an interrupted move.

    Raises:
        NotSetUp: there is nothing to move.
        KeyStoreError: the target does not work, or the source cannot be read. Nothing has changed.
    """
    if target is KeyStoreKind.AUTO:
        raise UsageError("keys are moved to a place that is named", hint="Use --to keyring or --to file.")
    with _alone(settings) as current:
        source = _in_force(current)
        copied, names = (current, ()) if source is target else _copy(current, source, target)
        return Moved(_delete_leftovers(copied), target, names)


def set_passphrase(settings: Settings, new_file: Path | None) -> PassphraseChange:
    """Sets or changes the passphrase of the key files, or finishes an interrupted change.

    A first passphrase may be in the file that ``CRYSTAL_PASSPHRASE_FILE`` names.

    Raises:
        UsageError: the keys are in the keyring, or there is no new passphrase.
        WrongPassphrase, PassphraseNeeded: the current passphrase was not given.
    """
    with _alone(settings) as current, _files_in_force(current) as store:
        state = store.passphrase_state()
        if state is None:
            with wiped(ask_new_passphrase(new_file or current.home.passphrase_file)) as new:
                store.set_passphrase(new)
            return PassphraseChange.SET
        if state is SealState.SEALING and new_file is None:
            store.finish()
            return PassphraseChange.FINISHED
        try:
            store.check_passphrase()
        except WrongPassphrase:
            # A change that was killed after its last step is run again with the old passphrase, which no longer works.
            if new_file is None or not _finished_by(current, new_file):
                raise
            return PassphraseChange.FINISHED
        if new_file is None and not has_terminal():
            raise UsageError(
                "these keys have a passphrase already, and no new one was given",
                hint="Put the new one into a file that only you can read, and add --new-file FILE.",
            )
        with wiped(ask_new_passphrase(new_file)) as new:
            store.set_passphrase(new)
        return PassphraseChange.CHANGED


def remove_passphrase(settings: Settings) -> PassphraseChange:
    """Removes the passphrase of the key files.

    Raises:
        UsageError: the keys are in the keyring.
        WrongPassphrase, PassphraseNeeded: the passphrase was not given.
    """
    with _alone(settings) as current, _files_in_force(current) as store:
        if store.passphrase_state() is None:
            return PassphraseChange.NONE
        store.remove_passphrase()
        return PassphraseChange.REMOVED


@contextmanager
def _alone(settings: Settings) -> Generator[Settings]:
    """The current settings, while nobody else changes this home's keys."""
    home = settings.home
    if not home.state.exists():
        raise NotSetUp(f"{home.root} has no keys yet")
    home.check_private()
    with (
        FileLock(home.setup_lock, purpose="crystal keys", wait_seconds=_WAIT_SECONDS),
        FileLock(home.sync_lock, purpose="crystal keys", wait_seconds=_WAIT_SECONDS),
    ):
        yield replace(settings, config=read_config(home.config_file))


def _in_force(settings: Settings) -> KeyStoreKind:
    chosen = settings.config.key_store
    if chosen not in (KeyStoreKind.FILE, KeyStoreKind.KEYRING):
        raise NotSetUp(f"{settings.home.root} has no keys yet")
    return KeyStoreKind(chosen)


@contextmanager
def _files_in_force(settings: Settings) -> Generator[FileKeyStore]:
    if _in_force(settings) is not KeyStoreKind.FILE:
        raise UsageError(
            "this device's keys are in the system's keyring, which has its own password",
            hint="Only keys in files take a passphrase: `crystal keys move --to file` first.",
        )
    store = file_store(settings.home)
    try:
        yield store
    finally:
        store.close()


def _finished_by(settings: Settings, new_file: Path) -> bool:
    store = file_store(replace(settings.home, passphrase_file=new_file))
    try:
        store.finish()
        store.check_passphrase()
    except WrongPassphrase:
        return False
    finally:
        store.close()
    return True


def _copy(settings: Settings, source: KeyStoreKind, target: KeyStoreKind) -> tuple[Settings, tuple[str, ...]]:
    """Copies all keys, compares them, and switches to the target."""
    backend = settings.config.keyring_backend
    keyring = keyring_store(settings.home, backend)
    files = file_store(settings.home)
    if target is KeyStoreKind.KEYRING:
        keyring.probe()
        backend = keyring.backend_name
    origin, goal = (files, keyring) if target is KeyStoreKind.KEYRING else (keyring, files)
    here = dict.fromkeys((*NAMES, *files.names())) if source is KeyStoreKind.FILE else NAMES
    if all(origin.load(name) is None for name in here):
        return _found_there(settings, goal, source, target, backend)
    settings = settings.save(structs.replace(settings.config, key_store_left=target.value))
    _clear(goal)
    names: list[str] = []
    for name in here:
        secret = origin.load(name)
        if secret is None:
            continue
        goal.store(name, secret)
        if not hmac.compare_digest(goal.load(name) or b"", secret):
            raise KeyStoreError(
                f"what was copied to the {target} is not what is in the {source}; nothing was changed"
            )
        names.append(name)
    files.close()
    changed = structs.replace(
        settings.config, key_store=target.value, key_store_left=source.value, keyring_backend=backend
    )
    return settings.save(changed), tuple(names)


def _found_there(
    settings: Settings, goal: KeyStore, source: KeyStoreKind, target: KeyStoreKind, backend: str
) -> tuple[Settings, tuple[str, ...]]:
    """Switches if only the target has the keys: a ``config.json`` from a backup names the former key store.

    Raises NotSetUp: there are no keys anywhere. Nothing was deleted.
    """
    if all(goal.load(name) is None for name in NAMES):
        raise NotSetUp(f"there are no keys in the {source}")
    changed = structs.replace(
        settings.config, key_store=target.value, key_store_left=source.value, keyring_backend=backend
    )
    return settings.save(changed), ()


def _delete_leftovers(settings: Settings) -> Settings:
    """Deletes what a move has left in the place that is not in force."""
    left = settings.config.key_store_left
    if not left:
        return settings
    if left != settings.config.key_store:
        if left == KeyStoreKind.KEYRING:
            _clear(keyring_store(settings.home, settings.config.keyring_backend))
        else:
            _clear(file_store(settings.home))
    return settings.save(structs.replace(settings.config, key_store_left=""))


def _clear(store: FileKeyStore | KeyringKeyStore) -> None:
    if isinstance(store, FileKeyStore):
        store.clear()
    else:
        for name in NAMES:
            store.delete(name)
