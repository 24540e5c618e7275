"""Copies of the memory that a schema migration, a restore or a killed encryption left beside it. They are deleted after a week.

They hold what was in the memory when they were made, forgotten texts included; a week is time enough to go back.
"""

from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.home import Home

KEPT_MS = 7 * 24 * 3600 * 1000
BEFORE = ".before-"
"""In the name of a database that a restore replaced, before the time."""
REWRITING = ".rewriting"
"""At the end of the name of a database's copy, while it is encrypted or decrypted."""
_MARKS = (".schema-", BEFORE, REWRITING)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A copy. ``until``: when it is deleted, in milliseconds."""

    path: Path
    until: int


def leftovers(home: Home) -> list[Leftover]:
    """The copies beside this home's memory."""
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
    """Deletes the copies that are due by this machine's clock. Returns them."""
    due = [each.path for each in leftovers(home) if each.until <= now_ms]
    for path in due:
        path.unlink(missing_ok=True)
    return due
