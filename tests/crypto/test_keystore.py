"""Key stores: what was stored is there, whole and private, or the call said why not."""

import os
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.compat import properties

from crystal_crypto.errors import KeyStoreError
from crystal_crypto.keystore import FileKeyStore, KeyringKeyStore, KeyStore, Preference, choose_keystore
from crystal_crypto.limits import SECRET_BYTES_MAX
from tests.vectors.craft import fixed

SECRET = fixed("stored secret", 93)


class Working(KeyringBackend):
    """Keeps what it is given, in memory, as a system's keyring does."""

    @properties.classproperty
    def priority(cls) -> float:  # noqa: N805 - a property of the class
        return 5

    @cached_property
    def kept(self) -> dict[tuple[str, str], str]:
        return {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class Forgetful(Working):
    def set_password(self, service: str, username: str, password: str) -> None:
        del service, username, password


class Truncating(Working):
    def set_password(self, service: str, username: str, password: str) -> None:
        super().set_password(service, username, password[:20])


class Sticky(Working):
    def delete_password(self, service: str, username: str) -> None:
        del service, username


class Talkative(Working):
    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"cannot keep {password}")


class Hanging(Working):
    """Waits for a dialog that nobody sees."""

    @cached_property
    def released(self) -> threading.Event:
        return threading.Event()

    @cached_property
    def asked(self) -> list[str]:
        return []

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append(username)
        self.released.wait(30)
        return super().get_password(service, username)


class JustRecommended(Working):
    """As keyring rates the least that it recommends."""

    @properties.classproperty
    def priority(cls) -> float:  # noqa: N805 - a property of the class
        return 1


class Plaintext(Working):
    """As keyring rates a backend that it does not recommend."""

    @properties.classproperty
    def priority(cls) -> float:  # noqa: N805 - a property of the class
        return 0.5


Backend = TypeVar("Backend", bound=KeyringBackend)


def _new(kind: type[Backend]) -> Backend:
    return cast(Callable[[], Backend], kind)()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=["file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> KeyStore:
    if request.param == "file":
        return FileKeyStore(tmp_path / "state" / "secrets")
    return KeyringKeyStore("crystal", _new(Working))


def test_a_secret_is_kept_replaced_and_deleted(store: KeyStore) -> None:
    assert store.load("device") is None
    store.delete("device")
    for secret in (SECRET, bytes(range(256)), b"\x00", bytes(SECRET_BYTES_MAX)):
        store.store("device", secret)
        assert store.load("device") == secret
    store.store("other", b"other")
    store.delete("device")
    store.delete("device")
    assert store.load("device") is None
    assert store.load("other") == b"other"


def test_names_and_sizes_out_of_bounds_are_refused(store: KeyStore) -> None:
    for name in ("", ".", "..", "../up", "a/b", "/etc/passwd", ".hidden", "A", "n\x00", "ü", "a" * 65, "a\n"):
        for call in (store.load, store.delete):
            with pytest.raises(ValueError, match="name"):
                call(name)
        with pytest.raises(ValueError, match="name"):
            store.store(name, SECRET)
    for secret in (b"", bytes(SECRET_BYTES_MAX + 1)):
        with pytest.raises(ValueError, match="bytes"):
            store.store("device", secret)


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    previous = os.umask(0)
    try:
        FileKeyStore(folder).store("device", SECRET)
    finally:
        os.umask(previous)
    assert _mode(folder) == 0o700
    assert _mode(folder / "device") == 0o600
    assert [path.name for path in folder.iterdir()] == ["device"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o660])
def test_a_secret_that_others_can_use_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    store = FileKeyStore(tmp_path / "secrets")
    store.store("device", SECRET)
    path = tmp_path / "secrets" / "device"
    path.chmod(mode)
    with pytest.raises(KeyStoreError) as caught:
        store.load("device")
    assert caught.value.hint == f"Close it to others: chmod 600 {path}"
    path.chmod(0o600)
    assert store.load("device") == SECRET


def test_a_folder_that_others_can_enter_is_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    store = FileKeyStore(folder)
    store.store("device", SECRET)
    folder.chmod(0o750)
    calls: list[Callable[[], object]] = [
        lambda: store.load("device"),
        lambda: store.store("device", b"x"),
        lambda: store.delete("device"),
    ]
    for call in calls:
        with pytest.raises(KeyStoreError) as caught:
            call()
        assert caught.value.hint == f"Close it to others: chmod 700 {folder}"
    folder.chmod(0o700)
    assert store.load("device") == SECRET


def test_a_link_a_folder_or_a_foreign_file_in_place_of_a_secret_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    store = FileKeyStore(folder)
    store.store("device", SECRET)
    (folder / "link").symlink_to(folder / "device")
    (folder / "folder").mkdir(mode=0o700)
    (folder / "empty").touch(mode=0o600)
    (folder / "large").touch(mode=0o600)
    (folder / "large").write_bytes(bytes(SECRET_BYTES_MAX + 1))
    os.mkfifo(folder / "pipe", mode=0o600)
    for name in ("link", "folder", "pipe", "empty", "large"):
        with pytest.raises(KeyStoreError):
            store.load(name)


