"""Where a device keeps its secrets: the system's keyring where one truly works, else files that only their owner can read.

Rules: a secret that was stored is on disk, whole, or the call raised. Nothing is believed of a keyring: it is written to,
read back and compared first, with a time limit, because some wait for a dialog that nobody sees and some "store" nothing.
Nothing here reads the environment; who composes the program says which place to use.
"""

import base64
import contextlib
import fcntl
import hmac
import os
import re
import stat
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from crystal_crypto.errors import KeyStoreError
from crystal_crypto.identity import Random
from crystal_crypto.limits import SECRET_BYTES_MAX, SECRET_NAME_CHARS_MAX

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

KEYRING_SECONDS_MAX: Final = 5.0
"""How long a keyring may take for one call before it counts as not working."""

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{SECRET_NAME_CHARS_MAX - 1}}}")
_TEMPORARY: Final = ".tmp"
# A link is not followed, and a pipe in place of a file does not make the reader wait.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PREFIX: Final = "crystal:"  # an empty or foreign value in the keyring is thereby told from ours

_T = TypeVar("_T")


class KeyStore(Protocol):
    """Named secrets. Names are 1 to 64 of a-z, 0-9, dot, dash, underscore, not beginning with a mark; secrets at most 16 KiB.

    All calls raise KeyStoreError when the place cannot do what was asked, ValueError for a name or secret out of bounds.
    """

    def load(self, name: str) -> bytes | None:
        """The secret, or None if there is none of that name. Never part of one."""
        ...

    def store(self, name: str, secret: bytes) -> None:
        """Keep it, in place of an earlier one. Returns when it is durable; after a crash the old or the new one is there."""
        ...

    def delete(self, name: str) -> None:
        """Forget it. Deleting what is not there is no error."""
        ...


class Preference(Enum):
    """Which place is wanted."""

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
) -> Choice:
    """The keyring if it is wanted and passes its test, else files in `directory`.

    `service` names this home in the keyring; `backend` is the system's own unless given. Raises KeyStoreError if the keyring
    was asked for and does not work: a secret is never quietly put where the person did not want it.
    """
    if preference is Preference.FILE:
        return Choice(FileKeyStore(directory), Preference.FILE, "files were asked for")
    try:
        keyring = KeyringKeyStore(service, backend, seconds_max=seconds_max)
        keyring.probe(random)
    except KeyStoreError as error:
        if preference is Preference.KEYRING:
            raise
        return Choice(FileKeyStore(directory), Preference.FILE, f"no usable keyring: {error}")
    return Choice(keyring, Preference.KEYRING, f"{keyring.description} kept and returned a test secret")


class _TimedOut(KeyStoreError):
    """The keyring did not answer in time."""


class FileKeyStore:
    """One file of mode 0600 for each secret, in a directory of mode 0700 that it makes when it first stores something."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, name: str) -> bytes | None:
        _check_name(name)
        path = self._directory / name
        with _reported(f"{path} cannot be read"):
            if not self._directory.exists():
                return None
            _refuse_others(self._directory, self._directory.stat(), "700")
            try:
                handle = os.open(path, _READ)
            except FileNotFoundError:
                return None
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    raise KeyStoreError(f"{path} is not a plain file")
                _refuse_others(path, found, "600")
                secret = file.read(SECRET_BYTES_MAX + 1)
        if not 1 <= len(secret) <= SECRET_BYTES_MAX:
            raise KeyStoreError(f"{path} holds {found.st_size} bytes, which is no secret of ours")
        return secret

    def store(self, name: str, secret: bytes) -> None:
        _check_name(name)
        _check_secret(secret)
        path = self._directory / name
        with _reported(f"{path} cannot be written"):
            if not self._directory.exists():
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _fsync_directory(self._directory.parent)
            with self._locked() as directory:
                temporary = self._directory / f".{name}{_TEMPORARY}"
                temporary.unlink(missing_ok=True)  # left by a crash; the lock says that nobody is writing it
                try:
                    _write_durably(temporary, secret)
                    temporary.replace(path)
                except BaseException:
                    with contextlib.suppress(OSError):
                        temporary.unlink(missing_ok=True)
                    raise
                os.fsync(directory)

    def delete(self, name: str) -> None:
        _check_name(name)
        path = self._directory / name
        with _reported(f"{path} cannot be deleted"):
            if not self._directory.exists():
                return
            with self._locked() as directory:
                path.unlink(missing_ok=True)
                (self._directory / f".{name}{_TEMPORARY}").unlink(missing_ok=True)
                os.fsync(directory)

    @contextlib.contextmanager
    def _locked(self) -> Generator[int]:
        """The directory's descriptor, locked against other writers."""
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _refuse_others(self._directory, os.fstat(handle), "700")
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


