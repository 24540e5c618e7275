"""Opening, refusing, migrating, and failing in words that help."""

import os
import sqlite3
import stat
from pathlib import Path
from random import Random

import apsw
import pytest

from crystal_core.database import Database
from crystal_core.errors import (
    ForeignFile,
    SchemaTooNew,
    VaultBusy,
    VaultDamaged,
    VaultDataError,
    VaultFull,
)
from crystal_core.schema import APPLICATION_ID, MIGRATIONS
from tests.core.builders import apply, capture, new_replica, origin, texts


def test_a_new_database_is_its_owners_alone_and_durable(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    with Database.open(path) as database:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        wanted = {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "secure_delete": 1,
            "recursive_triggers": 1,
            "application_id": APPLICATION_ID,
            "user_version": len(MIGRATIONS),
        }
        assert {name: database.value(f"PRAGMA {name}") for name in wanted} == wanted
        assert database.value("SELECT v FROM chunks_fts_config WHERE k = 'secure-delete'") == 1
    with Database.open(path) as database:
        assert database.value("PRAGMA secure_delete") == 1
        assert database.check() == []


def test_it_is_a_file_that_any_sqlite_reads(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, capture("plain to see"))
    replica.close()
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("SELECT text FROM chunks").fetchall() == [("plain to see",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


@pytest.mark.parametrize(
    "content", [b"this is no database at all, but some text" * 100, b"SQLite format 3\0" + b"\xff" * 9000]
)
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "crystal.db"
    path.write_bytes(content)
    with pytest.raises(VaultDamaged, match=r"crystal\.db") as caught:
        Database.open(path)
    assert caught.value.exit_code == 8
    assert "crystal restore" in caught.value.hint
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ForeignFile):
        Database.open(path)
    assert path.read_bytes() == before
    assert not path.with_name("crystal.db-wal").exists()


def test_a_newer_schema_is_refused_with_advice_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    Database.open(path).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew) as caught:
        Database.open(path)
    assert "update" in caught.value.hint.lower()
    assert path.read_bytes() == before


def second_version(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE added (a)")


def failing_version(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE half (a)")
    connection.execute("CREATE TABLE half (a)")


def test_a_migration_makes_a_backup_first(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, capture("before the migration"))
    with Database.open(path, migrations=(*MIGRATIONS, second_version)) as database:
        assert database.value("PRAGMA user_version") == len(MIGRATIONS) + 1
        assert database.value("SELECT count(*) FROM added") == 0
        assert texts(database) == {"before the migration"}
    backup = tmp_path / f"crystal.db.schema-{len(MIGRATIONS)}"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with Database.open(backup) as old:
        assert texts(old) == {"before the migration"}
        assert old.value("PRAGMA user_version") == len(MIGRATIONS)
        assert old.check() == []
    replica.close()
    assert sorted(name.name for name in tmp_path.iterdir() if "part" in name.name) == []


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    new_replica(path).close()
    with pytest.raises(apsw.SQLError):
        Database.open(path, migrations=(*MIGRATIONS, second_version, failing_version))
    with Database.open(path) as database:
        assert database.value("PRAGMA user_version") == len(MIGRATIONS)
        assert database.rows("SELECT 1 FROM sqlite_schema WHERE name IN ('added', 'half')") == []


def test_a_new_database_needs_no_backup(tmp_path: Path) -> None:
    Database.open(tmp_path / "crystal.db", migrations=(*MIGRATIONS, second_version)).close()
    assert [name.name for name in tmp_path.iterdir()] == ["crystal.db"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(VaultDataError):
        Database.open(tmp_path / "crystal.db")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(VaultDataError, match="cannot be opened"):
        Database.open(tmp_path / "nowhere" / "crystal.db")


def test_a_database_that_is_held_for_too_long_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    first = Database.open(path)
    second = Database.open(path, busy_milliseconds=50)
    with first.transaction(), pytest.raises(VaultBusy) as caught, second.transaction():
        pass
    assert caught.value.exit_code == 9
    with second.transaction():
        second.run("DELETE FROM chunks")


def test_only_what_is_made_again_from_elsewhere_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    replica = new_replica(tmp_path / "crystal.db")
    with replica.transaction() as transaction:
        assert transaction.database.value("PRAGMA synchronous") == 2
    with replica.database.transaction(durable=False):
        assert replica.database.value("PRAGMA synchronous") == 1
    assert replica.database.value("PRAGMA synchronous") == 2

    def failing() -> None:
        with replica.database.transaction(durable=False):
            raise LookupError

    with pytest.raises(LookupError):
        failing()
    assert replica.database.value("PRAGMA synchronous") == 2
    replica.index_provisional(origin(0), capture("a"))
    assert replica.database.value("PRAGMA synchronous") == 2


def test_readers_see_one_state_while_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, capture("old"))
    reader = Database.open(path)
    with reader.snapshot():
        assert texts(reader) == {"old"}
        apply(replica, capture("new"))
        assert texts(reader) == {"old"}
    assert texts(reader) == {"old", "new"}


def test_a_full_disk_is_named_and_nothing_is_half_done(tmp_path: Path) -> None:
    replica = new_replica(tmp_path / "crystal.db")
    apply(replica, capture("fits"))
    before = replica.digest()
    pages = replica.database.value("PRAGMA page_count")
    replica.database.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(VaultFull) as caught:
        apply(replica, capture("x" * 60_000), capture("y" * 60_000), capture("z" * 60_000))
    assert caught.value.exit_code == 8
    assert "room" in caught.value.hint
    assert replica.digest() == before == replica.recompute_digest()
    replica.database.run("PRAGMA max_page_count = 1000000")
    apply(replica, capture("fits again"))
    assert texts(replica.database) == {"fits", "fits again"}
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []


def test_damage_within_is_named_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, *(capture(f"text {i} " * 50, message=str(i)) for i in range(200)))
    replica.close()
    content = bytearray(path.read_bytes())
    page = 8192
    for start in range(2 * page, len(content), page):
        content[start : start + 200] = Random(start).randbytes(200)
    path.write_bytes(bytes(content))

    def use() -> None:
        damaged = new_replica(path)
        damaged.recompute_digest()
        texts(damaged.database)

    with pytest.raises(VaultDamaged) as caught:
        use()
    assert "crystal.db" in str(caught.value)
    assert caught.value.hint


def test_a_check_of_a_damaged_file_reports_and_does_not_raise(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, *(capture(f"text {i} " * 50, message=str(i)) for i in range(200)))
    replica.close()
    content = bytearray(path.read_bytes())
    content[-8192:-8000] = b"\xff" * 192
    path.write_bytes(bytes(content))
    with Database.open(path) as database:
        assert database.check() != []


def test_databases_in_memory_are_separate_and_copies_are_complete() -> None:
    first, second = new_replica(), new_replica()
    apply(first, capture("only in the first"))
    assert texts(second.database) == set()
    with Database.from_bytes(first.database.to_bytes()) as copy:
        assert texts(copy) == {"only in the first"}
        assert copy.value("PRAGMA secure_delete") == 1
        assert copy.check() == []
