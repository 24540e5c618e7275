"""Memories: what changes them, what they were before, and which of them are brought up."""

import pytest

from crystal_core.memories import MemoryStatus, memories, memory, memory_chain, memory_history
from crystal_core.replica import Replica
from crystal_core.search.search import search
from crystal_mirror.operations import Amend, Remember
from tests.core.builders import (
    NOW,
    OTHER_DEVICE,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    origin,
    target,
)

OLD, NEW = "the meeting is on Monday", "the meeting is on Tuesday"


def remember(
    text: str,
    *,
    category: str = "fact",
    confidence: int = 100,
    instead_of: tuple[str, ...] = (),
    at: int = NOW,
) -> Remember:
    return Remember(text, category, "agent", at, confidence, tuple(target(old) for old in instead_of))


def amend(
    text: str, *, category: str | None = None, confidence: int | None = None, status: str | None = None
) -> Amend:
    return Amend(target(text), category, confidence, status, "person", NOW + 5)  # type: ignore[arg-type]


def found(replica: Replica, words: str = "meeting") -> set[str]:
    return {hit.text for hit in search(replica.database, words, now_ms=NOW, embedder=None).hits}


def listed(replica: Replica, status: MemoryStatus | None = MemoryStatus.ACTIVE) -> set[str]:
    return {each.text for each in memories(replica.database, status=status)}


def sound(replica: Replica) -> None:
    assert replica.digest() == replica.recompute_digest()
    assert replica.database.check() == []


@pytest.fixture(params=["applied", "pending"])
def replica(request: pytest.FixtureRequest) -> Replica:
    made = new_replica()
    made.how = request.param  # type: ignore[attr-defined]
    return made


def do(replica: Replica, *operations: Remember | Amend) -> None:
    """Applies them; or has them wait, and be seen all the same."""
    if replica.how == "applied":  # type: ignore[attr-defined]
        apply(replica, *operations)
        sound(replica)
        return
    first = len(replica.provisional_origins())
    for number, operation in enumerate(operations, start=first + 1000):
        replica.index_provisional(origin(number), operation)
    sound(replica)


def test_a_superseded_memory_leaves_the_results_and_is_kept(replica: Replica) -> None:
    apply(replica, remember(OLD))
    do(replica, remember(NEW, instead_of=(OLD,), at=NOW + 1))
    assert found(replica) == {NEW} == listed(replica)
    assert listed(replica, MemoryStatus.SUPERSEDED) == {OLD}
    old = memory(replica.database, content_hash(OLD))
    assert old is not None
    assert old.superseded_by == target(NEW)
    assert [each.text for each in memory_chain(replica.database, content_hash(OLD))] == [OLD, NEW]


def test_what_was_also_said_is_found_as_what_was_said(replica: Replica) -> None:
    apply(replica, capture(OLD), remember(OLD))
    do(replica, remember(NEW, instead_of=(OLD,)))
    assert found(replica) == {OLD, NEW}


def test_a_retired_memory_comes_back_when_it_is_active_again(replica: Replica) -> None:
    apply(replica, remember(OLD))
    do(replica, amend(OLD, status="retired"))
    assert (found(replica), listed(replica)) == (set(), set())
    assert listed(replica, MemoryStatus.RETIRED) == {OLD}
    do(replica, amend(OLD, status="active"))
    assert found(replica) == {OLD} == listed(replica)


def test_remembering_the_old_text_again_makes_it_current_and_a_circle_never_comes(replica: Replica) -> None:
    do(
        replica,
        remember(OLD),
        remember(NEW, instead_of=(OLD,)),
        remember(OLD, instead_of=(NEW,)),
    )
    assert found(replica) == {OLD} == listed(replica)
    assert listed(replica, MemoryStatus.SUPERSEDED) == {NEW}