class KeyringKeyStore:
    """The system's keyring. Every call has a time limit; run `probe` before you trust it with anything."""

    def __init__(
        self,
        service: str,
        backend: "KeyringBackend | None" = None,
        *,
        seconds_max: float = KEYRING_SECONDS_MAX,
    ) -> None:
        """Raises KeyStoreError when the system has no keyring at all, or its backend takes too long to load."""
        self._service = service
        self._seconds_max = seconds_max
        self._backend = backend if backend is not None else self._limited(_system_keyring)

    @property
    def description(self) -> str:
        """The backend's name, for the person."""
        return f"the keyring {type(self._backend).__module__}.{type(self._backend).__name__}"

    def probe(self, random: Random = os.urandom) -> None:
        """Write, read back, compare, delete. Raises KeyStoreError with the reason why it must not be trusted."""
        if self._limited(self._priority) < 1:
            raise KeyStoreError(f"{self.description} is not one that its library recommends")
        name = f"probe-{random(8).hex()}"
        secret = random(32)
        self.store(name, secret)
        try:
            found = self.load(name)
        except _TimedOut:
            raise  # to wait once more, for deleting, would be in vain
        except KeyStoreError:
            found = None
        self.delete(name)
        if found is None or not hmac.compare_digest(found, secret):
            raise KeyStoreError(f"{self.description} does not return what was stored")
        if self.load(name) is not None:
            raise KeyStoreError(f"{self.description} does not delete")

    def load(self, name: str) -> bytes | None:
        _check_name(name)
        text = self._limited(lambda: self._backend.get_password(self._service, name))
        if text is None:
            return None
        try:
            if not text.startswith(_PREFIX):
                raise ValueError("not ours")
            secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
            _check_secret(secret)
        except ValueError:
            raise KeyStoreError(
                f"{self.description} holds something under {name!r} that is no secret of ours"
            ) from None
        return secret

    def store(self, name: str, secret: bytes) -> None:
        _check_name(name)
        _check_secret(secret)
        text = _PREFIX + base64.b64encode(secret).decode("ascii")

        def put() -> None:
            self._backend.set_password(self._service, name, text)

        self._limited(put)

    def delete(self, name: str) -> None:
        _check_name(name)
        if self._limited(lambda: self._backend.get_password(self._service, name)) is not None:
            self._limited(lambda: self._backend.delete_password(self._service, name))

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
            # The error's text is the backend's own and may quote what it was given: only its type is told.
            raise KeyStoreError(f"the keyring failed with {type(failures[0]).__name__}") from None
        raise _TimedOut(f"the keyring did not answer within {self._seconds_max:g} s")


def _system_keyring() -> "KeyringBackend":
    import keyring

    return keyring.get_keyring()


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"a secret's name must be 1 to {SECRET_NAME_CHARS_MAX} of a-z, 0-9, '.', '-', '_'")


def _check_secret(secret: bytes) -> None:
    if not 1 <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(f"a secret must be 1 to {SECRET_BYTES_MAX} bytes")


def _refuse_others(path: Path, found: os.stat_result, mode: str) -> None:
    if found.st_uid != os.geteuid():
        raise KeyStoreError(f"{path} belongs to another user")
    if found.st_mode & _OTHERS:
        raise KeyStoreError(f"{path} can be used by others than its owner", hint=f"chmod {mode} {path}")


def _write_durably(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _reported(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise KeyStoreError(f"{what}: {error.strerror or type(error).__name__}") from error
