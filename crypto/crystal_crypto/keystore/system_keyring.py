"""The system's keyring as a key store.

Rules: a keyring is not trusted. It is written to, read back and compared before it is chosen, and each stored secret is read
back. Every call has a time limit, because some backends wait for a dialog that nobody sees. What a backend raises may quote
the secret, so only its type is reported. A backend that is known by name is loaded alone: choosing among all backends takes
twice as long.
"""

import base64
import hmac
import os
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from crystal_crypto.errors import KeyStoreError
from crystal_crypto.identity import Random
from crystal_crypto.keystore.port import check_name, check_secret

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend
    from secretstorage import Collection, Item

LINUX_BACKEND: Final = "keyring.backends.SecretService.Keyring"
"""The Secret Service of a Linux desktop."""

KEYRING_SECONDS_MAX: Final = 5.0
"""Time limit of one keyring call; a slower keyring counts as not working."""

BACKENDS: Final = frozenset(
    {
        LINUX_BACKEND,
        "keyring.backends.kwallet.DBusKeyring",
        "keyring.backends.libsecret.Keyring",
        "keyring.backends.macOS.Keyring",
    }
)
"""Backends that may be loaded by name. A name from a file never makes this program import anything else."""

_APPLICATION: Final = "Python keyring library"
_PREFIX: Final = "crystal:"  # tells our values from empty or foreign ones

_FILES_HINT: Final = (
    "Log in at the desktop, so that its keyring runs; without one, keep keys in files (--key-store file)"
)
_LOCKED_HINT: Final = "Unlock the keyring at the desktop or in its own program, then run the command again"
_LOCKED: Final = frozenset({"KeyringLocked", "LockedException", "PromptDismissedException"})
_ABSENT: Final = frozenset(
    {"InitError", "NoKeyringError", "SecretServiceNotAvailableException", "RuntimeError"}
)

_T = TypeVar("_T")


class _TimedOut(KeyStoreError):
    """The keyring did not answer in time."""

    hint = "It may wait for a dialog: unlock the keyring at the desktop, then run the command again"


class KeyringKeyStore:
    """The system's keyring. Every call has a time limit; run `probe` before you trust it with anything."""

    def __init__(
        self,
        service: str,
        backend: "KeyringBackend | str | None" = None,
        *,
        seconds_max: float = KEYRING_SECONDS_MAX,
    ) -> None:
        """`backend` is one, the name of one (see `backend_name`), or the system's own.

        Raises KeyStoreError when the system has no keyring at all, or its backend takes too long to load.
        """
        self._service = service
        self._seconds_max = seconds_max
        if backend is None or isinstance(backend, str):
            name = backend or ""
            self._backend: KeyringBackend | SecretServiceKeyring = self._limited(
                lambda: _system_keyring(name)
            )
        else:
            self._backend = backend

    @property
    def backend_name(self) -> str:
        """The name under which this backend can be loaded alone, "" if it has none."""
        name = self._class_name
        return name if name in BACKENDS else ""

    @property
    def description(self) -> str:
        """The backend's name, for the person."""
        return f"the keyring {self._class_name}"

    @property
    def _class_name(self) -> str:
        if isinstance(self._backend, SecretServiceKeyring):
            return LINUX_BACKEND
        return f"{type(self._backend).__module__}.{type(self._backend).__name__}"

    def probe(self, random: Random = os.urandom) -> None:
        """Writes, reads back, compares, deletes. Raises KeyStoreError with the reason why the keyring must not be trusted."""
        if self._limited(self._priority) < 1:
            raise KeyStoreError(
                f"{self.description} is not one that its library recommends", hint=_FILES_HINT
            )
        name = f"probe-{random(8).hex()}"
        try:
            self.store(name, random(32))
        except _TimedOut:
            raise  # deleting would only wait once more
        except KeyStoreError:
            self._delete_quietly(name)
            raise
        self.delete(name)
        if self.load(name) is not None:
            raise KeyStoreError(f"{self.description} does not delete", hint=_FILES_HINT)

    def load(self, name: str) -> bytes | None:
        check_name(name)
        text = self._limited(lambda: self._backend.get_password(self._service, name))
        if text is None:
            return None
        try:
            if not text.startswith(_PREFIX):
                raise ValueError("not ours")
            secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
            check_secret(secret)
        except ValueError:
            raise KeyStoreError(
                f"{self.description} holds something under {name!r} that is no secret of ours",
                hint="Restore the keyring from a backup, or delete that entry in the keyring's program and join anew",
            ) from None
        return secret

    def store(self, name: str, secret: bytes) -> None:
        check_name(name)
        check_secret(secret)
        text = _PREFIX + base64.b64encode(secret).decode("ascii")

        def put() -> None:
            self._backend.set_password(self._service, name, text)

        self._limited(put)
        try:
            found = self.load(name)
        except _TimedOut:
            raise
        except KeyStoreError:
            found = None
        if found is None or not hmac.compare_digest(found, secret):
            raise KeyStoreError(f"{self.description} does not return what was stored", hint=_FILES_HINT)

    def delete(self, name: str) -> None:
        check_name(name)
        if self._limited(lambda: self._backend.get_password(self._service, name)) is not None:
            self._limited(lambda: self._backend.delete_password(self._service, name))

    def _delete_quietly(self, name: str) -> None:
        try:
            self.delete(name)
        except KeyStoreError:
            return  # the probe's own error is raised; its secret protects nothing

    def _priority(self) -> float:
        return float(self._backend.priority)

    def _limited(self, call: Callable[[], _T]) -> _T:
        """The call's result. A call that hangs is left to a daemon thread: a keyring offers no way to cancel it."""
        results: list[_T] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001 - backends raise whatever their system gives; told below
                failures.append(error)

        thread = threading.Thread(target=run, name="crystal-keyring", daemon=True)
        thread.start()
        thread.join(self._seconds_max)
        if results:
            return results[0]
        if failures:
            raise _told(failures[0]) from None
        raise _TimedOut(f"the keyring did not answer within {self._seconds_max:g} s")