def test_a_memory_that_names_itself_as_superseded_stays_current(replica: Replica) -> None:
    do(replica, remember(NEW, instead_of=(NEW,)))
    assert found(replica) == {NEW} == listed(replica)
    do(replica, remember(NEW, instead_of=(NEW,), confidence=40, at=NOW + 1))
    assert found(replica) == {NEW} == listed(replica)
    kept = memory(replica.database, content_hash(NEW))
    assert kept is not None
    assert (kept.confidence, kept.superseded_by) == (40, None)


def test_an_amendment_does_not_revive_what_was_superseded(replica: Replica) -> None:
    apply(replica, remember(OLD), remember(NEW, instead_of=(OLD,)))
    do(replica, amend(OLD, status="active", confidence=3))
    assert found(replica) == {NEW}


def test_forgetting_the_new_memory_does_not_revive_the_old(replica: Replica) -> None:
    do(replica, remember(OLD), remember(NEW, instead_of=(OLD,)))
    if replica.provisional_origins():
        replica.index_provisional(origin(2000), forget(NEW))
    else:
        apply(replica, forget(NEW))
    assert found(replica) == set()
    assert listed(replica, None) == {OLD}
    sound(replica)


def test_what_is_left_out_of_an_amendment_stays(replica: Replica) -> None:
    apply(replica, remember(OLD, category="event", confidence=40))
    do(replica, amend(OLD, confidence=80), amend(OLD, category="fact"))
    after = memory(replica.database, content_hash(OLD))
    assert after is not None
    assert (after.category, after.confidence, after.status) == ("fact", 80, MemoryStatus.ACTIVE)
    assert (after.agent, after.created_at, after.changed_at) == ("agent", NOW, NOW + 5)


def test_the_history_says_what_a_memory_was_and_who_changed_it(replica: Replica) -> None:
    do(
        replica,
        remember(OLD, category="event", confidence=40),
        amend(OLD, confidence=80),
        remember(NEW, instead_of=(OLD,), at=NOW + 9),
    )
    told = [
        (event.text, event.what, event.agent, event.confidence, event.status)
        for event in memory_history(replica.database, content_hash(NEW))
    ]
    assert told == [
        (OLD, "remembered", "agent", 40, MemoryStatus.ACTIVE),
        (OLD, "amended", "person", 80, MemoryStatus.ACTIVE),
        (NEW, "remembered", "agent", 100, MemoryStatus.ACTIVE),
        (OLD, "superseded", "agent", 80, MemoryStatus.SUPERSEDED),
    ]


def test_saying_the_same_again_changes_nothing() -> None:
    replica = new_replica()
    apply(replica, remember(OLD))
    before = replica.digest().tables
    apply(replica, remember(OLD, at=NOW + 77), device=OTHER_DEVICE)
    assert [table for table in replica.digest().tables if table.name != "acks"] == [
        table for table in before if table.name != "acks"
    ]
    assert len(memory_history(replica.database, content_hash(OLD))) == 1


def test_an_amendment_of_what_is_no_memory_is_of_no_effect() -> None:
    replica = new_replica()
    apply(replica, capture(OLD), amend(OLD, status="retired"), amend("never seen", status="retired"))
    assert found(replica) == {OLD}
    assert listed(replica, None) == set()
    sound(replica)


def test_pages_of_memories_follow_each_other() -> None:
    replica = new_replica()
    apply(replica, *(remember(f"fact {number}", at=NOW + number) for number in range(5)))
    pages = [memories(replica.database, limit=2, offset=offset) for offset in (0, 2, 4)]
    assert [each.text for page in pages for each in page] == [f"fact {number}" for number in (4, 3, 2, 1, 0)]


def test_other_devices_memories_are_amended_too() -> None:
    replica = new_replica()
    apply(replica, remember(OLD), device=OTHER_DEVICE)
    apply(replica, amend(OLD, status="retired"))
    events = memory_history(replica.database, content_hash(OLD))
    assert [event.device for event in events] == [OTHER_DEVICE, b"device-of-tests!"]
