"""A replace: another text stands where one stood, with all that was known of it; of the former nothing is left."""

from pathlib import Path
from random import Random

import pytest

from crystal_core.memories import memories, memory, memory_history
from crystal_core.messages import said_pieces
from crystal_core.replica import Replica
from crystal_mirror.operations import Amend, PutDocument, PutSource, Remember, Replace, Replaced
from tests.core.builders import (
    DEVICE,
    NOW,
    OTHER_DEVICE,
    apply,
    capture,
    content_hash,
    forget,
    keyword_rowids,
    new_replica,
    no_vectors,
    origin,
    remember,
    target,
    texts,
)
from tests.core.test_forget_bytes import nonsense, stored, traces

OLD, NEW = "the key is hunter2hunter2", "the key is [redacted:assignment]"


def replace(*pairs: tuple[str, str]) -> Replace:
    return Replace(tuple(Replaced(target(old), new) for old, new in pairs))


def said(replica: Replica) -> list[tuple[str, str, str, int, bytes]]:
    rows = replica.database.rows(
        "SELECT c.text, o.session, o.message, o.part, o.device FROM occurrences o JOIN chunks c ON c.rowid = o.chunk"
        " ORDER BY o.rowid"
    )
    return [tuple(row) for row in rows]


def shown(replica: Replica) -> set[str]:
    """What a search may show, pending operations counted."""
    return {piece.text for piece in said_pieces(replica.database)} | {
        each.text for each in memories(replica.database)
    }


def sound(replica: Replica) -> None:
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []


def test_a_replaced_text_keeps_its_places_its_order_and_its_devices() -> None:
    replica = new_replica()
    apply(replica, capture("before", OLD, "after"), device=OTHER_DEVICE)
    apply(replica, capture(OLD, session="another", message="m2"))
    apply(replica, replace((OLD, NEW)))
    assert said(replica) == [
        ("before", "session", "message", 0, OTHER_DEVICE),
        (NEW, "session", "message", 1, OTHER_DEVICE),
        ("after", "session", "message", 2, OTHER_DEVICE),
        (NEW, "another", "m2", 0, DEVICE),
    ]
    assert keyword_rowids(replica.database, "hunter2hunter2") == []
    sound(replica)


def test_the_former_text_does_not_come_back_and_the_new_one_is_not_doubled() -> None:
    replica = new_replica()
    apply(replica, capture("before", OLD))
    apply(replica, replace((OLD, NEW)))
    before = said(replica)
    apply(replica, capture("before", OLD), capture("before", NEW))
    assert said(replica) == before
    apply(replica, replace((OLD, NEW)))
    assert said(replica) == before
    sound(replica)


def test_a_place_that_the_other_text_has_already_is_not_doubled() -> None:
    replica = new_replica()
    apply(replica, capture(NEW), capture(OLD))
    apply(replica, replace((OLD, NEW)))
    assert [row[0] for row in said(replica)] == [NEW]
    sound(replica)


def test_a_text_that_is_not_there_is_suppressed_and_its_replacement_not_added() -> None:
    replica = new_replica()
    apply(replica, replace((OLD, NEW)))
    assert texts(replica.database) == set()
    apply(replica, capture(OLD, "else"))
    assert texts(replica.database) == {"else"}
    sound(replica)


@pytest.mark.parametrize("other", [OLD, "forgotten"])
def test_a_text_that_may_not_stand_replaces_nothing(other: str) -> None:
    replica = new_replica()
    apply(replica, forget("forgotten"), capture(OLD, "else"))
    apply(replica, replace((OLD, other)))
    assert texts(replica.database) == {"else"}
    sound(replica)


def test_a_memory_keeps_its_history_its_predecessors_and_its_scope() -> None:
    replica = new_replica()
    first = Remember("the key is lost", "fact", "agent", NOW, 100, (), "src/x")
    second = Remember(OLD, "fact", "agent", NOW + 1, 90, (target("the key is lost"),))
    apply(
        replica,
        first,
        second,
        Amend(target(OLD), "event", None, None, "person", NOW + 2),
        device=OTHER_DEVICE,
    )
    apply(replica, replace((OLD, NEW)))
    kept = memory(replica.database, content_hash(NEW))
    assert kept is not None
    assert (kept.category, kept.confidence, kept.device, kept.scope) == ("event", 90, OTHER_DEVICE, "src/x")
    former = memory(replica.database, content_hash("the key is lost"))
    assert former is not None and former.superseded_by == target(NEW)
    assert [event.what for event in memory_history(replica.database, content_hash(NEW))] == [
        "remembered",
        "remembered",
        "superseded",
        "amended",
    ]
    sound(replica)


