"""A memory that an earlier version made is brought up to date with all that is in it.

`databases/version-2.db.gz` was made by the program of schema 2: captures, memories (one of them under a second category), a
forget, a condemned name, and a remember and a capture that were still pending. `version-9.db.gz`, by that of schema 9: forty
captures with two vectors each in sqlite-vec's table, a memory, a forget, a text embedded anew and a pending capture.
"""

import gzip
from pathlib import Path

import numpy as np
import pytest

from crystal_core.inspection import foreign_tables, strange_objects
from crystal_core.memories import MemoryStatus, memories, memory
from crystal_core.replica import Replica
from crystal_core.schema import MIGRATIONS
from crystal_core.search.vector_index import VectorIndex
from crystal_core.state.vectors import float16_vectors
from crystal_mirror.operations import Amend
from tests.core.builders import (
    DEVICE,
    NOW,
    apply,
    capture,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    one_window,
    origin,
    target,
    texts,
    vector,
)

_DATABASES = Path(__file__).with_name("databases")
_DIGEST = "a18ec5b93ff2bdd9f977b727ef178969f731d945a45174d42f134cd415e4ec8f"
"""The state digest as that program gave it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "crystal.db"
    path.write_bytes(gzip.decompress((_DATABASES / "version-2.db.gz").read_bytes()))
    return path


@pytest.fixture
def replica(path: Path) -> Replica:
    return new_replica(path)


def test_nothing_is_lost_and_the_digest_is_the_same(replica: Replica, path: Path) -> None:
    assert replica.database.value("PRAGMA user_version") == len(MIGRATIONS)
    assert path.with_name("crystal.db.schema-2").read_bytes()
    assert replica.database.check() == []
    assert strange_objects(replica.database) == []
    assert replica.digest().hex() == _DIGEST == replica.recompute_digest().hex()
    assert texts(replica.database) == {"amber", "cedar", "dune"}
    assert replica.is_condemned(b"n" * 32)
    assert len(keyword_rowids(replica.database, "amber")) == 1


def test_memories_are_as_they_were_and_can_be_changed(replica: Replica) -> None:
    cedar = memory(replica.database, content_hash("cedar"))
    assert cedar is not None
    assert (cedar.category, cedar.confidence, cedar.status) == ("preference", 100, MemoryStatus.ACTIVE)
    assert (cedar.created_at, cedar.changed_at, cedar.device) == (NOW, NOW, DEVICE)
    apply(replica, Amend(target("cedar"), None, 50, "retired", "person", NOW + 1))
    assert [each.text for each in memories(replica.database, status=MemoryStatus.RETIRED)] == ["cedar"]
    assert replica.digest() == replica.recompute_digest()


def test_what_was_pending_is_still_seen_and_goes_when_it_is_forgotten(replica: Replica) -> None:
    shown = {each.text: each.pending for each in memories(replica.database)}
    assert shown == {"amber": False, "cedar": False, "ember": True}
    assert replica.provisional_origins() == {origin(50), origin(51)}
    ember = memory(replica.database, content_hash("ember"))
    assert ember is not None
    assert ember.confidence == 100
    replica.index_provisional(origin(52), forget("ember"))
    assert "ember" not in {each.text for each in memories(replica.database)}


_WITH_VECTORS = "36ef785f51f140491061f3fb938277bef82b568233e2b55d3f3f7f8ee4dc9d0d"
"""The state digest of version 9's file, as that program gave it. It covers the vectors."""


@pytest.fixture
def with_vectors(tmp_path: Path) -> Path:
    path = tmp_path / "crystal.db"
    path.write_bytes(gzip.decompress((_DATABASES / "version-9.db.gz").read_bytes()))
    return path


def test_vectors_leave_sqlite_vecs_table_as_they_came(with_vectors: Path) -> None:
    replica = new_replica(with_vectors)
    assert replica.digest().hex() == _WITH_VECTORS == replica.recompute_digest().hex()
    assert replica.database.check() == []
    assert strange_objects(replica.database) == foreign_tables(replica.database) == []
    anew = replica.database.value("SELECT rowid FROM chunks WHERE text = 'stone number 1'")
    assert float16_vectors(replica.database, anew) == [vector("stone number 1", 5)]
    with replica.database.snapshot():
        index = VectorIndex()
        index.refresh(replica.database)
        query = np.frombuffer(vector("stone number 20", 1), "<f2").astype(np.float32)
        nearest = index.nearest(replica.database, query, 1)[0].chunk
    assert replica.database.value("SELECT text FROM chunks WHERE rowid = ?", (nearest,)) == "stone number 20"


def test_a_memory_with_vectors_goes_on_after_its_migration(with_vectors: Path) -> None:
    replica = new_replica(with_vectors)
    removals = replica.database.value("SELECT removals FROM index_state")
    apply(replica, forget("stone number 20"))
    assert replica.database.value("SELECT removals FROM index_state") == removals + 2
    apply(replica, capture("a newer stone"), vectors=one_window)
    assert replica.database.check() == []
    with replica.transaction() as transaction:
        transaction.drop_vectors()
    assert replica.database.value("SELECT count(*) FROM vectors") == 0
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []
