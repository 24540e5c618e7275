"""Encrypted databases: what is on the disk, what the marker means, and who waits for a file that is replaced."""

import os
import threading
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal_core import key_finder
from crystal_core.database import Database
from crystal_core.encryption import (
    KEY_BYTES,
    MARKER_NAME,
    PLAIN_BEGINNING,
    EncryptionState,
    Marker,
    connect,
    copy_uri,
    give_key,
    key_id,
    read_marker,
)
from crystal_core.errors import DatabaseKeyMissing, VaultDamaged, VaultDataError
from crystal_core.sqlite_file import SqliteFile, open_read_only, open_scratch

KEY = bytes(range(KEY_BYTES))
WORD = "quicksilver"
FORMER_KEY = bytes(reversed(KEY))
ENCRYPTING, ENCRYPTED, DECRYPTING, REKEYING = EncryptionState


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The key store of this process."""
    held = {key_id(key): key for key in (KEY, FORMER_KEY)}

    def find(folder: Path, wanted: str) -> bytes:
        if wanted not in held:
            raise DatabaseKeyMissing(f"no key for {folder}")
        return held[wanted]

    monkeypatch.setattr(key_finder, "_find", find)
    return held


def _mark(folder: Path, state: EncryptionState, key: bytes = KEY) -> None:
    former = key_id(FORMER_KEY) if state is REKEYING else ""
    (folder / MARKER_NAME).write_bytes(Marker(state, key_id(key), former=former).to_bytes())


def _file() -> SqliteFile:
    def migrate(db: apsw.Connection) -> None:
        db.execute("CREATE TABLE later (x)")

    return SqliteFile(
        application_id=7,
        schema="CREATE TABLE said (text); CREATE VIRTUAL TABLE words USING fts5(text)",
        busy_milliseconds=5_000,
        damaged=VaultDamaged,
        too_new=VaultDamaged,
        migrations=[migrate],
    )


def _fill(db: apsw.Connection) -> None:
    with db:
        for number in range(2_000):
            db.execute("INSERT INTO said VALUES (?)", (f"{WORD} {number}",))
            db.execute("INSERT INTO words VALUES (?)", (f"{WORD} {number}",))


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_nothing_that_is_written_can_be_read_on_the_disk(tmp_path: Path) -> None:
    """Neither in the file, nor in the write-ahead log, a rollback journal, or the copy before a migration."""
    _mark(tmp_path, ENCRYPTED)
    path = tmp_path / "said.db"
    with closing(_file().open(path)) as db:
        _fill(db)
        assert (tmp_path / "said.db-wal").stat().st_size > 100_000
        assert WORD.encode() not in _bytes(tmp_path)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert WORD.encode() not in _bytes(tmp_path)
        db.execute("PRAGMA user_version = 1; DROP TABLE later")
    with closing(_file().open(path)) as db:
        assert (tmp_path / "said.db.schema-1").stat().st_size > 100_000
        assert db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (WORD,)).get == 2_000
    with closing(
        open_scratch(tmp_path / "scratch.db", "CREATE TABLE said (text)", busy_milliseconds=0)
    ) as db:
        db.execute("BEGIN")
        db.execute("INSERT INTO said VALUES (?)", (WORD * 10_000,))
        db.execute("COMMIT")
        db.execute("BEGIN")
        db.execute("UPDATE said SET text = zeroblob(100000)")
        db.cache_flush()
        assert (tmp_path / "scratch.db-journal").stat().st_size > 100_000
        assert WORD.encode() not in _bytes(tmp_path)
        db.execute("ROLLBACK")
    with closing(open_read_only(path)) as db:
        assert db.execute("SELECT count(*) FROM said").get == 2_000
    assert not path.read_bytes().startswith(PLAIN_BEGINNING)
    assert not (tmp_path / "said.db.schema-1").read_bytes().startswith(PLAIN_BEGINNING)


def test_a_memory_is_sound_with_its_indexes_and_vectors(tmp_path: Path) -> None:
    _mark(tmp_path, ENCRYPTED)
    with Database.open(tmp_path / "crystal.db") as database:
        assert database.check() == []
        assert database.value("SELECT vec_version()")
        assert database.value("PRAGMA page_size") == 8192
        assert database.scrub()
    assert not (tmp_path / "crystal.db").read_bytes().startswith(PLAIN_BEGINNING)


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    _mark(tmp_path, ENCRYPTED)
    path = tmp_path / "said.db"
    with closing(_file().open(path)) as db:
        _fill(db)
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    with closing(open_read_only(path)) as db, pytest.raises(apsw.CorruptError):
        db.execute("PRAGMA integrity_check").fetchall()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("state", list(EncryptionState))
def test_the_marker_says_which_forms_are_read(
    tmp_path: Path, state: EncryptionState, encrypted: bool
) -> None:
    path = tmp_path / "said.db"
    if encrypted:
        _mark(tmp_path, ENCRYPTED)
    with closing(_file().open(path)) as db:
        _fill(db)
    _mark(tmp_path, state)
    if not encrypted and state in (ENCRYPTED, REKEYING):
        with pytest.raises(VaultDamaged):
            _file().open(path)
        return
    with closing(_file().open(path)) as db:
        assert db.execute("SELECT count(*) FROM said").get == 2_000
        db.execute("INSERT INTO said VALUES ('more')")
    with closing(open_read_only(path)) as db:
        assert db.execute("SELECT count(*) FROM said").get == 2_001
    assert path.read_bytes().startswith(PLAIN_BEGINNING) is not encrypted


@pytest.mark.parametrize(("state", "plain"), [(ENCRYPTING, False), (ENCRYPTED, False), (DECRYPTING, True)])
def test_a_new_file_has_the_form_that_the_marker_leads_to(
    tmp_path: Path, state: EncryptionState, plain: bool
) -> None:
    _mark(tmp_path, state)
    _file().open(tmp_path / "new.db").close()
    assert (tmp_path / "new.db").read_bytes().startswith(PLAIN_BEGINNING) is plain


def test_another_key_is_never_tried(tmp_path: Path, keys: dict[str, bytes]) -> None:
    _mark(tmp_path, ENCRYPTED)
    _file().open(tmp_path / "said.db").close()
    keys.clear()
    with pytest.raises(DatabaseKeyMissing):
        _file().open(tmp_path / "said.db")
    with pytest.raises(DatabaseKeyMissing):
        open_read_only(tmp_path / "said.db")
    other = os.urandom(KEY_BYTES)
    keys[key_id(other)] = other
    with pytest.raises(DatabaseKeyMissing):
        Database.open(tmp_path / "said.db")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"state":"encrypted","key":"x"}', b"\xff\xfe", b'{"state":"open","key":"%s"}' % (b"0" * 32),
     b'{"version":2,"state":"encrypted","key":"%s"}' % (b"0" * 32), b"[" * 5_000],
)  # fmt: skip
def test_a_damaged_marker_is_named_and_nothing_is_written(tmp_path: Path, content: bytes) -> None:
    _file().open(tmp_path / "said.db").close()
    before = (tmp_path / "said.db").read_bytes()
    (tmp_path / MARKER_NAME).write_bytes(content)
    with pytest.raises(VaultDataError, match="is damaged"):
        read_marker(tmp_path)
    with pytest.raises(VaultDataError, match="is damaged"):
        _file().open(tmp_path / "said.db")
    assert (tmp_path / "said.db").read_bytes() == before


def test_who_waited_for_a_file_that_is_replaced_writes_to_the_new_one(tmp_path: Path) -> None:
    path, new = tmp_path / "said.db", tmp_path / "new.db"
    with closing(_file().open(path)) as db:
        _fill(db)
        db.execute("PRAGMA journal_mode = DELETE")
    holder = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    holder.execute("BEGIN EXCLUSIVE; COMMIT")
    opened: list[apsw.Connection] = []
    waiting = threading.Thread(target=lambda: opened.append(_file().open(path)))
    _mark(tmp_path, ENCRYPTING)
    waiting.start()
    time.sleep(0.3)
    assert not opened, "it did not wait"
    holder.execute("VACUUM INTO ?", (copy_uri(new, KEY),))
    new.replace(path)
    holder.close()
    waiting.join(30)
    with closing(opened[0]) as db:
        db.execute("INSERT INTO said VALUES ('from who waited')")
    with closing(connect(path)) as db:
        assert db.execute("SELECT count(*) FROM said").get == 2_001


def test_the_same_key_gives_other_bytes_each_time(tmp_path: Path) -> None:
    """A page that is written again with the same content has a nonce of its own."""
    for name in ("one.db", "two.db"):
        db = apsw.Connection(str(tmp_path / name))
        give_key(db, KEY)
        db.execute("CREATE TABLE said (text)")
        db.execute("INSERT INTO said VALUES (?)", (WORD,))
        db.close()
    one, two = ((tmp_path / name).read_bytes() for name in ("one.db", "two.db"))
    same = sum(a == b for a, b in zip(one[4096:], two[4096:], strict=True))
    assert same < len(one[4096:]) * 0.02
