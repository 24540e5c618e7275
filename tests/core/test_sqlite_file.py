"""The small databases: made once, for their owner, by any number of processes; nothing of another program is touched."""

import stat
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from crystal_core.sqlite_file import MEMORY, SqliteFile, immediate


class _Damaged(Exception):
    pass


class _TooNew(Exception):
    pass


def _add_note(db: apsw.Connection) -> None:
    db.execute("ALTER TABLE row ADD COLUMN note TEXT")


def _file(version: int = 1) -> SqliteFile:
    return SqliteFile(
        0x43525958,
        "CREATE TABLE row (value INTEGER) STRICT;",
        busy_milliseconds=50,
        damaged=_Damaged,
        too_new=_TooNew,
        migrations=[_add_note] * (version - 1),
    )


def test_it_is_made_for_its_owner_alone_and_opened_again_beside_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    db = _file().open(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with immediate(db):
        db.execute("INSERT INTO row VALUES (7)")
        other = _file().open(path)  # who only looks waits for nobody
        assert other.execute("SELECT count(*) FROM row").get == 0
    assert other.execute("SELECT value FROM row").get == 7


def test_what_fails_within_a_transaction_leaves_nothing() -> None:
    db = _file().open(MEMORY)
    with pytest.raises(ZeroDivisionError), immediate(db):
        db.execute("INSERT INTO row VALUES (1 + ?)", (1 // 0,))
    with pytest.raises(apsw.ConstraintError), immediate(db):
        db.execute("INSERT INTO row VALUES (1); INSERT INTO row VALUES ('no number')")
    assert not db.in_transaction
    assert db.execute("SELECT count(*) FROM row").get == 0


def test_a_file_of_something_else_or_of_a_later_version_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    newer, foreign, no_database = (tmp_path / name for name in ("newer.db", "foreign.db", "text"))
    _file(2).open(newer).close()
    other = apsw.Connection(str(foreign))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    no_database.write_text("this is no database at all, " * 100)
    for path, error in ((newer, _TooNew), (foreign, _Damaged), (no_database, _Damaged)):
        before = path.read_bytes()
        with pytest.raises(error, match=path.name):
            _file().open(path)
        assert path.read_bytes() == before


def test_an_older_schema_is_migrated_after_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    db = _file().open(path)
    db.execute("INSERT INTO row VALUES (7)")
    db.close()
    newer = _file(2).open(path)
    assert newer.execute("SELECT value, note FROM row").get == (7, None)
    newer.close()
    backup = apsw.Connection(str(tmp_path / "small.db.schema-1"))
    assert (backup.execute("SELECT * FROM row").get, backup.execute("PRAGMA user_version").get) == (7, 1)


def test_a_file_that_can_be_found_out_again_is_remade_from_any_other_version(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    _file(2).open(path).close()
    db = replace(_file(), remake=True).open(path)
    assert db.execute("SELECT count(*) FROM pragma_table_info('row')").get == 1
    assert db.execute("PRAGMA user_version").get == 1
