"""``state/files.db``: what this device knows about its files.

    seen      each file as it was last read: stamp, content, and its parts with their places
    agreed    the version at which the file was last equal here and in the tree
    offers    changes offered to the Core that it has not ordered yet
    withheld  deletions that wait for a person, or that a person has confirmed
    deleted   when how much was deleted, for the fuse
    meta      the report of the last round, for people who ask later; the files whose execute bit was not set here

One SQLite file (apsw, WAL). ``seen`` need not survive a power failure; all else is durable when a call returns. Losing the
database loses no file: files that equal the tree are adopted again, others are kept on both sides. A damaged one is set aside.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import apsw
import msgspec

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_crypto.errors import UNDECODABLE
from crystal_mirror.file_paths import folded
from crystal_mirror.files.ports import FileOffer, FileStamp, LocalFile, PartPlace, SeenFile
from crystal_mirror.files.tree import FUSE_WINDOW_MILLISECONDS, AgreedFile, DeletionDirection, FileContent
from crystal_mirror.operations import FilePart
from crystal_mirror.types import HASH_BYTES, Origin
from crystal_node.base.decoding import from_msgpack

BUSY_TIMEOUT_MS = 10_000
PLACES_MAX = 4
DAMAGED_SUFFIX = ".damaged"

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE seen (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folded TEXT NOT NULL, size INTEGER NOT NULL,
                   modified_ns INTEGER NOT NULL, inode BLOB NOT NULL, changed_ns INTEGER NOT NULL,
                   executable INTEGER NOT NULL, quiet INTEGER NOT NULL, digest BLOB NOT NULL) STRICT;
CREATE INDEX seen_by_folded ON seen (folded);
CREATE TABLE parts (file INTEGER NOT NULL REFERENCES seen (id) ON DELETE CASCADE, number INTEGER NOT NULL,
                    start INTEGER NOT NULL, length INTEGER NOT NULL, content BLOB NOT NULL,
                    PRIMARY KEY (file, number)) WITHOUT ROWID, STRICT;
CREATE INDEX parts_by_content ON parts (content);
CREATE TABLE agreed (path TEXT PRIMARY KEY, device BLOB NOT NULL, incarnation BLOB NOT NULL, sequence INTEGER NOT NULL,
                     digest BLOB NOT NULL, executable INTEGER NOT NULL, aside INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE offers (path TEXT PRIMARY KEY, device BLOB NOT NULL, incarnation BLOB NOT NULL, sequence INTEGER NOT NULL,
                     digest BLOB, executable INTEGER NOT NULL, names BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE withheld (path TEXT NOT NULL, direction TEXT NOT NULL, confirmed INTEGER NOT NULL,
                       PRIMARY KEY (path, direction)) WITHOUT ROWID, STRICT;
CREATE TABLE deleted (id INTEGER PRIMARY KEY, direction TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
"""
_FILE = SqliteFile(
    application_id=0x4352_5946,  # "CRYF"
    schema=_SCHEMA,
    busy_milliseconds=BUSY_TIMEOUT_MS,
    damaged=apsw.CorruptError,
    too_new=apsw.CorruptError,
    remake=True,  # another version's content can all be found out again
)

_BIT, _BIT_END = "bit:", "bit;"
"""Before the paths of files whose execute bit was not set here, in ``meta``."""

_SEEN = "SELECT path, size, modified_ns, inode, changed_ns, executable, quiet, digest FROM seen"
_AGREED = "SELECT path, device, incarnation, sequence, digest, executable, aside FROM agreed"


