"""A passphrase: nothing opens the store without it, nothing is lost by changing it, and nobody hears of it."""

import base64
import os
import re
import struct
import subprocess
import sys
import traceback
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_crypto.errors import (
    CryptoError,
    KeyStoreError,
    Malformed,
    PassphraseNeeded,
    UnknownVersion,
    WrongKey,
    WrongPassphrase,
)
from crystal_crypto.keystore.files import FileKeyStore
from crystal_crypto.keystore.folder import HEADER_FILE
from crystal_crypto.keystore.passphrase import (
    COST,
    MasterKeys,
    PassphraseHeader,
    SealState,
    is_wrapped,
    new_header,
)
from crystal_crypto.limits import PASSPHRASE_HEADER_BYTES, SECRET_BYTES_MAX
from crystal_crypto.memory import wipe
from tests.crypto.killed_passphrases import CHEAP
from tests.vectors.craft import fixed

SECRET = fixed("stored secret", 93)
PASSPHRASE = b"correct horse battery staple"


def store(folder: Path, passphrase: bytes = PASSPHRASE) -> FileKeyStore:
    return FileKeyStore(folder, lambda: bytearray(passphrase))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with two secrets, closed by PASSPHRASE."""
    folder = tmp_path / "secrets"
    FileKeyStore(folder).store("device", SECRET)
    FileKeyStore(folder).store("root", bytes(32))
    store(folder).set_passphrase(bytearray(PASSPHRASE), CHEAP)
    return folder


def test_a_copied_home_shows_nothing_without_the_passphrase(folder: Path) -> None:
    for path in folder.iterdir():
        data = path.read_bytes()
        assert SECRET not in data
        assert SECRET[:16] not in data
        assert path.name == HEADER_FILE or is_wrapped(data)
    with pytest.raises(PassphraseNeeded):
        FileKeyStore(folder).load("device")
    with pytest.raises(WrongPassphrase) as caught:
        store(folder, b"correct horse battery stapl").load("device")
    assert caught.value.exit_code == 7
    assert store(folder).load("device") == SECRET


def test_with_the_passphrase_secrets_are_kept_replaced_and_deleted(folder: Path) -> None:
    opened = store(folder)
    for secret in (b"\x00", bytes(SECRET_BYTES_MAX), b"CRYW\x01" + bytes(80)):
        opened.store("other", secret)
        assert opened.load("other") == secret
        assert store(folder).load("other") == secret
    opened.delete("other")
    assert opened.load("other") is None
    assert opened.names() == ["device", "root"]


def test_what_is_not_there_needs_no_passphrase(folder: Path) -> None:
    assert FileKeyStore(folder).load("nothing") is None
    FileKeyStore(folder).delete("nothing")
    assert FileKeyStore(folder).passphrase_state() is SealState.SEALED


def test_the_passphrase_is_asked_for_once(folder: Path) -> None:
    asked: list[bytearray] = []

    def ask() -> bytearray:
        asked.append(bytearray(PASSPHRASE))
        return asked[-1]

    opened = FileKeyStore(folder, ask)
    opened.load("device")
    opened.store("root", b"another")
    opened.load("root")
    assert asked == [bytearray(len(PASSPHRASE))], "asked for once, and wiped"


def test_a_process_that_opened_the_store_before_writes_no_plain_secret_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    early = FileKeyStore(folder)
    early.store("device", SECRET)
    store(folder).set_passphrase(bytearray(PASSPHRASE), CHEAP)
    with pytest.raises(PassphraseNeeded):
        early.store("device", b"replaced")
    assert store(folder).load("device") == SECRET


def test_a_changed_passphrase_takes_another_master_key(folder: Path, tmp_path: Path) -> None:
    """Who copied the header and knew the old passphrase opens nothing that is there now."""
    old_header = (folder / HEADER_FILE).read_bytes()
    store(folder).set_passphrase(bytearray(b"another passphrase"), CHEAP)
    with pytest.raises(WrongPassphrase):
        store(folder).load("device")
    assert store(folder, b"another passphrase").load("device") == SECRET
    (folder / HEADER_FILE).write_bytes(old_header)
    with pytest.raises(KeyStoreError, match="another passphrase's key"):
        store(folder).load("device")


def test_a_removed_passphrase_leaves_plain_files(folder: Path) -> None:
    with pytest.raises(WrongPassphrase):
        store(folder, b"wrong passphrase").remove_passphrase()
    store(folder).remove_passphrase()
    assert sorted(path.name for path in folder.iterdir()) == ["device", "root"]
    assert FileKeyStore(folder).load("device") == SECRET
    FileKeyStore(folder).remove_passphrase()


def test_a_passphrase_that_is_too_short_or_too_long_is_not_set(tmp_path: Path) -> None:
    for passphrase in (b"", b"seven77", bytes(1025)):
        with pytest.raises(ValueError, match="8 to 1024 bytes"):
            store(tmp_path / "secrets").set_passphrase(bytearray(passphrase), CHEAP)
    assert not (tmp_path / "secrets").exists()


@pytest.mark.parametrize("at", range(PASSPHRASE_HEADER_BYTES))
def test_each_changed_byte_of_the_header_is_noticed(at: int, folder: Path) -> None:
    path = folder / HEADER_FILE
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CryptoError):
        store(folder).load("device")


@pytest.mark.parametrize("at", [0, 4, 5, 12, 13, 36, 37, 100, 145])
def test_each_changed_field_of_a_wrapped_secret_is_noticed(at: int, folder: Path) -> None:
    path = folder / "device"
    data = bytearray(path.read_bytes())
    assert len(data) == len(SECRET) + 53
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CryptoError):
        store(folder).load("device")


def test_a_secret_under_another_name_is_refused(folder: Path) -> None:
    (folder / "root").write_bytes((folder / "device").read_bytes())
    with pytest.raises(WrongKey):
        store(folder).load("root")


def test_a_plain_file_slipped_into_a_closed_store_is_refused(folder: Path) -> None:
    (folder / "device").write_bytes(b"an identity that somebody else knows")
    with pytest.raises(KeyStoreError, match="not wrapped"):
        store(folder).load("device")


def test_a_header_that_is_gone_cut_or_newer_is_named(folder: Path) -> None:
    path = folder / HEADER_FILE
    whole = path.read_bytes()
    for cut in (1, 4, 5, 40, PASSPHRASE_HEADER_BYTES - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(KeyStoreError, match="damaged"):
            store(folder).load("device")
    path.write_bytes(whole + b"\x00")
    with pytest.raises(KeyStoreError, match="damaged"):
        store(folder).load("device")
    path.write_bytes(whole[:4] + b"\x02" + whole[5:])
    with pytest.raises(UnknownVersion):
        store(folder).load("device")
    path.unlink()
    with pytest.raises(KeyStoreError, match="is gone") as caught:
        store(folder).load("device")
    assert "backup" in caught.value.hint


@pytest.mark.parametrize(
    ("memory_kib", "iterations", "lanes"),
    [
        (100 * 1024 * 1024, 1, 1),
        (2**32 - 1, 2**32 - 1, 255),
        (256 * 1024 + 1, 1, 1),
        (64 * 1024, 65, 1),
        (64 * 1024, 2**32 - 1, 4),
        (64 * 1024, 0, 4),
        (0, 3, 4),
        (31, 3, 4),
        (64 * 1024, 3, 0),
        (64 * 1024, 3, 9),
    ],
)
def test_a_hostile_header_makes_nobody_allocate_or_compute(
    memory_kib: int, iterations: int, lanes: int, folder: Path
) -> None:
    path = folder / HEADER_FILE
    data = bytearray(path.read_bytes())
    struct.pack_into(">BII", data, 6, lanes, memory_kib, iterations)
    path.write_bytes(data)
    asked: list[str] = []

    def ask() -> bytearray:
        asked.append("asked")
        return bytearray(PASSPHRASE)

    tracemalloc.start()
    try:
        with pytest.raises(KeyStoreError, match="more or less work"):
            FileKeyStore(folder, ask).load("device")
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert asked == [], "nobody is asked for a passphrase that such a header would get"


@pytest.mark.slow
def test_the_cost_of_a_new_passphrase_is_what_the_record_says() -> None:
    """docs/decisions/0021-key-store.md."""
    cost = (COST.memory_kib, COST.iterations, COST.lanes)
    assert cost == (64 * 1024, 32, 4)
    header, kek = new_header(bytearray(b"x" * 8), MasterKeys.generate(os.urandom), COST, os.urandom)
    assert PassphraseHeader.parse(header.to_bytes()).cost == COST
    wipe(kek)
    assert kek == bytearray(32)


def test_argon2id_is_the_published_function() -> None:
    """The library says by itself which function and version it computes; the key is the one of its own text form."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    passphrase, keys = bytearray(b"some passphrase"), MasterKeys(bytearray(range(32)))
    header, kek = new_header(passphrase, keys, CHEAP, lambda n: bytes(range(n)))
    text = Argon2id(salt=header.salt, length=32, iterations=1, lanes=1, memory_cost=64).derive_phc_encoded(
        bytes(passphrase)
    )
    assert text.startswith("$argon2id$v=19$m=64,t=1,p=1$")
    assert base64.b64decode(text.rsplit("$", 1)[1] + "=") == kek == header.derive(passphrase)


