"""The thread that commits: sharing commits, and keeping one write's failure to itself."""

from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from crystal_relay.errors import AlreadyExists, Closed, StoreFull, StoreUnavailable
from crystal_relay.local.database import open_for_writing
from crystal_relay.local.disk_space import DiskSpace
from crystal_relay.local.writer import GROUP_BYTES_MAX, Results, RowChange, RowWriter, Write, WriteOutcome


class Commits:
    """A writer over a real database, what it reported, and a way to hold it up so that writes gather."""

    def __init__(self, path: Path) -> None:
        self._directory = path.parent
        self.connection = open_for_writing(path)
        self.count = 0
        self.connection.set_commit_hook(self._count)
        self.outcomes: dict[str, WriteOutcome] = {}
        self.groups: list[int] = []
        """Bytes of each commit that was reported."""

    def run(self, *writes: tuple[RowChange, str, bytes | None, str | None]) -> None:
        """Queue all of them at once, commit, close."""
        writer = RowWriter(self.connection, DiskSpace(self._directory), self._note)
        for change, key, body, file in writes:
            size = len(body) if body is not None else 7
            writer.submit(Write(change, key, size, body, file))
        writer.close()
        with pytest.raises(Closed):
            writer.submit(Write(RowChange.DELETE, "x", 0, None, None))

    def _note(self, results: Results) -> None:
        self.groups.append(sum(write.weight for write, _ in results))
        for write, outcome in results:
            self.outcomes[write.key] = outcome

    def _count(self) -> bool:
        self.count += 1
        return False


@pytest.fixture
def commits(tmp_path: Path) -> Generator[Commits]:
    made = Commits(tmp_path / "objects.db")
    yield made
    made.connection.close()


def keys_in(path: Path) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        return str(connection.execute("SELECT group_concat(key, ' ' ORDER BY id) FROM object").get).split()
    finally:
        connection.close()


def test_writes_that_wait_together_share_commits(commits: Commits, tmp_path: Path) -> None:
    commits.run(*((RowChange.CREATE, f"k{number}", b"x" * 1000, None) for number in range(1000)))
    assert len(keys_in(tmp_path / "objects.db")) == 1000
    assert commits.count < 100
    assert all(outcome.error is None for outcome in commits.outcomes.values())


def test_one_commit_is_bounded_whatever_comes_at_once(commits: Commits) -> None:
    """The log grows with the largest commit, and the reserve for a full disk counts on its size."""
    commits.run(*((RowChange.CREATE, f"k{number}", bytes(100_000), None) for number in range(300)))
    assert sum(commits.groups) == 300 * 100_000
    assert max(commits.groups) <= 2 * GROUP_BYTES_MAX
    assert all(outcome.error is None for outcome in commits.outcomes.values())


def test_a_write_that_fails_takes_no_others_with_it(commits: Commits, tmp_path: Path) -> None:
    """Those that shared its commit are tried again alone."""
    commits.connection.execute(
        "CREATE TEMP TRIGGER refuse BEFORE INSERT ON object WHEN NEW.key = 'bad'"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    commits.run(*((RowChange.CREATE, key, b"x", None) for key in ("a", "b", "bad", "c", "d")))
    assert keys_in(tmp_path / "objects.db") == ["a", "b", "c", "d"]
    assert isinstance(commits.outcomes["bad"].error, StoreUnavailable)
    assert [commits.outcomes[key].error for key in "abcd"] == [None] * 4


def test_a_write_that_does_not_fit_takes_no_others_with_it(commits: Commits, tmp_path: Path) -> None:
    commits.connection.pragma("max_page_count", 40)
    commits.run(
        (RowChange.CREATE, "a", b"x", None),
        (RowChange.CREATE, "huge", b"x" * 1_000_000, None),
        (RowChange.CREATE, "b", b"x", None),
    )
    assert keys_in(tmp_path / "objects.db") == ["a", "b"]
    assert isinstance(commits.outcomes["huge"].error, StoreFull)


@pytest.mark.parametrize(
    ("change", "body", "file", "error", "unused"),
    [
        (RowChange.CREATE, None, "new", AlreadyExists, "new"),
        (RowChange.CREATE, b"x", None, AlreadyExists, None),
        (RowChange.REPLACE, None, "new", None, "old"),
        (RowChange.REPLACE, b"x", None, None, "old"),
        (RowChange.DELETE, None, None, None, "old"),
    ],
)
def test_what_becomes_of_files(
    tmp_path: Path,
    change: RowChange,
    body: bytes | None,
    file: str | None,
    error: type[Exception] | None,
    unused: str | None,
) -> None:
    path = tmp_path / "objects.db"
    Commits(path).run((RowChange.CREATE, "k", None, "old"))
    second = Commits(path)
    second.run((change, "k", body, file))
    outcome = second.outcomes["k"]
    assert (type(outcome.error) if outcome.error else None, outcome.unused) == (error, unused)


def test_after_a_failure_whose_outcome_is_unknown_the_file_stays(commits: Commits) -> None:
    """A crash could bring the row back with the log; the next start's sweep knows."""
    commits.connection.execute(
        "CREATE TEMP TRIGGER refuse BEFORE INSERT ON object BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    commits.run((RowChange.CREATE, "k", None, "new"))
    assert isinstance(commits.outcomes["k"].error, StoreUnavailable)
    assert commits.outcomes["k"].unused is None