def _told(failure: BaseException) -> KeyStoreError:
    """The error by its type alone: its text is the backend's own and may quote the secret."""
    kind = type(failure).__name__
    if kind in _LOCKED:
        return KeyStoreError(f"the keyring is locked ({kind})", hint=_LOCKED_HINT)
    if kind in _ABSENT or isinstance(failure, (ImportError, OSError)):
        return KeyStoreError(f"the system's keyring cannot be reached from here ({kind})", hint=_FILES_HINT)
    return KeyStoreError(f"the keyring failed with {kind}", hint=_FILES_HINT)


def _system_keyring(name: str) -> "KeyringBackend | SecretServiceKeyring":
    """The backend of that name, if it is a known one, else the best that the library finds."""
    if name == LINUX_BACKEND:
        return SecretServiceKeyring()
    if name in BACKENDS:
        module, _, kind = name.rpartition(".")
        backend: KeyringBackend = getattr(import_module(module), kind)()
        return backend
    import keyring  # lazy: looks for all backends

    return keyring.get_keyring()


class SecretServiceKeyring:
    """The Secret Service of a Linux desktop, without what `keyring` loads to find it, which takes 45 ms of each command.

    It keeps the same items in the default collection as `keyring.backends.SecretService.Keyring`: each finds what the other
    stored. Each call opens a connection of its own; one that hangs is left to its thread. Raises what secretstorage raises.
    """

    priority: Final = 5.0

    def get_password(self, service: str, username: str) -> str | None:
        with _collection() as collection:
            item = _item(collection, service, username)
            if item is None:
                return None
            if item.is_locked():
                item.unlock()
            return item.get_secret().decode("utf-8")

    def set_password(self, service: str, username: str, password: str) -> None:
        with _collection() as collection:
            attributes = _attributes(service, username) | {"application": _APPLICATION}
            label = f"Password for '{username}' on '{service}'"
            collection.create_item(label, attributes, password.encode("utf-8"), replace=True)

    def delete_password(self, service: str, username: str) -> None:
        with _collection() as collection:
            item = _item(collection, service, username)
            if item is not None:
                item.delete()


@contextmanager
def _collection() -> "Generator[Collection]":
    import secretstorage  # lazy: exists on Linux only

    with closing(secretstorage.dbus_init()) as connection:
        collection = secretstorage.get_default_collection(connection)
        if collection.is_locked():
            collection.unlock()
            if collection.is_locked():
                raise secretstorage.LockedException("the collection is locked")
        yield collection


def _item(collection: "Collection", service: str, username: str) -> "Item | None":
    return next(iter(collection.search_items(_attributes(service, username))), None)


def _attributes(service: str, username: str) -> dict[str, str]:
    return {"username": username, "service": service}