def test_a_secret_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileKeyStore(tmp_path / "secrets")
    store.store("device", SECRET)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeyStoreError, match="another user"):
        store.load("device")
    with pytest.raises(KeyStoreError, match="another user"):
        store.store("device", SECRET)


def test_a_full_disk_leaves_the_old_secret_and_no_scraps(tmp_path: Path) -> None:
    store = FileKeyStore(tmp_path / "secrets")
    store.store("device", SECRET)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        with pytest.raises(KeyStoreError, match="cannot be written") as caught:
            store.store("device", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 8
    assert store.load("device") == SECRET
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["device"]


def test_what_a_crash_left_behind_is_replaced_and_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    store = FileKeyStore(folder)
    store.store("device", SECRET)
    scrap = folder / ".device.tmp"
    calls: list[Callable[[], object]] = [
        lambda: store.store("device", b"new"),
        lambda: store.delete("device"),
    ]
    for call in calls:
        scrap.write_bytes(b"half of a sec")
        call()
        assert not scrap.exists()


def test_a_place_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FileKeyStore(tmp_path / "file" / "secrets")
    with pytest.raises(KeyStoreError):
        store.store("device", SECRET)


def test_readers_see_a_whole_secret_while_many_write(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    values = [bytes([n]) * (n * 700 + 1) for n in range(8)]
    FileKeyStore(folder).store("device", values[0])

    def write(n: int) -> None:
        FileKeyStore(folder).store("device", values[n % 8])

    def read(_: int) -> bool:
        return FileKeyStore(folder).load("device") in values

    with ThreadPoolExecutor(6) as pool:
        writes = [pool.submit(write, n) for n in range(60)]
        assert all(pool.map(read, range(200)))
        for done in writes:
            done.result()
    assert [path.name for path in folder.iterdir()] == ["device"]


@pytest.mark.parametrize("kind", [Working, JustRecommended])
def test_a_keyring_that_works_is_chosen(kind: type[Working], tmp_path: Path) -> None:
    backend = _new(kind)
    choice = choose_keystore(tmp_path, service="home", backend=backend)
    assert choice.place is Preference.KEYRING
    assert kind.__name__ in choice.reason
    assert backend.kept == {}
    choice.store.store("device", SECRET)
    assert choice.store.load("device") == SECRET
    assert list(backend.kept) == [("home", "device")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (fail.Keyring, "recommends"),
        (null.Keyring, "recommends"),
        (Plaintext, "recommends"),
        (Forgetful, "does not return"),
        (Truncating, "does not return"),
        (Sticky, "does not delete"),
        (Talkative, "RuntimeError"),
    ],
)
def test_a_keyring_that_does_not_work_is_named_and_not_used(
    kind: type[KeyringBackend], reason: str, tmp_path: Path
) -> None:
    backend = _new(kind)
    choice = choose_keystore(tmp_path / "secrets", service="home", backend=backend)
    assert choice.place is Preference.FILE
    assert reason in choice.reason
    choice.store.store("device", SECRET)
    assert (tmp_path / "secrets" / "device").read_bytes() == SECRET
    with pytest.raises(KeyStoreError, match=reason):
        choose_keystore(tmp_path / "secrets", service="home", backend=backend, preference=Preference.KEYRING)


def test_a_keyring_that_waits_for_nobody_is_given_up(tmp_path: Path) -> None:
    backend = _new(Hanging)
    start = time.monotonic()
    choice = choose_keystore(tmp_path, service="home", backend=backend, seconds_max=0.2)
    assert time.monotonic() - start < 5
    assert choice.place is Preference.FILE
    assert "did not answer within 0.2 s" in choice.reason
    assert len(backend.asked) == 1
    backend.released.set()


def test_files_are_used_when_they_are_asked_for(tmp_path: Path) -> None:
    choice = choose_keystore(tmp_path, service="home", backend=_new(Working), preference=Preference.FILE)
    assert choice.place is Preference.FILE
    assert choice.reason == "files were asked for"


def test_a_keyrings_error_never_quotes_the_secret() -> None:
    store = KeyringKeyStore("home", _new(Talkative))
    with pytest.raises(KeyStoreError) as caught:
        store.store("device", b"hunter2")
    error: BaseException | None = caught.value
    while error is not None:
        assert "aHVudGVyMg" not in str(error)
        error = error.__cause__


def test_a_foreign_value_in_the_keyring_is_no_secret() -> None:
    backend = _new(Working)
    store = KeyringKeyStore("home", backend)
    for foreign in ("", "hunter2", "aGk=", "crystal:", "crystal:not base64!", "crystal:aGk"):
        backend.kept["home", "device"] = foreign
        with pytest.raises(KeyStoreError, match="no secret of ours"):
            store.load("device")


def test_the_systems_own_keyring_is_asked_when_none_is_given(tmp_path: Path) -> None:
    """In a process of its own, in which the system's keyring is one that keeps nothing."""
    program = (
        "import sys; from pathlib import Path; from crystal_crypto.keystore import choose_keystore; "
        "choice = choose_keystore(Path(sys.argv[1]), service='home'); print(choice.place.value, choice.reason)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("file no usable keyring: the keyring keyring.backends.null.Keyring ")
