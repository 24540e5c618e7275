"""Copies of a home's databases as of one moment, while other processes go on writing to them.

All snapshots are taken first and then copied, so that they are at most a few milliseconds apart. Their order is that of their
dependencies: what is known of files, works and dreams is older than the journal, and the journal is older than the memory. So
an operation that has just left the outbox is in the memory's copy; one that is in both counts once, by its name.

A copy is one file without a log beside it, and so can be read without being changed. That of an encrypted database is encrypted
with the same key, and the markers that name the key come along.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_core.encryption import MARKER_NAME, connect
from crystal_core.sqlite_file import open_read_only
from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import FILE_MODE, Home
from crystal_node.safekeeping.file_copy import Meter

MEMORY = "memory/crystal.db"
"""The memory's place in a backup, wherever ``CRYSTAL_DATA_DIR`` has put it."""
JOURNAL = "state/state.db"
FILES = "state/files.db"
WORKS = "state/works.db"
WEAVER = "state/weaver.db"

PAGES_A_STEP = 1024
BUSY_TIMEOUT_MS = 30_000


def database_paths(home: Home) -> dict[str, Path]:
    """The path of each database of a home by its place in a backup, in the order of the snapshots."""
    return {
        FILES: home.files_database,
        WORKS: home.works_database,
        WEAVER: home.weaver_database,
        "state/sources.db": home.sources_database,
        "state/jobs.db": home.jobs_database,
        "state/commands.db": home.commands_database,
        JOURNAL: home.state_database,
        MEMORY: home.database,
    }


def marker_paths(home: Home) -> dict[str, Path]:
    """The markers of encrypted databases, in the same way. A home without encryption has none."""
    return {
        f"state/{MARKER_NAME}": home.state / MARKER_NAME,
        f"memory/{MARKER_NAME}": home.database.parent / MARKER_NAME,
    }


@dataclass
class DatabaseSnapshot:
    """A read transaction on one database."""

    place: str
    path: Path
    connection: apsw.Connection

    @property
    def bytes(self) -> int:
        pages, page = (
            int(self.connection.execute(f"PRAGMA {name}").get) for name in ("page_count", "page_size")
        )
        return pages * page


@contextmanager
def snapshots(home: Home) -> Generator[list[DatabaseSnapshot]]:
    """Snapshots of all databases that this home has. Databases in WAL mode keep no writer waiting."""
    taken: list[DatabaseSnapshot] = []
    try:
        for place, path in database_paths(home).items():
            if path.exists():
                with _named(path):
                    connection = open_read_only(path, busy_milliseconds=BUSY_TIMEOUT_MS)
                    taken.append(DatabaseSnapshot(place, path, connection))
        for snapshot in taken:
            with _named(snapshot.path):
                snapshot.connection.execute("BEGIN")
                snapshot.connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        yield taken
    finally:
        for snapshot in taken:
            snapshot.connection.close()


def copy_database(snapshot: DatabaseSnapshot, target: Path, meter: Meter) -> None:
    """Writes the snapshot to a new file, and ends it."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    copy = connect(target)
    try:
        # An encrypted database is copied page by page to another one: both need the same size of page.
        copy.execute(f"PRAGMA page_size = {int(snapshot.connection.execute('PRAGMA page_size').get)}")
        # Fast and not durable: the copy is flushed as a whole at the end, and is worthless before.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = OFF", "synchronous = OFF"):
            copy.execute(f"PRAGMA {setting}")
        page = int(snapshot.connection.execute("PRAGMA page_size").get)
        with _named(snapshot.path), copy.backup("main", snapshot.connection, "main") as backup:
            while not backup.done:
                backup.step(PAGES_A_STEP)
                meter.add(PAGES_A_STEP * page)
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
        with suppress(apsw.Error):
            snapshot.connection.execute("ROLLBACK")


@contextmanager
def _named(path: Path) -> Generator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise LocalStorage(
            f"{path} is damaged, and was not backed up: {error}",
            hint="`crystal doctor` and `crystal repair` look after it. Backups that were made before are untouched.",
        ) from error
