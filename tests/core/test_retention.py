"""What leaves the memory on purpose: vectors of another model, entries below the floor; and a memory of an older version."""

import struct
from pathlib import Path

import pytest

from crystal_core.database import Database
from crystal_core.errors import UnusableVectors
from crystal_core.replica import Replica
from crystal_core.schema import MIGRATIONS
from crystal_core.state.vectors import float16_vectors, passed_over
from crystal_mirror.operations import Operation
from crystal_mirror.types import EntryState, Position
from tests.core.builders import (
    DIMENSIONS,
    SECRET,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    no_vectors,
    one_window,
    origin,
    remember,
    texts,
    vector,
    windows,
)

OTHER = struct.pack("<4e", 0.5, -0.5, 0.25, 1.0)


def vectors_of(replica: Replica, text: str) -> list[bytes]:
    rowid = replica.database.value("SELECT rowid FROM chunks WHERE id = ?", (content_hash(text),))
    return float16_vectors(replica.database, rowid)


def test_vectors_are_replaced_one_text_at_a_time() -> None:
    replica = new_replica()
    apply(replica, capture("amber", "birch"), vectors=one_window)
    with replica.transaction() as transaction:
        transaction.embed_anew(content_hash("amber"), [vector("one"), vector("two")])
        transaction.embed_anew(content_hash("nowhere"), [vector("three")])
        transaction.apply(origin(5), capture("cedar", session="2"), one_window)
        transaction.embed_anew(content_hash("cedar"), [vector("four")])
    assert vectors_of(replica, "amber") == [vector("one"), vector("two")]
    assert vectors_of(replica, "birch") == [vector("birch")]
    assert vectors_of(replica, "cedar") == [vector("four")]
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []


def test_all_vectors_are_dropped_and_others_of_another_size_come() -> None:
    replica = new_replica()
    apply(replica, capture("amber", "birch", "cedar"), remember("dune"), vectors=windows)
    replica.index_provisional(origin(9), capture("only pending", session="9"))
    with replica.transaction() as transaction:
        transaction.drop_vectors()
        assert transaction.digest() == transaction.recompute_digest()
        transaction.apply(origin(5), capture("ember", session="2"), lambda _: [OTHER])
        for content, text in transaction.without_vectors(2):
            assert content == content_hash(text)
            transaction.embed_anew(content, [OTHER, OTHER])
    assert replica.without_vectors(10) == [(content_hash(text), text) for text in ("cedar", "dune")]
    assert vectors_of(replica, "amber") == vectors_of(replica, "birch") == [OTHER, OTHER]
    assert vectors_of(replica, "ember") == [OTHER]
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []
    with replica.export() as moment:
        parts = list(moment.parts())
    restored = new_replica()
    with restored.transaction() as transaction:
        for part in parts:
            transaction.load(part)
    assert restored.digest() == replica.digest()
    assert restored.without_vectors(1) == [(content_hash("cedar"), "cedar")]


def test_what_has_no_vectors_is_told_in_order_whatever_comes_between() -> None:
    replica = new_replica()
    replica.index_provisional(origin(90), capture("zinc", session="90"))
    names = ["amber", "birch", "cedar"]
    apply(replica, capture(*names), vectors=no_vectors)
    for done, name in enumerate(names):
        assert [text for _, text in replica.without_vectors(9)] == names[done:]
        with replica.transaction() as transaction:
            transaction.embed_anew(content_hash(name), [vector(name)])
    assert replica.without_vectors(9) == []
    apply(replica, forget("cedar"))
    apply(replica, capture("dune", session="2"), vectors=no_vectors)
    apply(replica, capture("zinc", session="3"), vectors=no_vectors)
    assert [text for _, text in replica.without_vectors(9)] == ["zinc", "dune"]
    _embed_and_fail(replica, "zinc")
    with replica.transaction() as transaction:
        transaction.embed_anew(content_hash("dune"), [vector("dune")])
    assert [text for _, text in replica.without_vectors(9)] == ["zinc"]


def test_a_text_that_is_given_up_holds_up_no_other_and_is_back_when_vectors_are_dropped() -> None:
    replica = new_replica()
    apply(replica, capture("amber", "birch", "cedar"), vectors=no_vectors)
    with replica.transaction() as transaction:
        assert transaction.pass_over(content_hash("birch")) is None, "it is not the first"
        row = transaction.pass_over(content_hash("amber"))
    assert row is not None
    assert [text for _, text in replica.without_vectors(9)] == ["birch", "cedar"]
    assert passed_over(replica.database, [row, row + 1]) == 1
    for name in ("birch", "cedar"):
        with replica.transaction() as transaction:
            transaction.embed_anew(content_hash(name), [vector(name)])
    apply(replica, capture("dune", session="2"), vectors=no_vectors)
    assert [text for _, text in replica.without_vectors(9)] == ["dune"]
    with replica.transaction() as transaction:
        transaction.drop_vectors()
    assert [text for _, text in replica.without_vectors(9)] == ["amber", "birch", "cedar", "dune"]
    assert passed_over(replica.database, [row, row + 1]) == 0
    assert replica.database.check() == []


