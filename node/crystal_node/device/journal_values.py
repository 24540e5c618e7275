"""Single named values of a journal, read without opening it for writing: by commands that load nothing of the protocol."""

from pathlib import Path

import apsw

from crystal_core.sqlite_file import open_read_only

META_NEWS = "news.waiting"
"""Journal value: news of the vault that nobody was shown yet (`sync.members.news`)."""


def journal_path(home: str) -> Path:
    """Where the journal of a home is, as ``Home.state_database`` has it."""
    return Path(home, "state", "state.db")


def peek(path: Path, name: str) -> bytes | None:
    """A named value of a journal, without opening it for writing; None if it cannot be read."""
    try:
        db = open_read_only(path)
    except apsw.CantOpenError:
        return None
    try:
        row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    except apsw.Error:  # damaged: the process that opens it for writing reports that
        return None
    finally:
        db.close()
    return row[0] if row else None
