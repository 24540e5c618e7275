"""What a device last did is noted without a cost of its own, and never in the way of its work."""

from pathlib import Path

import pytest

from crystal_mirror.requests import StoreFailure
from crystal_mirror.round import RoundReport
from crystal_node.base.errors import HomeBusy
from crystal_node.device.activity import (
    NOTED_MS,
    Activity,
    RoundNotes,
    note,
    note_problems,
    read_moments,
    read_problems,
    read_trouble,
)
from crystal_node.device.journal import SqliteJournal
from crystal_relay.errors import StoreUnavailable
from tests.support.machine import Vault, transcript

START = 1_700_000_000_000


@pytest.fixture
def journal() -> SqliteJournal:
    return SqliteJournal.open(":memory:")


def test_a_note_goes_with_what_is_written_anyway_and_else_at_most_once_a_minute(
    journal: SqliteJournal,
) -> None:
    note(journal, Activity.BACKUP, START)
    note(journal, Activity.BACKUP, START + NOTED_MS - 1)
    assert read_moments(journal) == {Activity.BACKUP: START}
    with journal.transaction():
        note(journal, Activity.BACKUP, START + 1)
    assert read_moments(journal) == {Activity.BACKUP: START + 1}
    note(journal, Activity.BACKUP, START + 1 + NOTED_MS)
    assert read_moments(journal) == {Activity.BACKUP: START + 1 + NOTED_MS}


def test_a_clock_that_was_set_back_does_not_stop_the_notes(journal: SqliteJournal) -> None:
    note(journal, Activity.WEAVE, START)
    note(journal, Activity.WEAVE, START - 3_600_000)
    assert read_moments(journal) == {Activity.WEAVE: START - 3_600_000}


def test_idle_rounds_write_once_a_minute(journal: SqliteJournal) -> None:
    rounds, before = RoundNotes(journal), journal.connection.total_changes()
    for number in range(60):
        rounds.succeeded(RoundReport(), START + number * 1000)
    assert journal.connection.total_changes() - before == 1
    assert read_moments(journal) == {Activity.ROUND: START}


def test_a_burst_of_rounds_writes_now_and_then_and_the_last_of_them_is_not_lost(
    journal: SqliteJournal,
) -> None:
    rounds, before = RoundNotes(journal), journal.connection.total_changes()
    for number in range(50):
        rounds.succeeded(RoundReport(bytes_pushed=1, settled=1), START + number * 1000)
    assert journal.connection.total_changes() - before == 5 * 3, "five transactions of three notes"
    assert read_moments(journal)[Activity.PUSH] == START + 40_000
    rounds.flush()
    assert read_moments(journal) == dict.fromkeys(
        (Activity.PUSH, Activity.ACK, Activity.ROUND), START + 49_000
    )


def test_trouble_is_known_from_its_first_round_on_until_one_succeeds(journal: SqliteJournal) -> None:
    rounds = RoundNotes(journal)
    rounds.failed(StoreUnavailable("nobody answers"), START)
    rounds.failed(HomeBusy("another round is under way"), START + 1)
    rounds.failed(StoreUnavailable("nobody answers at all"), START + 2 * NOTED_MS)
    trouble = read_trouble(journal)
    assert trouble is not None
    assert (trouble.since, trouble.at, trouble.exit_code) == (START, START + 2 * NOTED_MS, 4)
    rounds.failed(StoreFailure("the relay says nonsense"), START + 2 * NOTED_MS + 1)
    rounds.succeeded(RoundReport(), START + 3 * NOTED_MS)
    assert read_trouble(journal) is None


def test_a_full_disk_keeps_no_round_from_its_end(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "state.db")
    journal.connection.execute(f"PRAGMA max_page_count={journal.connection.execute('PRAGMA page_count').get}")
    rounds = RoundNotes(journal)
    rounds.failed(StoreUnavailable("nobody answers"), START)
    note_problems(journal, [(f"/a/{number}.jsonl", "x" * 400) for number in range(50)], looked_at=None)
    rounds.succeeded(RoundReport(bytes_pushed=1), START)
    assert read_problems(journal) == []


def test_transcripts_that_cannot_be_read_are_known_until_they_can(journal: SqliteJournal) -> None:
    note_problems(
        journal, [("/a/one.jsonl", "no permission"), ("/a/two.jsonl", "no permission")], looked_at=None
    )
    note_problems(journal, [], looked_at=["/a/one.jsonl"])
    assert [problem.path for problem in read_problems(journal)] == ["/a/two.jsonl"]
    note_problems(journal, [], looked_at=["/a"])
    assert read_problems(journal) == []


def test_recording_and_sync_note_what_they_did(vault: Vault) -> None:
    transcript(vault.core, "Noted.")
    assert vault.core.call("status", "--json").json["last"]["capture"] is None
    vault.core.call("capture")
    vault.core.call("sync")
    last = vault.core.call("status", "--json").json["last"]
    assert all(last[name] for name in ("capture", "push", "pull", "ack", "round")), last
    assert last["weave"] is None