def _embed_and_fail(replica: Replica, text: str) -> None:
    try:
        with replica.transaction() as transaction:
            transaction.embed_anew(content_hash(text), [vector(text)])
            raise LookupError
    except LookupError:
        assert replica.digest() == replica.recompute_digest()


def test_the_size_of_replaced_vectors_is_checked() -> None:
    replica = new_replica()
    apply(replica, capture("amber"), vectors=one_window)
    before = replica.digest()
    with pytest.raises(UnusableVectors), replica.transaction() as transaction:
        transaction.embed_anew(content_hash("amber"), [OTHER])
    assert replica.digest() == before == replica.recompute_digest()


def entry(epoch: int, sequence: int) -> bytes:
    return f"<entry {epoch}/{sequence}>".encode() * 400


def test_entries_below_a_place_leave_no_bytes_behind(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    assert replica.oldest_kept() is None
    assert replica.kept_bytes(1, 0) == 0
    places = [(1, 4), (1, 5), (2, 0), (2, 1), (10, 0)]
    with replica.transaction() as transaction:
        for epoch, sequence in places:
            transaction.keep_entry(epoch, sequence, entry(epoch, sequence), EntryState.SENT)
        transaction.set_position(Position(10, 1, bytes(32)))
    assert replica.oldest_kept() == (1, 4)
    assert replica.kept_bytes(2, 1) == len(entry(2, 1)) + len(entry(10, 0))
    assert replica.kept_bytes(1, 0) == sum(len(entry(*place)) for place in places)
    with replica.transaction() as transaction:
        assert transaction.drop_entries_before(2, 1) == 3
        assert transaction.drop_entries_before(2, 1) == 0
    assert replica.oldest_kept() == (2, 1)
    files = [path, path.with_name("crystal.db-wal")]
    stored = b"".join(file.read_bytes() for file in files)
    for place in places:
        assert (entry(*place)[:20] in stored) == (place >= (2, 1))


def test_dropping_entries_waits_with_scrubbing_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    with replica.transaction() as transaction:
        transaction.keep_entry(1, 0, entry(1, 0), EntryState.SENT)
    with replica.export(), replica.transaction() as transaction:
        transaction.drop_entries_before(2, 0)
    replica.close()
    new_replica(path).close()
    assert entry(1, 0)[:20] not in path.read_bytes()


OPERATIONS: list[Operation] = [
    capture("amber", "birch"),
    remember("cedar"),
    forget("birch"),
    capture("dune", session="2"),
]


def test_a_memory_of_version_1_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    old = Replica(Database.open(path, migrations=MIGRATIONS[:1]), SECRET)
    assert old.database.value("PRAGMA user_version") == 1
    old.close()

    reference = new_replica()
    apply(reference, *OPERATIONS)
    with Database.open(path, migrations=MIGRATIONS[:1]) as version_1:
        _copy_rows(reference.database, version_1)
    migrated = new_replica(path)
    assert migrated.database.value("PRAGMA user_version") == len(MIGRATIONS)
    assert texts(migrated.database) == {"amber", "cedar", "dune"}
    assert migrated.digest() == migrated.recompute_digest() == reference.digest()
    assert migrated.database.check() == []
    assert path.with_name("crystal.db.schema-1").exists()
    assert list(migrated.files()) == []
    apply(migrated, capture("ember", session="3"))
    apply(reference, capture("ember", session="3"))
    assert migrated.digest() == reference.digest()


def _copy_rows(source: Database, target: Database) -> None:
    """The rows of `source` that version 1 knows, by plain SQL."""
    with target.transaction():
        for table in (
            "chunks",
            "occurrences",
            "memories",
            "suppressed",
            "acks",
            "acks_sparse",
            "digests",
            "meta",
        ):
            names = ", ".join(row[1] for row in target.rows(f"PRAGMA table_info ({table})"))
            rows = source.rows(f"SELECT {names} FROM {table}")  # noqa: S608 - names of ours
            if table == "digests":
                rows = [row for row in rows if row[0] not in ("files", "condemned")]
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                target.run_many(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - the same
        target.run(
            f"CREATE VIRTUAL TABLE chunks_vec USING vec0 (embedding float[{DIMENSIONS}], chunk_size = 32)"
        )
        target.run("UPDATE index_state SET dimensions = ?", (DIMENSIONS,))
        windows = source.rows("SELECT rowid, chunk, part, bits FROM windows")
        target.run_many("INSERT INTO windows (rowid, chunk, part, bits) VALUES (?, ?, ?, ?)", windows)
        vectors = source.rows("SELECT rowid, crystal_float32(embedding) FROM vectors")
        target.run_many("INSERT INTO chunks_vec (rowid, embedding) VALUES (?, ?)", vectors)


def test_a_text_whose_vectors_are_taken_away_lacks_them_again() -> None:
    replica = new_replica()
    apply(replica, capture("amber", "birch"), vectors=one_window)
    assert replica.without_vectors(9) == []
    with replica.transaction() as transaction:
        transaction.embed_anew(content_hash("amber"), [])
    assert [text for _, text in replica.without_vectors(9)] == ["amber"]
    assert replica.digest() == replica.recompute_digest()
