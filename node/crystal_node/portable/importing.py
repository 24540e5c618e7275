"""``crystal import``: an export comes into this vault, through this device, as if it had been recorded here.

Everything is read and compared with the manifest before anything is taken. A file of the home that is another one here stays
as it is, and the imported one is put beside it.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError, json

from crystal_core.documents import document, sources
from crystal_crypto.errors import CrystalError
from crystal_mirror.files.names import check_path
from crystal_mirror.operations import PIECES_MAX, PutDocument, PutSource
from crystal_node.capture.gathering import OPERATION_TEXT_BYTES, PIECE_BYTES_BESIDE_TEXT
from crystal_node.clock import now_ms
from crystal_node.device import Device
from crystal_node.errors import LocalStorage, Usage
from crystal_node.home import DIRECTORY_MODE, write_private
from crystal_node.portable.records import (
    CONVERSATIONS,
    DOCUMENTS,
    FILES,
    FORMAT,
    LINE_BYTES_MAX,
    MANIFEST,
    MANIFEST_BYTES_MAX,
    MEMORIES,
    SOURCES,
    VERSION,
    DocumentRecord,
    FileRecord,
    Manifest,
    MemoryRecord,
    PieceRecord,
    SourceRecord,
)
from crystal_node.portable.taking import Taken, Taker

_PARTS = (CONVERSATIONS, MEMORIES, SOURCES, DOCUMENTS)
_BLOCK = 1024 * 1024

Record = TypeVar("Record", bound=Struct)
Progress = Callable[[str, int], None]


class DamagedExport(Usage):
    """It is not, or no longer, what was exported."""

    hint = "Nothing was taken. Export again, or take another copy."


@dataclass
class Imported:
    """What came of it. ``files``: put into the home; ``beside``: under another name, since another file was there."""

    taken: Taken
    documents: int = 0
    documents_known: int = 0
    sources_elsewhere: list[str] = field(default_factory=list[str])
    files: int = 0
    files_known: int = 0
    beside: list[str] = field(default_factory=list[str])
    missing: int = 0


def import_export(
    device: Device,
    folder: Path,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _what, _count: None,
) -> Imported:
    """Takes an export in. Run again it goes on, and doubles nothing.

    Raises:
        DamagedExport: a file is missing, differs from the manifest, or holds what no export holds. Nothing was taken.
        PrivateNow, LocalStorage, JournalDamaged, VaultDataError: what was taken before stays.
    """
    manifest = _manifest(folder)
    _check(folder, manifest, progress)
    taker = Taker(device, dry_run=dry_run, progress=lambda count: progress(CONVERSATIONS, count))
    work = _Import(device, folder, taker, dry_run)
    taker.pieces(_records(folder / CONVERSATIONS, PieceRecord))
    taker.memories(_records(folder / MEMORIES, MemoryRecord))
    work.documents()
    work.files(manifest.files)
    return work.result


class _Import:
    def __init__(self, device: Device, folder: Path, taker: Taker, dry_run: bool) -> None:
        self._device, self._folder, self._taker, self._dry_run = device, folder, taker, dry_run
        self.result = Imported(taker.taken)

    def documents(self) -> None:
        """Sources that another device of this vault reads in stay its own: their documents come from there."""
        database, own = self._device.replica.database, self._device.identity.id
        before = {source.name: source for source in sources(database)}
        mine: set[str] = set()
        for record in _records(self._folder / SOURCES, SourceRecord):
            known = before.get(record.name)
            if known is not None and known.device != own:
                self.result.sources_elsewhere.append(record.name)
                continue
            mine.add(record.name)
            if known is None:
                self._taker.other(
                    PutSource(record.name, record.root, record.include, record.exclude, now_ms())
                )
        for found in _records(self._folder / DOCUMENTS, DocumentRecord):
            if found.source not in mine:
                continue
            stands = document(database, found.source, found.path) if found.source in before else None
            if stands is not None and stands.version.hex() == found.version and stands.complete:
                self.result.documents_known += 1
                continue
            self.result.documents += 1
            for operation in _put(found):
                self._taker.other(operation)
        self._taker.flush()

    def files(self, records: list[FileRecord]) -> None:
        for record in records:
            if not record.sha256:
                self.result.missing += 1
                continue
            target = self._device.settings.home.root / record.path
            there = _digest(target) if target.is_file() and not target.is_symlink() else ""
            if there == record.sha256:
                self.result.files_known += 1
                continue
            if there or target.is_symlink() or target.exists():
                target = target.with_name(f"{target.stem} (imported {record.sha256[:8]}){target.suffix}")
                if target.exists() or target.is_symlink():
                    self.result.files_known += 1
                    continue
                self.result.beside.append(str(target.relative_to(self._device.settings.home.root)))
            else:
                self.result.files += 1
            if not self._dry_run:
                self._put_file(record, target)

    def _put_file(self, record: FileRecord, target: Path) -> None:
        root = self._device.settings.home.root
        try:
            target.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(root.resolve()):
                raise LocalStorage(
                    f"{target.parent} is a link out of the home", hint="Remove the link, then run it again."
                )
            write_private(target, (self._folder / FILES / record.path).read_bytes())
        except OSError as error:
            raise LocalStorage(f"{target} cannot be written: {error.strerror or error}") from error


def _manifest(folder: Path) -> Manifest:
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        raise DamagedExport(f"{folder} is no export: {MANIFEST} cannot be read ({error.strerror})") from error
    try:
        manifest = json.decode(data[:MANIFEST_BYTES_MAX], type=Manifest)
    except (DecodeError, UnicodeDecodeError) as error:
        raise DamagedExport(f"{folder / MANIFEST} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise DamagedExport(f"{folder} is an export of something else")
    if manifest.version > VERSION:
        raise Usage(f"{folder} was exported by a later version", hint="Update Crystal on this machine.")
    return manifest


def _check(folder: Path, manifest: Manifest, progress: Progress) -> None:
    for name in _PARTS:
        part = manifest.parts.get(name)
        if part is None or _digest(folder / name) != part.sha256:
            raise DamagedExport(f"{folder / name} is missing or is not what was exported")
        progress(name, part.lines)
    kinds: tuple[tuple[str, type[Struct]], ...] = (
        (CONVERSATIONS, PieceRecord),
        (MEMORIES, MemoryRecord),
        (SOURCES, SourceRecord),
        (DOCUMENTS, DocumentRecord),
    )
    for name, kind in kinds:
        for _ in _records(folder / name, kind):
            pass
    for file in manifest.files:
        try:
            check_path(file.path)
        except CrystalError as error:
            raise DamagedExport(f"the manifest names a file that cannot be: {error}") from error
        if file.sha256 and _digest(folder / FILES / file.path) != file.sha256:
            raise DamagedExport(f"{folder / FILES / file.path} is missing or is not what was exported")


def _records(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Line by line. Raises DamagedExport with the line's number."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            try:
                yield json.decode(line, type=kind)
            except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as error:
                raise DamagedExport(f"{path}, line {number}: {error}") from error


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        if path.is_symlink():
            return ""
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _put(record: DocumentRecord) -> Iterator[PutDocument]:
    """The operations of one document: as many pieces in each as fit."""
    total, first = len(record.pieces), 0
    while True:
        texts: list[str] = []
        titles: list[str] = []
        size = 0
        for piece in record.pieces[first : first + PIECES_MAX]:
            added = len(piece.text.encode()) + len(piece.title.encode()) + PIECE_BYTES_BESIDE_TEXT
            if texts and size + added > OPERATION_TEXT_BYTES:
                break
            texts.append(piece.text)
            titles.append(piece.title)
            size += added
        yield PutDocument(
            record.source,
            record.path,
            bytes.fromhex(record.version),
            record.modified_at,
            record.kind,
            first,
            total,
            tuple(texts),
            tuple(titles),
        )
        first += len(texts)
        if first >= total:
            return
