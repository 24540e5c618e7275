"""This device's pending operations: findable at once, marked, outside the digest, and gone when they are applied or dropped."""

from crystal_core.replica import Replica
from crystal_core.search.by import By
from crystal_core.search.search import Searcher
from crystal_mirror.operations import Operation
from tests.core.builders import (
    NOW,
    OTHER_DEVICE,
    apply,
    capture,
    forget,
    new_replica,
    no_vectors,
    one_window,
    origin,
    remember,
    texts,
)


def found(replica: Replica, word: str) -> list[tuple[str, bool]]:
    """Texts found by keyword, each with whether it is provisional."""
    result = Searcher(replica.database).search(word, now_ms=NOW, by=By.MESSAGE)
    return [(hit.text, hit.provisional) for hit in result.hits]


def pending(replica: Replica, *operations: Operation, first: int = 0) -> None:
    for sequence, operation in enumerate(operations, start=first):
        replica.index_provisional(origin(sequence), operation)


def test_a_pending_capture_is_found_and_marked_and_outside_the_digest() -> None:
    replica = new_replica()
    before = replica.digest()
    pending(replica, capture("written today"))
    assert found(replica, "today") == [("written today", True)]
    assert replica.provisional_origins() == {origin(0)}
    assert replica.digest() == before == replica.recompute_digest()
    assert texts(replica.database) == set()
    assert replica.unembedded([capture("written today")]) == ["written today"]


def test_applying_it_replaces_the_provisional_rows() -> None:
    replica = new_replica()
    pending(replica, capture("written today"))
    apply(replica, capture("written today"))
    assert found(replica, "today") == [("written today", False)]
    assert replica.provisional_origins() == set()
    assert replica.database.value("SELECT count(*) FROM provisional_places") == 0
    twin = new_replica()
    apply(twin, capture("written today"))
    assert replica.digest() == twin.digest()


def test_what_another_device_brings_makes_the_text_replicated_and_the_place_stays_pending() -> None:
    replica = new_replica()
    pending(replica, capture("said on both", session="here"))
    apply(replica, capture("said on both", session="there"), device=OTHER_DEVICE)
    assert found(replica, "both") == [("said on both", False)]
    assert replica.provisional_origins() == {origin(0)}
    replica.drop_provisional(origin(0))
    assert found(replica, "both") == [("said on both", False)]


def test_indexing_twice_or_after_it_is_done_changes_nothing() -> None:
    replica = new_replica()
    pending(replica, capture("once"))
    pending(replica, capture("once"))
    assert replica.database.value("SELECT count(*) FROM provisional_places") == 1
    apply(replica, capture("once"))
    pending(replica, capture("once"))
    assert replica.provisional_origins() == set()


def test_dropping_removes_what_nothing_else_needs() -> None:
    replica = new_replica()
    pending(replica, capture("shared", "alone"), capture("shared"))
    replica.drop_provisional(origin(0))
    assert found(replica, "alone") == []
    assert found(replica, "shared") == [("shared", True)]
    replica.drop_provisional(origin(1))
    replica.drop_provisional(origin(1))
    assert replica.database.value("SELECT count(*) FROM chunks") == 0
    assert replica.database.check() == []


def test_a_pending_forget_hides_at_once_and_shows_again_when_dropped() -> None:
    replica = new_replica()
    apply(replica, capture("to be hidden", "to be kept"))
    before = replica.digest()
    replica.index_provisional(origin(1), forget("to be hidden"))
    assert found(replica, "hidden kept") == [("to be kept", False)]
    assert replica.digest() == before == replica.recompute_digest()
    replica.drop_provisional(origin(1))
    assert len(found(replica, "hidden kept")) == 2


def test_a_pending_forget_hides_a_text_that_arrives_while_it_waits() -> None:
    replica = new_replica()
    replica.index_provisional(origin(0), forget("late arrival"))
    apply(replica, capture("late arrival"), device=OTHER_DEVICE)
    assert found(replica, "arrival") == []
    apply(replica, forget("late arrival"))
    assert found(replica, "arrival") == []
    assert replica.provisional_origins() == set()
    assert texts(replica.database) == set()


