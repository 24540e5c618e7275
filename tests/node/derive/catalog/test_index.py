"""Files follow the memory: as it grows, as it forgets, as it is made anew, and at a cost that grows with the change."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_mirror.operations import Operation
from crystal_mirror.types import Position
from crystal_node.derive.artefacts.conversation_files import GOING_ON_MS, QUIET_MS
from tests.core.builders import NOW, apply, capture, forget, origin, remember
from tests.support.workbench import LATER, Workbench, known, quick_folder, texts_of

TRANSCRIPT = "agents/agent/memory/transcripts/session.jsonl"
SUMMARY = "agents/agent/memory/sessions/2027-01-15-session.md"
DAY = "agents/agent/memory/daily/2027-01-15.md"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    known(made, "agent", "other")
    return made


def test_a_conversation_becomes_a_transcript_a_summary_and_a_line_of_its_day(bench: Workbench) -> None:
    bench.apply(capture("What is the retry budget?", "Eleven attempts."))
    looked, made = bench.run()
    assert (looked.pieces, made.written) == (2, 3)
    files = bench.files()
    assert set(files) == {TRANSCRIPT, SUMMARY, DAY}
    kinds = [json.loads(line)["type"] for line in files[TRANSCRIPT].splitlines()]
    assert kinds == ["conversation", "place", "piece", "piece", "end"]
    assert "What is the retry budget?" in files[DAY]
    for path in files:
        assert (bench.root / path).stat().st_mode & 0o777 == 0o600


def test_nothing_new_reads_no_row_and_writes_no_file(bench: Workbench) -> None:
    bench.apply(capture("one"))
    bench.run()
    before = {path: (bench.root / path).stat().st_mtime_ns for path in bench.files()}
    bench.apply(remember("a memory is no conversation"))
    looked, made = bench.run()
    assert (looked.pieces, looked.checked_all, made.conversations, made.written) == (0, False, 0, 0)
    assert {path: (bench.root / path).stat().st_mtime_ns for path in bench.files()} == before


def test_only_the_conversation_that_grew_is_written_anew(bench: Workbench) -> None:
    bench.apply(capture("one"), capture("two", session="second"))
    bench.run()
    bench.apply(capture("three", session="second", message="later"))
    looked, made = bench.run()
    assert (looked.pieces, looked.checked_all, made.conversations) == (1, False, 1)
    assert made.written == 3


def test_a_conversation_that_goes_on_is_written_when_it_is_quiet_or_after_an_hour(bench: Workbench) -> None:
    bench.now = NOW
    bench.apply(capture("one", created_at=NOW))
    assert bench.run()[1].conversations == 0
    bench.now = NOW + QUIET_MS
    assert bench.run()[1].conversations == 1
    written = 0
    start = bench.now
    for minute in range(1, 80):
        bench.now = start + minute * 60_000
        bench.apply(capture(f"minute {minute}", message=str(minute), created_at=bench.now))
        written += bench.run()[1].conversations
    assert written == 1
    assert GOING_ON_MS == 60 * 60_000


def test_a_device_whose_clock_is_years_ahead_does_not_keep_a_conversation_from_being_written(
    bench: Workbench,
) -> None:
    bench.apply(capture("from the future", created_at=LATER + 10**11))
    bench.run()
    bench.now += QUIET_MS
    bench.run()
    assert texts_of(bench.files(), ["from the future"])


def test_a_clock_that_was_ahead_and_is_set_back_keeps_no_conversation_from_being_written(
    bench: Workbench,
) -> None:
    bench.now = LATER + 10**10
    bench.apply(capture("said meanwhile", created_at=bench.now))
    bench.run()
    bench.now = LATER
    bench.run()
    assert texts_of(bench.files(), ["said meanwhile"])


def test_a_forgotten_text_leaves_every_file_with_the_next_run(bench: Workbench) -> None:
    bench.apply(capture("The secret plan.", "Fine."), capture("another talk", session="second"))
    bench.run()
    assert b"secret plan" in bench.everywhere()
    bench.apply(forget("The secret plan."))
    looked, made = bench.run()
    assert (looked.lost, made.conversations) == (1, 1)
    assert b"secret plan" not in bench.everywhere()
    assert texts_of(bench.files(), ["Fine.", "another talk"]) == {"Fine.", "another talk"}


def test_a_conversation_of_which_all_was_forgotten_leaves_no_file(bench: Workbench) -> None:
    bench.apply(capture("only this"))
    bench.run()
    bench.apply(forget("only this"))
    assert bench.run()[1].removed == 3
    assert bench.files() == {}
    assert bench.run()[1].removed == 0


def test_a_forget_that_waits_to_be_ordered_hides_the_text_from_files_at_once(bench: Workbench) -> None:
    bench.apply(capture("The secret plan.", "Fine."))
    bench.run()
    bench.replica.index_provisional(origin(900, bench.own), forget("The secret plan."))
    bench.run()
    assert b"secret plan" not in bench.everywhere()
    bench.replica.drop_provisional(origin(900, bench.own))  # it was withdrawn by a later remember, say
    bench.run()
    assert texts_of(bench.files(), ["The secret plan."])


def test_of_a_forget_and_a_later_remember_that_both_wait_the_later_counts(bench: Workbench) -> None:
    bench.apply(capture("Said twice.", "Fine."))
    bench.run()
    bench.replica.index_provisional(origin(900, bench.own), forget("Said twice."))
    bench.replica.index_provisional(origin(901, bench.own), remember("Said twice."))
    bench.apply(capture("more", message="2"))
    bench.run()
    assert texts_of(bench.files(), ["Said twice."])


def test_the_last_text_is_forgotten_and_another_takes_its_row(bench: Workbench) -> None:
    """SQLite gives the number of a deleted last row to the next one."""
    bench.apply(capture("one", "The secret plan."))
    bench.run()
    bench.apply(forget("The secret plan."), capture("something else", message="m2"))
    bench.run()
    assert b"secret plan" not in bench.everywhere()
    assert texts_of(bench.files(), ["one", "something else"]) == {"one", "something else"}


def test_a_memory_that_is_made_anew_takes_no_file_away_and_is_compared_when_it_is_there(
    bench: Workbench,
) -> None:
    talks: list[Operation] = [capture(f"talk {number}", session=f"s{number}") for number in range(6)]
    bench.apply(*talks)
    bench.run()
    before = bench.files()
    position = bench.replica.position()
    with bench.replica.transaction() as transaction:
        transaction.wipe()
    assert bench.run()[0].behind
    assert bench.files() == before
    apply(bench.replica, *reversed(talks))  # a snapshot's rows stand in another order
    assert bench.run()[0].behind
    with bench.replica.transaction() as transaction:
        transaction.set_position(Position(position.epoch + 1, 0, position.previous))
    looked, made = bench.run()
    assert looked.checked_all
    assert (made.conversations, made.written, made.removed) == (6, 0, 0)
    assert bench.files() == before


def test_another_time_zone_moves_what_lies_across_midnight(bench: Workbench) -> None:
    bench.apply(capture("late", created_at=NOW + 15 * 3_600_000))
    bench.run()
    assert "agents/agent/memory/daily/2027-01-16.md" in bench.files()
    bench.zone = "America/New_York"
    bench.run()
    assert set(bench.files()) == {TRANSCRIPT, SUMMARY, DAY}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "forget", "remember", "run"]),
        st.integers(0, 5),
        st.sampled_from(["session", "second"]),
        st.sampled_from(["agent", "other"]),
    ),
    max_size=14,
)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_whatever_happened_the_files_are_those_of_a_home_that_saw_it_all_at_once(
    steps: list[tuple[str, int, str, str]],
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        slow, quick = Workbench(Path(folder) / "slow"), Workbench(Path(folder) / "quick")
        known(slow, "agent", "other")
        known(quick, "agent", "other")
        for number, (what, text, session, agent) in enumerate(steps):
            operation: Operation
            match what:
                case "say":
                    operation = capture(
                        f"text {text}",
                        session=session,
                        agent=agent,
                        message=str(number),
                        created_at=NOW + number,
                    )
                case "forget":
                    operation = forget(f"text {text}")
                case "remember":
                    operation = remember(f"text {text}")
                case _:
                    slow.run()
                    continue
            slow.apply(operation)
            quick.apply(operation)
        slow.run()
        quick.run()
        assert slow.files() == quick.files()
        slow.replica.close()
        quick.replica.close()
