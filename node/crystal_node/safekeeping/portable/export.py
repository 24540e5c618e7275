"""``crystal export``: writes a memory as JSON lines and files, as of one moment, readable without Crystal.

Everything is written to a folder beside the target and flushed before it gets its name: a folder of that name is whole. It is
plain text, readable by its owner only, and holds neither forgotten texts nor keys.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct, json

from crystal_core.database import Database
from crystal_core.documents import document_pieces, documents, sources
from crystal_core.memories import memories
from crystal_core.messages import said_pieces
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, sync_directory
from crystal_node.base.wording import iso
from crystal_node.device.device import Device
from crystal_node.safekeeping.portable.export_format import (
    CONVERSATIONS,
    DOCUMENTS,
    FILES,
    FORMAT,
    MANIFEST,
    MEMORIES,
    SOURCES,
    VERSION,
    DocumentPieceRecord,
    DocumentRecord,
    ExportManifest,
    FileRecord,
    MemoryRecord,
    PartRecord,
    PieceRecord,
    SourceRecord,
)

_PAGE = 500
_BLOCK = 1024 * 1024

_PLACES = """
SELECT (SELECT count(*) FROM occurrences) + (SELECT count(*) FROM provisional_places WHERE category IS NULL AND path IS NULL)
"""
Progress = Callable[[str, int, int], None]
"""Called with the name of a file and the number of its lines so far."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The outcome: lines by file, files of the home, and those that this device does not have."""

    folder: Path
    lines: dict[str, int]
    files: int
    missing: tuple[str, ...] = field(default=())