class FileDatabase:
    """The open database. For one thread at a time, and any number of processes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path | str) -> "FileDatabase":
        """Opens or creates the file. One that cannot be read is set aside and replaced by an empty one."""
        try:
            return cls(_FILE.open(path))
        except (apsw.NotADBError, apsw.CorruptError):
            damaged = Path(path)
            damaged.replace(damaged.with_name(damaged.name + DAMAGED_SUFFIX))
            for suffix in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    damaged.with_name(damaged.name + suffix).unlink()
            return cls(_FILE.open(path))

    def close(self) -> None:
        self._db.close()

    def forget_everything(self) -> None:
        """Forgets all files, offers included: their outcome is found out again by content."""
        with self._transaction():
            for table in ("parts", "seen", "agreed", "offers", "withheld", "meta"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own

    def seen(self) -> Iterator[SeenFile]:
        for row in self._db.execute(f"{_SEEN} ORDER BY path"):
            yield _seen(row)

    def seen_at(self, path: str) -> SeenFile | None:
        row = self._db.execute(f"{_SEEN} WHERE path = ?", (path,)).fetchone()
        return None if row is None else _seen(row)

    def parts_of(self, path: str) -> list[FilePart]:
        rows = self._db.execute(
            "SELECT content, length FROM parts WHERE file = (SELECT id FROM seen WHERE path = ?) ORDER BY number",
            (path,),
        )
        return [FilePart(content, length) for content, length in rows]

    def note_seen(self, *read: tuple[SeenFile, Sequence[FilePart]]) -> None:
        if not read:
            return
        with self._transaction(durable=False):
            for seen, parts in read:
                self._note(seen, parts)

    def forget_seen(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        if paths:
            with self._transaction(durable=False):
                for path in paths:
                    self._forget(path)

    def places(self, content: bytes) -> list[PartPlace]:
        rows = self._db.execute(
            "SELECT path, start, length FROM parts JOIN seen ON id = file WHERE content = ? LIMIT ?",
            (content, PLACES_MAX),
        )
        return [PartPlace(*row) for row in rows]

    def spelled_otherwise(self, path: str) -> str | None:
        rows = self._db.execute(
            "SELECT path FROM seen WHERE folded = ? AND path <> ? LIMIT 1", (folded(path), path)
        )
        row = rows.fetchone()
        return None if row is None else str(row[0])

    def agreed(self) -> Iterator[AgreedFile]:
        for row in self._db.execute(f"{_AGREED} ORDER BY path"):
            yield _agreed(row)

    def agreed_at(self, path: str) -> AgreedFile | None:
        row = self._db.execute(f"{_AGREED} WHERE path = ?", (path,)).fetchone()
        return None if row is None else _agreed(row)

    def agreed_count(self) -> int:
        return self._count("SELECT count(*) FROM agreed")

    def aside_count(self) -> int:
        return self._count("SELECT count(*) FROM agreed WHERE aside = 1")

    def set_agreed(self, *agreed: AgreedFile) -> None:
        if not agreed:
            return
        with self._transaction():
            for one in agreed:
                content = one.content
                self._db.execute(
                    "INSERT OR REPLACE INTO agreed VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (one.path, *one.version, content.digest, int(content.executable), int(one.aside)),
                )
                self._db.execute("DELETE FROM offers WHERE path = ?", (one.path,))

    def drop_agreed(self, path: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM agreed WHERE path = ?", (path,))
            self._db.execute("DELETE FROM offers WHERE path = ?", (path,))
            self._db.execute("DELETE FROM meta WHERE name = ?", (_BIT + path,))

    def offers(self) -> list[FileOffer]:
        found: list[FileOffer] = []
        for path, device, incarnation, sequence, digest, executable, names in self._db.execute(
            "SELECT path, device, incarnation, sequence, digest, executable, names FROM offers ORDER BY path"
        ):
            content = None if digest is None else FileContent(digest, bool(executable))
            split = tuple(names[at : at + HASH_BYTES] for at in range(0, len(names), HASH_BYTES))
            found.append(FileOffer(path, Origin(device, incarnation, sequence), content, split))
        return found

    def add_offers(self, offers: Sequence[FileOffer]) -> None:
        with self._transaction():
            for offer in offers:
                digest = None if offer.content is None else offer.content.digest
                executable = int(offer.content is not None and offer.content.executable)
                self._db.execute(
                    "INSERT OR REPLACE INTO offers VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (offer.path, *offer.origin, digest, executable, b"".join(offer.names)),
                )

    def end_offer(self, path: str) -> None:
        self._db.execute("DELETE FROM offers WHERE path = ?", (path,))

    def confirmed(self) -> frozenset[tuple[str, DeletionDirection]]:
        return frozenset(self._withheld(1))

    def waiting(self) -> list[tuple[str, DeletionDirection]]:
        """Deletions that are not confirmed yet."""
        return self._withheld(0)

    def withhold(
        self,
        asked: Sequence[tuple[str, DeletionDirection]],
        confirmed: Sequence[tuple[str, DeletionDirection]],
    ) -> None:
        if not asked and not confirmed and not self._count("SELECT count(*) FROM withheld"):
            return
        with self._transaction():
            self._db.execute("DELETE FROM withheld")
            for rows, mark in ((asked, 0), (confirmed, 1)):
                self._db.executemany(
                    "INSERT OR REPLACE INTO withheld VALUES (?, ?, ?)",
                    [(path, direction.value, mark) for path, direction in rows],
                )

    def confirm(self) -> int:
        """Confirms every deletion that waits. Returns how many."""
        with self._transaction():
            self._db.execute("UPDATE withheld SET confirmed = 1 WHERE confirmed = 0")
            return self._db.changes()

    def keep(self) -> int:
        """Cancels every deletion that waits, as if these files had never been agreed upon. Returns how many."""
        with self._transaction():
            self._db.execute(
                "DELETE FROM agreed WHERE path IN (SELECT path FROM withheld WHERE confirmed = 0)"
            )
            self._db.execute("DELETE FROM withheld WHERE confirmed = 0")
            return self._db.changes()

    def deleted_lately(self, now_ms: int) -> dict[DeletionDirection, int]:
        rows = self._db.execute(
            "SELECT direction, count(*) FROM deleted WHERE at > ? AND at <= ? GROUP BY direction",
            (now_ms - FUSE_WINDOW_MILLISECONDS, now_ms),
        )
        return {DeletionDirection(direction): int(count) for direction, count in rows}

    def note_deleted(self, path: str, direction: DeletionDirection, now_ms: int) -> None:
        with self._transaction():
            self._db.execute(
                "DELETE FROM deleted WHERE at <= ? OR at > ?", (now_ms - FUSE_WINDOW_MILLISECONDS, now_ms)
            )
            self._db.execute("DELETE FROM withheld WHERE path = ? AND direction = ?", (path, direction.value))
            if not self._db.changes():  # a confirmed deletion does not count towards the fuse
                self._db.execute(
                    "INSERT INTO deleted (direction, at) VALUES (?, ?)", (direction.value, now_ms)
                )

    def meta_get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def meta_set(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._db.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def bits_withheld(self, path: str = "") -> frozenset[str]:
        """Files that are executable in the tree and not here, of all or of one path."""
        rows = self._db.execute(
            "SELECT name FROM meta WHERE name = ?1 OR (?2 AND name >= ?1 AND name < ?3)",
            (_BIT + path, not path, _BIT_END),
        )
        return frozenset(name[len(_BIT) :] for (name,) in rows)

    def withhold_bit(self, path: str, *, withheld: bool) -> None:
        """Notes that a file is executable in the tree and not here, or that it is not so any more."""
        if withheld or self.bits_withheld(path):
            self.meta_set(_BIT + path, b"" if withheld else None)

    def _withheld(self, mark: int) -> list[tuple[str, DeletionDirection]]:
        rows = self._db.execute(
            "SELECT path, direction FROM withheld WHERE confirmed = ? ORDER BY direction, path", (mark,)
        )
        return [(path, DeletionDirection(direction)) for path, direction in rows]

    def _note(self, seen: SeenFile, parts: Sequence[FilePart]) -> None:
        local = seen.local
        self._db.execute(
            "UPDATE seen SET size = ?, modified_ns = ?, inode = ?, changed_ns = ?, executable = ?, quiet = ?"
            " WHERE path = ? AND digest = ?",
            (*_stamped(seen), local.path, seen.digest),
        )
        if self._db.changes():  # the same parts at the same places
            return
        self._forget(local.path)
        self._db.execute(
            "INSERT INTO seen (path, folded, size, modified_ns, inode, changed_ns, executable, quiet, digest)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                local.path,
                folded(local.path),
                *_stamped(seen),
                seen.digest,
            ),
        )
        self._db.executemany(
            "INSERT INTO parts (file, number, start, length, content) VALUES (?, ?, ?, ?, ?)",
            list(_numbered(self._db.last_insert_rowid(), parts)),
        )

    def _forget(self, path: str) -> None:
        self._db.execute("DELETE FROM parts WHERE file = (SELECT id FROM seen WHERE path = ?)", (path,))
        self._db.execute("DELETE FROM seen WHERE path = ?", (path,))

    def _count(self, query: str) -> int:
        row = self._db.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Generator[None]:
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        try:
            with immediate(self._db):
                yield
        finally:
            self._db.execute("PRAGMA synchronous=FULL")


def _seen(row: Sequence[Any]) -> SeenFile:
    path, size, modified_ns, inode, changed_ns, executable, quiet, digest = row
    stamp = FileStamp(size, modified_ns, int.from_bytes(inode, "big", signed=True), changed_ns)
    return SeenFile(LocalFile(path, stamp, bool(executable), bool(quiet)), digest)


def _stamped(seen: SeenFile) -> tuple[int, int, bytes, int, int, int]:
    local, stamp = seen.local, seen.local.stamp
    inode = stamp.inode.to_bytes(16, "big", signed=True)
    return stamp.size, stamp.modified_ns, inode, stamp.changed_ns, int(local.executable), int(local.quiet)


def _agreed(row: Sequence[Any]) -> AgreedFile:
    path, device, incarnation, sequence, digest, executable, aside = row
    content = FileContent(digest, bool(executable))
    return AgreedFile(path, Origin(device, incarnation, sequence), content, bool(aside))


def _numbered(file: int, parts: Sequence[FilePart]) -> Iterator[tuple[int, int, int, int, bytes]]:
    start = 0
    for number, part in enumerate(parts):
        yield file, number, start, part.length, part.content
        start += part.length


META_REPORT = "report"


class StoredReport(msgspec.Struct, frozen=True):
    """What the last round of files left to report. ``at``: its time in milliseconds since 1970, up to ten minutes too early if
    several rounds left the same."""

    at: int = 0
    halted: str = ""
    waiting: int = 0
    busy: tuple[str, ...] = ()
    lacking: dict[str, str] = {}
    refused: dict[str, str] = {}
    refused_count: Annotated[int, msgspec.Meta(ge=0)] = 0


def stored_report(database: FileDatabase) -> StoredReport:
    """The report of the last round; an empty one where there is none that this version can read."""
    data = database.meta_get(META_REPORT)
    try:
        return from_msgpack(data, StoredReport) if data else StoredReport()
    except UNDECODABLE:
        return StoredReport()
