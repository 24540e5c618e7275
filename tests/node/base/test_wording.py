"""Times, speeds and help as people read them."""

import io
import sys
import time
from collections.abc import Iterator

import pytest

from crystal_node.base.wording import clock_time, iso
from crystal_node.surfaces.cli.app import flowing
from crystal_node.surfaces.cli.console.progress import progress_shown
from crystal_node.sync.progress import ProgressLines


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_people_read_times_of_their_own_clock_and_programs_read_utc() -> None:
    moment = 1_767_225_600_000
    assert iso(moment) == "2026-01-01T00:00:00.000Z"
    assert clock_time(moment) == "2026-01-01 09:00:00"
    assert clock_time(0) == clock_time(2**80) == ""


def test_the_time_between_two_transfers_is_no_part_of_the_second_ones_speed() -> None:
    told: list[str] = []
    clock = [0.0]
    pace = ProgressLines(told.append, lambda: clock[0])
    for seconds, done in ((0, 0), (3, 1024), (4, 2048), (300, 0), (303, 1024)):
        clock[0] = seconds
        pace("fetching files", done, 2048)
    assert told[-1] == "fetching files: 1.0 KiB of 2.0 KiB (50 %), 341 B/s, 3 s left"


def test_what_is_counted_has_its_unit_and_a_rate_over_the_whole() -> None:
    told: list[str] = []
    clock = [0.0]
    pace = ProgressLines(told.append, lambda: clock[0], unit="files")
    for seconds, done in ((0, 0), (4, 1000), (8, 4000)):
        clock[0] = seconds
        pace("notes", done, 10_000)
    assert told == [
        "notes: 1,000 of 10,000 files (10 %), 250/s, 36 s left",
        "notes: 4,000 of 10,000 files (40 %), 500/s, 12 s left",
    ]


def test_parts_of_one_whole_share_its_rate() -> None:
    told: list[str] = []
    clock = [0.0]
    pace = ProgressLines(told.append, lambda: clock[0], unit="files")
    for seconds, what, done in ((0, "notes", 0), (3, "notes", 300), (4, "code", 300), (10, "code", 1000)):
        clock[0] = seconds
        pace(what, done, 2000)
    assert told[-1] == "code: 1,000 of 2,000 files (50 %), 100/s, 10 s left"


def test_a_terminal_is_shown_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_shown("files") as progress:
        progress("notes", 3, 10)
    assert "notes" in shown.getvalue()
    assert "3/10" in shown.getvalue()


def test_a_paragraph_of_help_fills_the_terminal_and_an_example_stays_as_it_is() -> None:
    text = """Do it.

    It is done at
    once.

    Example:

        crystal do
        crystal do --again
    """
    assert (
        flowing(text) == "Do it.\n\nIt is done at once.\n\nExample:\n\n    crystal do\n    crystal do --again"
    )
