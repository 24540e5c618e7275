"""Every index follows every write, whoever writes: direct SQL, other connections, replacements."""

import pytest

from crystal_core.database import Database
from crystal_core.errors import VaultDataError
from tests.core.builders import apply, capture, keyword_rowids, new_replica, target, windows


def filled() -> Database:
    replica = new_replica()
    apply(
        replica,
        capture("first stone", "second stone", "third stone"),
        vectors=lambda text: [*windows("xy"), *windows("b")],
    )
    assert replica.database.value("SELECT count(*) FROM windows") >= 3
    return replica.database


def test_a_row_inserted_by_hand_is_indexed() -> None:
    database = filled()
    database.run(
        "INSERT INTO chunks (rowid, id, forget_hash, text) VALUES (77, ?, ?, 'fourth stone')",
        (b"4" * 32, b"f" * 32),
    )
    assert keyword_rowids(database, "fourth") == [77]
    assert database.check() == []


def test_a_row_deleted_by_hand_leaves_all_indexes() -> None:
    database = filled()
    database.run("DELETE FROM chunks WHERE text = 'second stone'")
    assert keyword_rowids(database, "second") == []
    assert len(keyword_rowids(database, "stone")) == 2
    assert database.value("SELECT count(*) FROM windows WHERE chunk NOT IN (SELECT rowid FROM chunks)") == 0
    assert (
        database.value("SELECT count(*) FROM occurrences WHERE chunk NOT IN (SELECT rowid FROM chunks)") == 0
    )
    counts = database.rows("SELECT (SELECT count(*) FROM windows), (SELECT count(*) FROM vectors)")
    assert counts[0][0] == counts[0][1] > 0
    assert database.check() == []


def test_indexes_follow_where_foreign_keys_are_off() -> None:
    """As they are in SQLite's own shell."""
    database = filled()
    database.run("PRAGMA foreign_keys = OFF; DELETE FROM chunks WHERE text = 'second stone'")
    assert keyword_rowids(database, "second") == []
    assert database.value("SELECT count(*) FROM windows WHERE chunk NOT IN (SELECT rowid FROM chunks)") == 0
    counts = database.rows("SELECT (SELECT count(*) FROM windows), (SELECT count(*) FROM vectors)")
    assert counts[0][0] == counts[0][1]


def test_all_rows_deleted_by_hand_leave_empty_indexes() -> None:
    database = filled()
    database.run("DELETE FROM chunks")
    assert keyword_rowids(database, "stone") == []
    assert database.value("SELECT count(*) FROM vectors") == 0
    assert database.check() == []


def test_a_text_changed_by_hand_is_found_under_its_new_words_and_loses_its_vectors() -> None:
    database = filled()
    rowid = database.value("SELECT rowid FROM chunks WHERE text = 'second stone'")
    database.run("UPDATE chunks SET text = 'a pebble' WHERE rowid = ?", (rowid,))
    assert keyword_rowids(database, "second") == []
    assert keyword_rowids(database, "pebble") == [rowid]
    assert database.value("SELECT count(*) FROM windows WHERE chunk = ?", (rowid,)) == 0
    assert database.check() == []


def test_a_row_replaced_by_hand_is_replaced_in_all_indexes() -> None:
    database = filled()
    database.run(
        "INSERT OR REPLACE INTO chunks (id, forget_hash, text) VALUES (?, ?, 'a boulder')",
        (b"4" * 32, target("second stone")),
    )
    assert keyword_rowids(database, "second") == []
    assert len(keyword_rowids(database, "boulder")) == 1
    assert database.check() == []


def test_a_window_removed_by_hand_takes_its_vector_along_and_is_noticed() -> None:
    database = filled()
    before = database.value("SELECT removals FROM index_state")
    rowid = database.value("SELECT min(rowid) FROM windows")
    database.run("DELETE FROM windows WHERE rowid = ?", (rowid,))
    assert database.rows("SELECT 1 FROM vectors WHERE rowid = ?", (rowid,)) == []
    assert database.value("SELECT removals FROM index_state") > before


def test_a_window_keeps_its_rowid() -> None:
    database = filled()
    with pytest.raises(Exception, match="keeps its rowid"):
        database.run("UPDATE windows SET rowid = rowid + 1000")


def test_a_check_finds_indexes_that_do_not_fit() -> None:
    database = filled()
    assert database.check() == []
    database.run("INSERT INTO chunks_fts (rowid, text) VALUES (999, 'nowhere else')")
    assert database.check() != []
    other = filled()
    other.run("DELETE FROM vectors WHERE rowid = 1")
    assert other.check() != []
    short = filled()
    short.run("UPDATE vectors SET embedding = x'00' WHERE rowid = 1")
    assert [fault.split(" ", 1)[1] for fault in short.check()] == ["vectors are not of 16 float16 numbers"]
    turned = filled()
    turned.run("UPDATE windows SET bits = zeroblob(2) WHERE rowid = 1")
    assert turned.check() == ["1 vectors have other signs than those in windows"]
    with turned.transaction():
        turned.rebuild_indexes()
    assert turned.check() == []
    third = filled()
    third.run("PRAGMA foreign_keys = OFF; DELETE FROM chunks WHERE rowid = 1")
    assert third.check() != []


def test_stems_are_found() -> None:
    replica = new_replica()
    apply(replica, capture("we connected the relays"))
    for word in ("connection", "connecting", "relay", "WE"):
        assert len(keyword_rowids(replica.database, word)) == 1, word


def test_a_text_stands_once() -> None:
    database = filled()
    with pytest.raises(Exception, match="UNIQUE"):
        database.run(
            "INSERT INTO chunks (id, forget_hash, text) VALUES (?, ?, 'first stone')",
            (b"1" * 32, target("first stone")),
        )
    with pytest.raises(Exception, match="CHECK"):
        database.run("INSERT INTO chunks (id, forget_hash, text) VALUES (x'00', zeroblob(32), 'x')")


def test_errors_of_ours_say_what_to_do() -> None:
    assert VaultDataError("x").hint