def test_a_memory_that_becomes_what_another_one_says_leaves_that_one_as_it_is() -> None:
    replica = new_replica()
    apply(replica, remember(NEW, "fact"), remember(OLD, "event"))
    apply(replica, replace((OLD, NEW)))
    (kept,) = memories(replica.database, status=None)
    assert (kept.text, kept.category) == (NEW, "fact")
    sound(replica)


def test_memories_that_a_removed_one_superseded_stay_superseded() -> None:
    replica = new_replica()
    apply(replica, remember("a"), Remember(OLD, "fact", "agent", NOW, supersedes=(target("a"),)))
    apply(replica, Remember("b", "fact", "agent", NOW, supersedes=(target(OLD),)))
    apply(replica, replace(("b", OLD)))
    assert {each.text: each.superseded_by for each in memories(replica.database, status=None)} == {
        "a": target(OLD),
        OLD: target("b"),
    }
    sound(replica)


def test_what_a_memory_superseded_is_superseded_by_the_one_that_says_the_same() -> None:
    replica = new_replica()
    apply(replica, remember("a"), remember(NEW, "fact"))
    apply(replica, Remember(OLD, "fact", "agent", NOW, supersedes=(target("a"),)))
    apply(replica, replace((OLD, NEW)))
    assert {each.text: each.superseded_by for each in memories(replica.database, status=None)} == {
        "a": target(NEW),
        NEW: None,
    }
    sound(replica)


def test_a_replace_closes_no_circle_of_successors() -> None:
    """The memory that says the same was superseded by what the replaced one supersedes."""
    replica = new_replica()
    apply(replica, remember(NEW, "fact"))
    apply(replica, Remember("a", "fact", "agent", NOW, supersedes=(target(NEW),)))
    apply(replica, Remember(OLD, "fact", "agent", NOW, supersedes=(target("a"),)))
    apply(replica, replace((OLD, NEW)))
    assert {each.text: each.superseded_by for each in memories(replica.database, status=None)} == {
        NEW: target("a"),
        "a": target(OLD),
    }
    sound(replica)


def test_documents_keep_their_places() -> None:
    replica = new_replica()
    apply(
        replica,
        PutSource("notes", "", (), (), 1),
        PutDocument("notes", "a.md", bytes(32), 1, "md", 0, 3, ("x", OLD, "y"), ("", "Keys", "")),
        device=OTHER_DEVICE,
    )
    apply(replica, replace((OLD, NEW)))
    rows = replica.database.rows(
        "SELECT p.part, c.text, p.title FROM document_parts p JOIN chunks c ON c.rowid = p.chunk ORDER BY p.part"
    )
    assert [tuple(row) for row in rows] == [(0, "x", ""), (1, NEW, "Keys"), (2, "y", "")]
    sound(replica)


def test_texts_to_embed_are_known_before() -> None:
    replica = new_replica()
    apply(replica, capture(OLD, "p"))
    assert replica.unembedded([replace((OLD, NEW), ("p", "q"), ("p", "r")), capture(NEW)]) == [NEW, "q", "r"]


def test_a_pending_replace_hides_the_one_text_and_shows_the_other() -> None:
    replica = new_replica()
    apply(replica, capture(OLD, "else"), remember(OLD))
    replica.index_provisional(origin(7), capture(OLD, session="pending"))
    replica.index_provisional(origin(8), replace((OLD, NEW)))
    assert shown(replica) == {NEW, "else"}
    assert [each.category for each in memories(replica.database)] == ["fact"]
    replica.drop_provisional(origin(8))
    assert shown(replica) == {OLD, "else"}
    replica.index_provisional(origin(8), replace((OLD, NEW)))
    with replica.transaction() as transaction:
        for number, operation in ((7, capture(OLD, session="pending")), (8, replace((OLD, NEW)))):
            transaction.apply(origin(number), operation, no_vectors)
    assert shown(replica) == {NEW, "else"}
    assert [row[:2] for row in said(replica)] == [(NEW, "session"), ("else", "session"), (NEW, "pending")]
    assert replica.database.value("SELECT count(*) FROM provisional_places") == 0
    sound(replica)


@pytest.mark.parametrize("pending", [True, False])
def test_no_byte_of_the_former_text_is_left(tmp_path: Path, pending: bool) -> None:
    path = tmp_path / "crystal.db"
    random = Random(11)
    gone, new = nonsense(random, 300), nonsense(random, 40)
    replica = new_replica(path)
    if pending:
        replica.index_provisional(origin(50), capture(gone))
    apply(
        replica,
        capture(gone),
        remember(gone),
        PutSource("notes", "", (), (), 1),
        PutDocument("notes", "a.md", bytes(32), 1, "md", 0, 1, (gone,), ("",)),
    )
    replica.database.scrub()
    assert len(traces(gone, stored(path))) > 200
    apply(replica, replace((gone, new)))
    found = stored(path)
    assert traces(gone, found) == []
    assert len(traces(new, found)) > 30
    sound(replica)
