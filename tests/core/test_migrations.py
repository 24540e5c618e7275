"""A memory that the version before made is brought up to date with all that is in it.

`databases/version-2.db.gz` was made by the program of schema 2: captures, memories (one of them under a second category), a
forget, a condemned name, and a remember and a capture that were still pending.
"""

import gzip
from pathlib import Path

import pytest

from crystal_core.inspection import strange_objects
from crystal_core.memories import MemoryStatus, memories, memory
from crystal_core.replica import Replica
from crystal_core.schema import MIGRATIONS
from crystal_mirror.operations import Amend
from tests.core.builders import (
    DEVICE,
    NOW,
    apply,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    origin,
    target,
    texts,
)

_OLD = Path(__file__).with_name("databases") / "version-2.db.gz"
_DIGEST = "a18ec5b93ff2bdd9f977b727ef178969f731d945a45174d42f134cd415e4ec8f"
"""The state digest as that program gave it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "crystal.db"
    path.write_bytes(gzip.decompress(_OLD.read_bytes()))
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
