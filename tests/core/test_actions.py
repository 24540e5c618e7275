"""Tool calls stand beside what was said: without vectors, found by their words if they are asked for, and never in the way."""

from pathlib import Path

import pytest

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.schema import MIGRATIONS
from crystal_core.search.coverage import percent_embedded
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Hit
from crystal_core.search.search import Searcher
from crystal_core.state.vectors import note_embedded
from crystal_mirror.operations import Capture, Piece, Replace, Replaced
from tests.core.builders import (
    NOW,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    no_vectors,
    one_window,
    origin,
    remember,
    target,
)
from tests.core.snapshots.test_snapshot import load, parts_of

QUESTION = "why does npm install fail?"
ANSWER = "npm install fails because the lock file is older than the manifest."
FAILED = "Bash failed, exit code 1\ncommand: npm install\nerror: npm ERR! code ERESOLVE"
CONVERSATION = Scope(kind="conversation")
ACTIONS = Scope(kind="action")


def happened(*texts: str, role: str = "action", session: str = "s") -> Capture:
    pieces = tuple(
        Piece(text, role, NOW + number, f"{session}-{number}", 0) for number, text in enumerate(texts)
    )
    return Capture("agent", session, "work/uploader", "", "claude-code", pieces)


def conversation() -> Capture:
    said = (("user", QUESTION), ("action", FAILED), ("assistant", ANSWER))
    pieces = tuple(Piece(text, role, NOW + at, f"m{at}", 0) for at, (role, text) in enumerate(said))
    return Capture("agent", "s", "work/uploader", "", "claude-code", pieces)


def vectors(text: str) -> list[bytes]:
    """What a Core makes: none of a tool call."""
    return no_vectors(text) if text == FAILED else one_window(text)


def search(database: Database, query: str, scope: Scope | None = None) -> list[Hit]:
    return list(Searcher(database).search(query, now_ms=NOW, scope=scope or Scope()).hits)


@pytest.fixture
def replica() -> Replica:
    replica = new_replica()
    apply(replica, conversation(), vectors=vectors)
    return replica


def test_a_search_finds_what_was_said_and_no_tool_call(replica: Replica) -> None:
    for scope in (Scope(), CONVERSATION, Scope(agent="agent"), Scope(project="work/uploader")):
        texts = {hit.text for hit in search(replica.database, "npm install ERESOLVE", scope)}
        assert texts == {ANSWER}, scope


def test_tool_calls_are_found_by_their_kind_and_by_their_role(replica: Replica) -> None:
    for scope in (ACTIONS, Scope(role="action"), Scope(kind="action", project="work/uploader")):
        (hit,) = search(replica.database, "npm install", scope)
        assert (hit.text, hit.kind, hit.role, hit.turn) == (FAILED, "action", "action", None)


def test_a_thousand_tool_calls_push_nothing_that_was_said_out_of_the_results(replica: Replica) -> None:
    for number in range(10):
        calls = (f"Bash done\ncommand: npm install {number} {which}" for which in range(100))
        apply(replica, happened(*calls, session=f"n{number}"), vectors=no_vectors)
    (hit, *_) = search(replica.database, "npm install")
    assert hit.text == ANSWER


def test_the_turn_of_an_answer_does_not_count_them(replica: Replica) -> None:
    (hit,) = search(replica.database, "lock file manifest")
    assert hit.turn is not None
    assert (hit.turn.question, hit.turn.messages) == (QUESTION, 2)


def test_a_turn_that_ends_with_a_tool_call_is_answered_by_what_was_said_before_it(replica: Replica) -> None:
    apply(replica, happened("Bash done\ncommand: git commit", session="s"), vectors=no_vectors)
    (hit,) = search(replica.database, "lock file manifest")
    assert hit.turn is not None
    assert hit.turn.answered


def test_they_are_to_have_no_vectors_and_nothing_waits_for_them(replica: Replica) -> None:
    assert replica.unembedded([happened("Bash done\ncommand: ls"), capture("said")]) == ["said"]
    assert replica.without_vectors(10) == []
    assert percent_embedded(replica.database) == 100
    apply(replica, capture("lacking"), vectors=no_vectors)
    assert [text for _, text in replica.without_vectors(10)] == ["lacking"]


