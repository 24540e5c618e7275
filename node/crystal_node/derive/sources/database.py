"""``state/sources.db``: what this device knows of its sources and of the files in them.

    source   where each source of this device is, how its folder is recognised, and how its last scan went
    file     each file as last read: its stamp, its digest, and what became of it

One SQLite file of paths, without texts. Losing it loses nothing: the vault has the version of each document, so that files are
read again and none is sent again. A damaged file is put aside; its sources are copied as far as they can be read.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw
import msgspec

from crystal_core.sqlite_file import SqliteFile, immediate
from crystal_node.base.decoding import from_json, from_msgpack
from crystal_node.base.errors import LocalStorage
from crystal_node.derive.sources.scan import SourceStamp

DAMAGED_SUFFIX = ".damaged"
SENT = ""
"""``became`` of a file whose text is in the memory; otherwise a value of ``Skipped``."""

_SCHEMA = """
CREATE TABLE source (name TEXT PRIMARY KEY, root TEXT NOT NULL, include TEXT NOT NULL, exclude TEXT NOT NULL,
                     device BLOB NOT NULL, inode BLOB NOT NULL, added INTEGER NOT NULL,
                     last BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE file (source TEXT NOT NULL REFERENCES source (name) ON DELETE CASCADE, path TEXT NOT NULL, size INTEGER NOT NULL,
                   modified_ns INTEGER NOT NULL, changed_ns INTEGER NOT NULL, inode BLOB NOT NULL, digest BLOB NOT NULL,
                   became TEXT NOT NULL, pieces INTEGER NOT NULL, redacted INTEGER NOT NULL,
                   PRIMARY KEY (source, path)) WITHOUT ROWID, STRICT;
"""


_FILE_COLUMNS = "path, size, modified_ns, changed_ns, inode, digest, became, pieces, redacted"


class _Damaged(Exception):
    """The file is damaged."""


_FILE = SqliteFile(
    application_id=0x4352_5953 + 0x0F,  # "CRYb"
    schema=_SCHEMA,
    busy_milliseconds=30_000,
    damaged=_Damaged,
    too_new=lambda text: LocalStorage(text, hint="Upgrade Crystal on this machine; nothing was changed."),
    synchronous="NORMAL",
)


class LastScan(msgspec.Struct, frozen=True, array_like=True):
    """The last scan of a source. ``waiting``: missing files whose removal a person has not confirmed."""

    at: int = 0
    complete: bool = False
    worked: int = 0
    """When a scan last found something to send."""
    problem: str = ""
    waiting: int = 0
    waiting_named: tuple[str, ...] = ()
    skipped: dict[str, int] = {}
    named: dict[str, str] = {}
    rules: int = 0
    """``FORM_RULES`` of the last complete scan: files that were read under others are read again."""
    redaction: int = 0
    """``RULES_VERSION`` of the last complete scan: titles are checked once under each."""


@dataclass(frozen=True, slots=True)
class KeptSource:
    """A source of this device."""

    name: str
    root: Path
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    device: int
    inode: int
    """Of the root at the last scan; 0 before the first."""
    added: int
    last: LastScan


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as last read. ``became``: see ``SENT``."""

    stamp: SourceStamp
    digest: bytes
    became: str
    pieces: int = 0
    redacted: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Of one source: files in the memory with their bytes and passages, and why others are not in it."""

    files: int
    bytes: int
    pieces: int
    redacted: int
    others: dict[str, int]


class SourceDatabase:
    """One thread at a time; any number of processes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        connection.execute("PRAGMA foreign_keys=ON")

    @classmethod
    def open(cls, path: Path | str) -> "SourceDatabase":
        """Opens or makes the file. Raises LocalStorage if a later version made it."""
        known: list[KeptSource] = []
        try:
            database = cls(_FILE.open(path))
            if database._is_sound():
                return database
            with suppress(apsw.Error, ValueError, msgspec.MsgspecError):
                known = database.sources()
            database.close()
        except _Damaged:
            pass
        damaged = Path(path)
        damaged.replace(damaged.with_name(damaged.name + DAMAGED_SUFFIX))
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                damaged.with_name(damaged.name + suffix).unlink()
        database = cls(_FILE.open(path))
        for source in known:
            database.put(source)
        return database

    def _is_sound(self) -> bool:
        """Damage in the middle of the file does not show on opening.

        Checks the whole file: some ten milliseconds for many files.
        """
        try:
            return bool(self._db.execute("PRAGMA quick_check(1)").get == "ok")
        except (apsw.CorruptError, apsw.NotADBError):
            return False

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "SourceDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sources(self) -> list[KeptSource]:
        rows = self._db.execute(
            "SELECT name, root, include, exclude, device, inode, added, last FROM source ORDER BY name"
        )
        return [
            KeptSource(
                name,
                Path(root),
                tuple(from_json(include, list[str])),
                tuple(from_json(exclude, list[str])),
                int.from_bytes(device),
                int.from_bytes(inode),
                added,
                from_msgpack(last, LastScan),
            )
            for name, root, include, exclude, device, inode, added, last in rows
        ]

    def source(self, name: str) -> KeptSource | None:
        return next((source for source in self.sources() if source.name == name), None)

    def put(self, source: KeptSource) -> None:
        """Adds a source, or changes what is known of it. Its files stay."""
        values = (
            str(source.root),
            msgspec.json.encode(source.include).decode(),
            msgspec.json.encode(source.exclude).decode(),
            _number(source.device),
            _number(source.inode),
            source.added,
            msgspec.msgpack.encode(source.last),
        )
        with immediate(self._db):
            self._db.execute(
                "INSERT INTO source (name, root, include, exclude, device, inode, added, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET root = excluded.root, include = excluded.include,"
                " exclude = excluded.exclude, device = excluded.device, inode = excluded.inode, added = excluded.added,"
                " last = excluded.last",
                (source.name, *values),
            )

    def remove(self, name: str) -> None:
        with immediate(self._db):
            self._db.execute("DELETE FROM source WHERE name = ?", (name,))

    def files(self, name: str) -> dict[str, KnownFile]:
        """All files of a source, by path."""
        return {
            path: KnownFile(
                SourceStamp(size, modified, changed, int.from_bytes(inode)), digest, became, pieces, redacted
            )
            for path, size, modified, changed, inode, digest, became, pieces, redacted in self._db.execute(
                f"SELECT {_FILE_COLUMNS} FROM file WHERE source = ?",  # noqa: S608 - names of ours
                (name,),
            )
        }

    def note(self, name: str, read: Iterable[tuple[str, KnownFile]] = (), gone: Iterable[str] = ()) -> None:
        """Stores files that were read and removes those gone, in one transaction. No effect on a removed source."""
        with immediate(self._db):
            if not self._db.execute("SELECT 1 FROM source WHERE name = ?", (name,)).fetchone():
                return
            self._db.executemany(
                f"INSERT OR REPLACE INTO file (source, {_FILE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (
                    (
                        name,
                        path,
                        known.stamp.size,
                        known.stamp.modified_ns,
                        known.stamp.changed_ns,
                        _number(known.stamp.inode),
                        known.digest,
                        known.became,
                        known.pieces,
                        known.redacted,
                    )
                    for path, known in read
                ),
            )
            self._db.executemany(
                "DELETE FROM file WHERE source = ? AND path = ?", ((name, path) for path in gone)
            )

    def not_taken(self, name: str, limit: int) -> list[tuple[str, str]]:
        """Files that were opened and skipped, with the reason."""
        rows = self._db.execute(
            "SELECT path, became FROM file WHERE source = ? AND became <> ? ORDER BY path LIMIT ?",
            (name, SENT, limit),
        )
        return [(str(path), str(became)) for path, became in rows]

    def totals(self, name: str) -> Totals:
        files = size = pieces = redacted = 0
        others: dict[str, int] = {}
        for became, count, sizes, parts, secrets in self._db.execute(
            "SELECT became, count(*), total(max(size, 0)), total(pieces), total(redacted) FROM file WHERE source = ?"
            " GROUP BY became",
            (name,),
        ):
            if became == SENT:
                files, size, pieces, redacted = count, int(sizes), int(parts), int(secrets)
            else:
                others[became] = count
        return Totals(files, size, pieces, redacted, others)


def _number(value: int) -> bytes:
    """Inodes may have 64 bits, without a sign."""
    return value.to_bytes(8) if value < 2**64 else value.to_bytes(16)