def export(
    device: Device,
    target: Path,
    *,
    agent: str | None = None,
    since_ms: int | None = None,
    with_files: bool = True,
    progress: Progress = lambda _what, _done, _total: None,
) -> Exported:
    """Writes an export. ``agent`` and ``since_ms`` filter conversations only.

    Raises:
        UsageError: the target exists.
        LocalStorage: it cannot be written. Nothing is left behind.
        VaultDataError: the memory cannot be read.
    """
    target = target.absolute()
    if target.exists() or target.is_symlink():
        raise UsageError(
            f"there is something at {target} already", hint="Give a folder that does not exist yet."
        )
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=DIRECTORY_MODE)
        writing = _Writing(device, draft, progress)
        result = writing.all(target, agent, since_ms, with_files)
        draft.rename(target)
        sync_directory(target.parent)
        return result
    except OSError as error:
        raise LocalStorage(f"the export cannot be written: {error.strerror or error}: {target}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Writing:
    def __init__(self, device: Device, folder: Path, progress: Progress) -> None:
        self._device, self._folder, self._progress = device, folder, progress
        self._parts: dict[str, PartRecord] = {}

    def all(self, target: Path, agent: str | None, since_ms: int | None, with_files: bool) -> Exported:
        database = self._device.replica.database
        with database.snapshot():
            pieces = piece_records(database, agent=agent, since_ms=since_ms)
            whole = piece_count(database) if agent is None and since_ms is None else 0
            self._lines(CONVERSATIONS, pieces, whole)
            self._lines(MEMORIES, memory_records(database))
            self._lines(SOURCES, source_records(database))
            self._lines(DOCUMENTS, document_records(database))
        files = self._files() if with_files else []
        manifest = ExportManifest(
            format=FORMAT,
            version=VERSION,
            made_at=iso(now_ms()) or "",
            device=self._device.name,
            parts=self._parts,
            files=files,
        )
        self._write(MANIFEST, [json.format(json.encode(manifest), indent=2)])
        sync_directory(self._folder)
        missing = tuple(file.path for file in files if not file.sha256)
        lines = {name: part.lines for name, part in self._parts.items()}
        return Exported(target, lines, len(files) - len(missing), missing)

    def _lines(self, name: str, records: Iterable[Struct], whole: int = 0) -> None:
        """``whole``: about how many there are, 0 if that is not known."""
        count = 0

        def encoded() -> Iterable[bytes]:
            nonlocal count
            for record in records:
                count += 1
                if count % _PAGE == 0:
                    self._progress(name, count, max(whole, count) if whole else 0)
                yield json.encode(record)

        digest = self._write(name, encoded())
        self._parts[name] = PartRecord(lines=count, sha256=digest)
        self._progress(name, count, count)

    def _write(self, name: str, lines: Iterable[bytes]) -> str:
        digest = hashlib.sha256()
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            for line in lines:
                file.write(line + b"\n")
                digest.update(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _files(self) -> list[FileRecord]:
        """Copies the tree's files from the home; those that are not there (excluded, not fetched yet) are listed."""
        found: list[FileRecord] = []
        rows = [row for row in self._device.replica.files() if not row.gone]
        for row in rows:
            digest = self._copied(row.path)
            found.append(FileRecord(path=row.path, size=row.size, sha256=digest))
            self._progress(FILES, len(found), len(rows))
        return found

    def _copied(self, path: str) -> str:
        """Copies a file, never through a link. Returns its SHA-256; "" if there is no such file."""
        root = self._device.settings.home.root.resolve()
        try:
            if (root / path).resolve(strict=True) != root / path:
                return ""
            source = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        if not stat.S_ISREG(os.fstat(source).st_mode):
            os.close(source)
            return ""
        target = self._folder / FILES / path
        for folder in reversed(target.relative_to(self._folder).parents[:-1]):
            (self._folder / folder).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        digest = hashlib.sha256()
        with os.fdopen(source, "rb") as reading:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(descriptor, "wb") as writing:
                while block := reading.read(_BLOCK):
                    digest.update(block)
                    writing.write(block)
                writing.flush()
                os.fsync(writing.fileno())
        return digest.hexdigest()


def piece_count(database: Database) -> int:
    """How many records ``piece_records`` has, about: pending forgets are counted as well."""
    return int(database.value(_PLACES))


def piece_records(
    database: Database, *, agent: str | None = None, since_ms: int | None = None
) -> Iterator[PieceRecord]:
    """Yield all messages in the order in which they arrived. Belongs in a snapshot, as all of these do."""
    for piece in said_pieces(database, agent=agent, since_ms=since_ms):
        yield PieceRecord(**{name: getattr(piece, name) for name in PieceRecord.__struct_fields__})


def memory_records(database: Database) -> Iterator[MemoryRecord]:
    """Yield all memories, whatever their status."""
    ids = {
        bytes(keyed): bytes(content).hex()
        for keyed, content in database.rows(
            "SELECT c.forget_hash, c.id FROM memory_states s JOIN chunks c ON c.rowid = s.chunk"
        )
    }
    offset = 0
    while page := memories(database, status=None, limit=_PAGE, offset=offset):
        offset += len(page)
        for memory in page:
            yield MemoryRecord(
                text=memory.text,
                category=memory.category,
                confidence=memory.confidence,
                status=memory.status.value,
                superseded_by=ids.get(memory.superseded_by or b"", ""),
                agent=memory.agent,
                created_at=memory.created_at,
                scope=memory.scope,
            )


def source_records(database: Database) -> Iterator[SourceRecord]:
    """Yield all sources of documents."""
    for source in sources(database):
        yield SourceRecord(name=source.name, root=source.root, include=source.include, exclude=source.exclude)


def document_records(database: Database) -> Iterator[DocumentRecord]:
    """Yield all documents, source by source."""
    for source in sources(database):
        for document in documents(database, source.name):
            pieces: list[DocumentPieceRecord] = []
            first = 0
            while page := document_pieces(database, source.name, document.path, first=first):
                pieces += [DocumentPieceRecord(text=each.text, title=each.title) for each in page]
                first = page[-1].part + 1
            yield DocumentRecord(
                source=source.name,
                path=document.path,
                # A document between two versions matches no hash, so that a device with the file reads it again.
                version=document.version.hex() if document.complete else "0" * 64,
                kind=document.kind,
                modified_at=document.modified_at,
                pieces=tuple(pieces),
            )
