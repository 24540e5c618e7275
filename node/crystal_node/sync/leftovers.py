"""Copies of the memory that a change of its format or a restore has left beside it: they go after a week.

They hold what was in the memory when they were made, and nobody forgets in them. A week is time enough to go back.
"""

from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.home import Home

KEPT_MS = 7 * 24 * 3600 * 1000
BEFORE = ".before-"
"""In the name of a database that a restore has replaced; the rest is when."""
_MARKS = (".schema-", BEFORE)


@dataclass(frozen=True, slots=True)
class Leftover:
    """``until``: when it goes, in milliseconds."""

    path: Path
    until: int


def leftovers(home: Home) -> list[Leftover]:
    """Those that are there."""
    database = home.database
    return sorted(
        (
            Leftover(path, path.stat().st_mtime_ns // 1_000_000 + KEPT_MS)
            for path in database.parent.glob(f"{database.name}.*")
            if path.is_file() and path.name.removeprefix(database.name).startswith(_MARKS)
        ),
        key=lambda each: each.path,
    )


def tidy_leftovers(home: Home, now_ms: int) -> list[Path]:
    """Deletes those whose time has come, by this machine's clock. Returns them."""
    due = [each.path for each in leftovers(home) if each.until <= now_ms]
    for path in due:
        path.unlink(missing_ok=True)
    return due