def test_nothing_secret_is_in_a_repr_or_in_a_trace_even_with_its_variables(folder: Path) -> None:
    keys = MasterKeys(bytearray(b"0123456789abcdef0123456789abcdef"))
    assert "0123" not in repr(keys) + str(keys) + f"{keys}"
    (folder.parent / "typed").write_bytes(b"a wrong word")
    asking = FileKeyStore(folder, lambda: bytearray((folder.parent / "typed").read_bytes()))
    with pytest.raises(WrongPassphrase) as caught:
        asking.load("device")
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "passphrase = bytearray(b'" + "\\x00" * 12 in shown, "the trace has the variable, and it is wiped"
    assert "a wrong word" not in shown
    header = bytearray((folder / HEADER_FILE).read_bytes())
    header[-1] ^= 1
    (folder / HEADER_FILE).write_bytes(header)
    (folder.parent / "typed").write_bytes(PASSPHRASE)
    with pytest.raises(WrongKey) as changed:
        asking.load("device")
    shown = "".join(traceback.TracebackException.from_exception(changed.value, capture_locals=True).format())
    assert "kek = bytearray(b'" + "\\x00" * 32 in shown
    assert PASSPHRASE.decode() not in shown.replace(repr(PASSPHRASE), "")


def test_closing_wipes_the_master_key(folder: Path) -> None:
    opened = store(folder)
    opened.load("device")
    held = opened._opened  # pyright: ignore[reportPrivateUsage]
    assert held is not None
    keys = held[1]
    assert any(keys.material())
    opened.close()
    assert keys.material() == bytearray(64)
    assert opened.load("device") == SECRET


def test_an_unwrapping_key_is_only_used_for_its_own_files() -> None:
    keys, other = MasterKeys(bytearray(range(32))), MasterKeys(bytearray(range(1, 33)))
    data = keys.wrap("device", SECRET, lambda n: fixed("salt", n))
    assert keys.unwrap("device", data) == SECRET
    assert other.unwrap("device", data) is None
    renewed = keys.renewed(lambda n: fixed("new", n))
    assert renewed.unwrap("device", data) == SECRET
    assert not renewed.is_current(data)
    assert renewed.alone().unwrap("device", data) is None
    calls: list[Callable[[], object]] = [
        lambda: PassphraseHeader.parse(b""),
        lambda: PassphraseHeader.parse(b"CRYH"),
    ]
    for call in calls:
        with pytest.raises(Malformed):
            call()


@pytest.mark.slow
def test_killed_at_any_step_a_passphrase_is_set_changed_or_removed_by_the_next_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crypto.killed_passphrases", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"(\d+)\n", done.stdout)
    assert found is not None
    assert int(found.group(1)) > 100