def test_there_is_no_moment_in_which_a_forgotten_text_shows_again() -> None:
    """The mark goes in the very transaction that forgets for real."""
    replica = new_replica()
    apply(replica, capture("gone"), device=OTHER_DEVICE)
    replica.index_provisional(origin(0), forget("gone"))
    apply(replica, forget("gone"))
    assert found(replica, "gone") == []
    assert replica.provisional_origins() == set()


def test_the_latest_pending_word_on_a_text_counts() -> None:
    replica = new_replica()
    apply(replica, capture("changing mind"), device=OTHER_DEVICE)
    pending(replica, forget("changing mind"))
    assert found(replica, "mind") == []
    pending(replica, remember("changing mind"), first=1)
    assert found(replica, "mind") == [("changing mind", False)]
    pending(replica, forget("changing mind"), first=2)
    assert found(replica, "mind") == []


def test_a_pending_capture_of_a_suppressed_text_is_not_shown() -> None:
    replica = new_replica()
    apply(replica, forget("old secret"), device=OTHER_DEVICE)
    pending(replica, capture("old secret"))
    assert found(replica, "secret") == []
    assert replica.database.value("SELECT count(*) FROM chunks") == 0
    pending(replica, remember("old secret"), first=1)
    assert found(replica, "secret") == [("old secret", True)]
    pending(replica, capture("old secret"), first=2)
    replica.drop_provisional(origin(1))
    assert found(replica, "secret") == []
    assert replica.database.value("SELECT count(*) FROM chunks") == 0


def test_a_text_that_is_said_again_after_a_pending_forget_stays_hidden() -> None:
    replica = new_replica()
    pending(replica, forget("said again"), capture("said again"))
    assert found(replica, "again") == []
    assert replica.database.value("SELECT count(*) FROM chunks") == 0


def test_a_forget_from_elsewhere_takes_pending_captures_with_it() -> None:
    replica = new_replica()
    pending(replica, capture("both pending and forgotten"))
    apply(replica, forget("both pending and forgotten"), device=OTHER_DEVICE)
    assert found(replica, "forgotten") == []
    assert replica.database.value("SELECT count(*) FROM chunks") == 0


def test_a_pending_remember_survives_a_forget_from_elsewhere() -> None:
    """It will be ordered after that forget, and lift it."""
    replica = new_replica()
    pending(replica, remember("worth keeping"))
    apply(replica, capture("worth keeping"), forget("worth keeping"), device=OTHER_DEVICE)
    assert found(replica, "worth") == [("worth keeping", True)]
    assert texts(replica.database) == set()
    apply(replica, remember("worth keeping"))
    assert found(replica, "worth") == [("worth keeping", False)]


def test_pending_rows_survive_a_wipe_and_what_they_need_with_them() -> None:
    replica = new_replica()
    apply(replica, capture("replicated", "in both"), device=OTHER_DEVICE)
    pending(replica, capture("in both", "only here"))
    with replica.transaction() as transaction:
        transaction.wipe()
    assert sorted(found(replica, "both only replicated")) == [("in both", True), ("only here", True)]
    assert replica.database.check() == []


def test_pending_rows_never_change_what_applying_does() -> None:
    plain, busy = new_replica(), new_replica()
    pending(busy, remember("a"), forget("b"), capture("c", "d"), first=100)
    operations: list[Operation] = [
        capture("a", "b", "c"),
        remember("b"),
        forget("c"),
        capture("c", "d"),
        forget("a"),
    ]
    apply(plain, *operations)
    apply(busy, *operations)
    assert plain.digest() == busy.digest() == busy.recompute_digest()


def test_a_pending_memory_is_found_with_its_category() -> None:
    replica = new_replica()
    pending(replica, remember("the cat is called Ada", "fact", agent="me"))
    result = Searcher(replica.database).search("cat", now_ms=NOW)
    assert [(hit.category, hit.agent, hit.provisional) for hit in result.hits] == [("fact", "me", True)]


def test_vectors_are_asked_for_although_the_text_is_known_provisionally() -> None:
    replica = new_replica()
    pending(replica, capture("words"))
    asked: list[str] = []

    def vectors(text: str) -> list[bytes]:
        asked.append(text)
        return one_window(text)

    with replica.transaction() as transaction:
        transaction.apply(origin(0), capture("words"), vectors)
        transaction.apply(origin(1), capture("words"), no_vectors)
    assert asked == ["words"]
    assert replica.database.value("SELECT count(*) FROM windows") == 1
