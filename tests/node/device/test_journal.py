"""The journal: a transaction is whole or was not there, and a full disk is an error like any other."""

from pathlib import Path

import apsw
import pytest

from crystal_mirror.ports import OutboxRow, OutboxState
from crystal_mirror.types import Origin
from crystal_node.device.journal import JournalDamaged, JournalTooNew, SqliteJournal


def row(number: int, size: int = 100) -> OutboxRow:
    origin = Origin(bytes(16), bytes(8), number)
    return OutboxRow(bytes(8), number, origin, b"o" * size, b"s" * size, OutboxState.PENDING)


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "state.db")

    def fail() -> None:
        with journal.transaction() as transaction:
            transaction.add_row(row(0))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert journal.names() == []
    with journal.transaction() as transaction:
        transaction.add_row(row(0))
    assert [name.sequence for name in journal.names()] == [0]


def test_a_full_disk_within_a_transaction_is_told_as_such_and_loses_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "state.db")
    with journal.transaction() as transaction:
        transaction.add_row(row(0))
    pages = journal.connection.execute("PRAGMA page_count").fetchone()
    assert pages is not None
    journal.connection.execute(f"PRAGMA max_page_count={pages[0] + 20}")
    journal.connection.execute("PRAGMA cache_size=10")

    def fill() -> None:
        with journal.transaction() as transaction:
            for number in range(1, 200):
                transaction.add_row(row(number, 4000))

    with pytest.raises(apsw.FullError):
        fill()
    assert [name.sequence for name in journal.names()] == [0]
    journal.connection.execute("PRAGMA max_page_count=1000000")
    fill()
    assert len(journal.names()) == 200


def test_what_was_let_go_of_leaves_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    journal = SqliteJournal.open(path)
    with journal.transaction() as transaction:
        origin = Origin(bytes(16), bytes(8), 0)
        secret = b"the spare key is under the flowerpot"
        transaction.add_row(OutboxRow(bytes(8), 0, origin, secret, b"sealed", OutboxState.PENDING))
    with journal.transaction() as transaction:
        transaction.remove_row(bytes(8), 0)
    journal.scrub()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret not in held


def test_a_foreign_or_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"not a database at all, but long enough to be taken for one" * 100)
    with pytest.raises(JournalDamaged):
        SqliteJournal.open(junk)
    foreign = tmp_path / "foreign.db"
    apsw.Connection(str(foreign)).execute("CREATE TABLE theirs (x)")
    with pytest.raises(JournalDamaged):
        SqliteJournal.open(foreign)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    journal = SqliteJournal.open(path)
    journal.connection.execute("PRAGMA user_version=99")
    journal.close()
    with pytest.raises(JournalTooNew):
        SqliteJournal.open(path)


def test_a_verified_log_slot_never_changes() -> None:
    journal = SqliteJournal.open(":memory:")
    with journal.transaction() as transaction:
        transaction.keep_log_entry(0, b"first", void=False)

    def change() -> None:
        with journal.transaction() as transaction:
            transaction.keep_log_entry(0, b"second", void=False)

    with pytest.raises(AssertionError):
        change()
    assert journal.log_entries() == [(0, b"first", False)]