def test_a_memory_whose_first_text_is_a_tool_call_is_looked_through_only_once(replica: Replica) -> None:
    with replica.transaction():
        note_embedded(replica.database)
    apply(replica, happened("Bash done\ncommand: make"), vectors=no_vectors)
    newest = replica.database.value("SELECT max(rowid) FROM chunks")
    assert replica.database.value("SELECT embedded FROM index_state") == newest - 1


@pytest.mark.parametrize("how", ["said", "remembered", "pending"])
def test_a_text_that_somebody_also_said_is_found_as_all_that_was_said(replica: Replica, how: str) -> None:
    if how == "remembered":
        apply(replica, remember(FAILED))
    elif how == "said":
        apply(replica, capture(FAILED, session="pasted"))
    else:
        replica.index_provisional(origin(99), capture(FAILED, session="pasted"))
    hits = search(replica.database, "ERESOLVE")
    assert FAILED in {hit.text for hit in hits}
    assert {hit.kind for hit in hits} <= {"conversation", "memory"}
    if how != "pending":
        assert [text for _, text in replica.without_vectors(10)] == [FAILED]


def test_pending_ones_are_left_out_and_found_too() -> None:
    replica = new_replica()
    replica.index_provisional(origin(1), conversation())
    assert {hit.text for hit in search(replica.database, "npm install")} == {ANSWER}
    (hit,) = search(replica.database, "npm install", ACTIONS)
    assert (hit.text, hit.provisional) == (FAILED, True)


def test_a_forget_and_a_replacement_reach_them(replica: Replica) -> None:
    blanked = FAILED.replace("ERESOLVE", "[blanked]")
    apply(replica, Replace((Replaced(target(FAILED), blanked),)), vectors=no_vectors)
    assert [hit.text for hit in search(replica.database, "npm install", ACTIONS)] == [blanked]
    assert {hit.text for hit in search(replica.database, "npm install blanked")} == {ANSWER}
    apply(replica, forget(blanked))
    assert search(replica.database, "npm install", ACTIONS) == []
    assert replica.database.value("SELECT count(*) FROM actions") == 0


def test_a_snapshot_brings_them_as_they_are(replica: Replica) -> None:
    restored = new_replica()
    load(restored, *parts_of(replica))
    assert restored.digest() == replica.digest()
    assert {hit.text for hit in search(restored.database, "npm install")} == {ANSWER}
    assert [hit.text for hit in search(restored.database, "npm install", ACTIONS)] == [FAILED]
    assert restored.without_vectors(10) == []


def test_a_database_of_before_that_took_some_from_newer_devices_tells_them_apart(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    before = Database.open(path, migrations=MIGRATIONS[:8])
    with before.transaction():
        happened = [("action", FAILED), ("assistant", ANSWER), ("action", "both"), ("user", "both")]
        for number, (role, text) in enumerate(happened):
            before.run(
                "INSERT OR IGNORE INTO chunks (id, forget_hash, text) VALUES (?, ?, ?)",
                (content_hash(text), target(text), text),
            )
            before.run(
                "INSERT INTO occurrences (chunk, agent, session, message, part, role, created_at, project, repository,"
                " source, device) SELECT rowid, 'a', 's', ?, 0, ?, 1, '', '', '', x'00' FROM chunks WHERE text = ?",
                (str(number), role, text),
            )
    before.close()
    database = Database.open(path)
    assert database.rows("SELECT text FROM chunks WHERE rowid IN (SELECT chunk FROM actions)") == [(FAILED,)]
    database.close()


def test_what_a_tool_answers_again_and_again_is_recorded_and_applied_without_going_through_all_of_it() -> (
    None
):
    replica = new_replica()
    steps: list[int] = []

    def counted(number: int) -> int:
        """SQLite's steps to look up, index and apply the same answer in one more session."""
        taken = 0

        def stepped() -> bool:
            nonlocal taken
            taken += 1
            return False

        more = happened("The file was updated.", session=f"s{number}")
        replica.database.connection.set_progress_handler(stepped, 10)
        assert replica.said_alike(more, "memory-crystal") == [False]
        replica.index_provisional(origin(5000 + number), more)
        apply(replica, more, vectors=no_vectors)
        replica.database.connection.set_progress_handler(None)
        return taken

    steps += (counted(number) for number in range(1, 400))
    assert max(steps[-5:]) < 2 * min(steps[5:10])
