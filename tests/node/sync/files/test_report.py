"""The report of a round of files is written when it has changed, and every ten minutes."""

from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_mirror.files.shared import FilesReport
from crystal_node.sync.files import rounds
from crystal_node.sync.files.database import FileDatabase, stored_report


@pytest.fixture
def database(tmp_path: Path) -> Generator[FileDatabase]:
    opened = FileDatabase.open(tmp_path / "files.db")
    yield opened
    opened.close()


def test_the_same_report_is_written_once_in_ten_minutes_and_another_at_once(
    database: FileDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reported(at: int, waiting: int) -> tuple[int, int]:
        monkeypatch.setattr(rounds, "now_ms", lambda: at)
        rounds.keep_report(database, FilesReport(waiting=waiting), scanned=True)
        kept = stored_report(database)
        return kept.at, kept.waiting

    began = 1_800_000_000_000
    assert reported(began, 0) == (began, 0)
    assert reported(began + 1000, 0) == (began, 0)
    assert reported(began + 2000, 3) == (began + 2000, 3)
    assert reported(began + 2000 + rounds.REPORTED_MS - 1, 3) == (began + 2000, 3)
    late = began + 2000 + rounds.REPORTED_MS
    assert reported(late, 3) == (late, 3)
    assert reported(late - 5000, 3) == (late - 5000, 3), "the clock was set back"
