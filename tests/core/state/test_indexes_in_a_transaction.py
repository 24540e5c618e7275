"""Indexes that are completed late in a transaction: what was wiped, or left without vectors, is in none of them."""

from pathlib import Path
from typing import cast

import apsw

from crystal_core.database import Database
from tests.core.builders import (
    apply,
    capture,
    content_hash,
    keyword_rowids,
    new_replica,
    no_vectors,
    one_window,
    origin,
    vector,
)


def test_what_was_added_before_a_wipe_in_one_transaction_is_in_no_index() -> None:
    replica = new_replica()
    with replica.transaction() as transaction:
        transaction.apply(origin(1), capture("wiped at once", message="1"), one_window)
        transaction.wipe()
        transaction.apply(origin(2), capture("recorded afterwards", message="2"), one_window)
    assert keyword_rowids(replica.database, "wiped") == []
    assert len(keyword_rowids(replica.database, "afterwards")) == 1
    assert replica.database.check() == []
    assert replica.digest() == replica.recompute_digest()


def test_a_text_that_loses_its_vectors_is_found_as_one_without() -> None:
    replica = new_replica()
    apply(replica, capture("first", message="1"), capture("second", message="2"))
    with replica.transaction() as transaction:
        transaction.embed_anew(content_hash("second"), [vector("second", 1)])
    assert replica.without_vectors(10) == []
    with replica.transaction() as transaction:
        transaction.embed_anew(content_hash("first"), no_vectors("first"))
    assert replica.without_vectors(10) == [(content_hash("first"), "first")]


def test_a_rebuild_completes_an_index_that_lost_rows(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, capture("in the index", message="1"))
    replica.close()
    name = "occurrences_by_agent"
    connection = apsw.Connection(str(path))
    found = connection.execute("SELECT * FROM sqlite_schema WHERE name = ?", (name,))
    row = cast("tuple[str | int, ...]", found.fetchall()[0])
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (name,))
    connection.close()
    connection = apsw.Connection(str(path))
    connection.execute(
        "INSERT INTO occurrences SELECT 99, chunk, 'other', session, message, part, role, created_at, project, repository,"
        " source, device, model FROM occurrences"
    )
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    connection.close()
    database = Database.open(path)
    assert any(name in problem for problem in database.check())
    with database.transaction():
        database.rebuild_indexes()
    assert database.check() == []
