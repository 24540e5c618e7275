"""``crystal import``: imports an export into this vault, through this device, as if it had been recorded here.

Everything is read and compared with the manifest before anything is imported. A file of the home that differs from the one here
is put beside it under another name. An export may come from anybody: no link in it or in the home is followed, and Crystal's
own files in a home (settings, state, keys, programs) are in no export. What programs execute or obey by its name is left out
unless a person of this device has allowed it (``crystal files allow``), and nothing arrives executable.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError, json

from crystal_crypto.errors import CrystalError
from crystal_mirror.files.ports import FileTrouble
from crystal_mirror.operations import Operation, encode_operation
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import write_private_blocks
from crystal_node.device.device import Device
from crystal_node.safekeeping.backup.tree import backup_rules
from crystal_node.safekeeping.portable.document_import import (
    DocumentImporter,
    document_operations,
    source_operation,
)
from crystal_node.safekeeping.portable.export_format import (
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
    ExportManifest,
    FileRecord,
    MemoryRecord,
    PieceRecord,
    SourceRecord,
)
from crystal_node.safekeeping.portable.record_import import ImportCounts, RecordImporter
from crystal_node.sync.files.folders import READ, folder_of, troubles
from crystal_node.sync.files.rules import rules_of
from crystal_node.sync.files.scan import is_held

_PARTS = (CONVERSATIONS, MEMORIES, SOURCES, DOCUMENTS)
_BLOCK = 1024 * 1024

Record = TypeVar("Record", bound=Struct)
Progress = Callable[[str, int, int], None]


class DamagedExport(UsageError):
    """The folder is no export, or has changed since."""

    hint = "Nothing was taken. Export again, or take another copy."


@dataclass
class Imported:
    """The outcome. ``files``: put into the home; ``beside``: put under another name, since another file was there; ``held``:
    left out, since programs execute or obey what has such a name."""

    taken: ImportCounts
    documents: int = 0
    documents_known: int = 0
    sources_elsewhere: list[str] = field(default_factory=list[str])
    files: int = 0
    files_known: int = 0
    beside: list[str] = field(default_factory=list[str])
    held: list[str] = field(default_factory=list[str])
    missing: int = 0


def import_export(
    device: Device,
    folder: Path,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _what, _done, _total: None,
) -> Imported:
    """Imports an export. A repeated run goes on, and adds nothing twice.

    Raises:
        DamagedExport: a file is missing, differs from the manifest, or is malformed. Nothing was imported.
        PrivateNow, LocalStorage, JournalDamaged, VaultDataError: what was imported before stays.
    """
    manifest = _manifest(folder)
    _check(device, folder, manifest, progress)
    whole = manifest.parts[CONVERSATIONS].lines
    taker = RecordImporter(
        device, dry_run=dry_run, progress=lambda count: progress(CONVERSATIONS, count, whole)
    )
    work = _Import(device, folder, taker, dry_run)
    taker.pieces(_records(folder / CONVERSATIONS, PieceRecord))
    taker.memories(_records(folder / MEMORIES, MemoryRecord))
    work.documents()
    work.files(manifest.files)
    return work.result


class _Import:
    def __init__(self, device: Device, folder: Path, taker: RecordImporter, dry_run: bool) -> None:
        self._device, self._folder, self._taker, self._dry_run = device, folder, taker, dry_run
        self.result = Imported(taker.taken)

    def documents(self) -> None:
        importer = DocumentImporter(self._device, self._taker)
        importer.take(
            _records(self._folder / SOURCES, SourceRecord), _records(self._folder / DOCUMENTS, DocumentRecord)
        )
        self.result.documents, self.result.documents_known = importer.new, importer.known
        self.result.sources_elsewhere = importer.elsewhere

    def files(self, records: list[FileRecord]) -> None:
        root, rules = self._device.settings.home.root, rules_of(self._device)
        for record in records:
            if not record.sha256:
                self.result.missing += 1
                continue
            if is_held(root, record.path, rules):
                self.result.held.append(record.path)
                continue
            target = root / record.path
            there = _digest(root, record.path)
            if there == record.sha256:
                self.result.files_known += 1
                continue
            if there or target.is_symlink() or target.exists():
                target = target.with_name(f"{target.stem} (imported {record.sha256[:8]}){target.suffix}")
                if target.exists() or target.is_symlink():
                    self.result.files_known += 1
                    continue
                self.result.beside.append(str(target.relative_to(root)))
            else:
                self.result.files += 1
            if not self._dry_run:
                self._put_file(record, target)

    def _put_file(self, record: FileRecord, target: Path) -> None:
        root = self._device.settings.home.root
        try:
            with folder_of(root, target.relative_to(root).as_posix(), create=True):
                pass  # its folders are there, and none is a link
            with _opened(self._folder, f"{FILES}/{record.path}") as file:
                write_private_blocks(target, self._same(file, record))
        except FileTrouble as error:
            raise LocalStorage(
                f"{target} cannot be written: {error}", hint="Put it right, then run it again."
            ) from error
        except OSError as error:
            raise LocalStorage(f"{target} cannot be written: {error.strerror or error}") from error

    def _same(self, file: BufferedReader, record: FileRecord) -> Iterator[bytes]:
        """Yields the file's blocks. Raises DamagedExport at the end if its hash differs."""
        digest = hashlib.sha256()
        while block := file.read(_BLOCK):
            digest.update(block)
            yield block
        if digest.hexdigest() != record.sha256:
            raise DamagedExport(f"{self._folder / FILES / record.path} changed while it was read")


def _manifest(folder: Path) -> ExportManifest:
    try:
        with _opened(folder, MANIFEST) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MANIFEST_BYTES_MAX))
    except (OSError, FileTrouble) as error:
        raise DamagedExport(f"{folder} is no export: {MANIFEST} cannot be read ({error})") from error
    try:
        manifest = json.decode(data, type=ExportManifest)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedExport(f"{folder / MANIFEST} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise DamagedExport(f"{folder} is an export of something else")
    if manifest.version > VERSION:
        raise UsageError(f"{folder} was exported by a later version", hint="Update Crystal on this machine.")
    return manifest


def _check(device: Device, folder: Path, manifest: ExportManifest, progress: Progress) -> None:
    for name in _PARTS:
        part = manifest.parts.get(name)
        if part is None or _digest(folder, name) != part.sha256:
            raise DamagedExport(f"{folder / name} is missing or is not what was exported")
        progress(f"checked {name}", part.lines, part.lines)
    kinds: tuple[tuple[str, type[Struct]], ...] = (
        (CONVERSATIONS, PieceRecord),
        (MEMORIES, MemoryRecord),
    )
    for name, kind in kinds:
        for _ in _records(folder / name, kind):
            pass
    for source in _records(folder / SOURCES, SourceRecord):
        _check_operation(source_operation(source), folder / SOURCES)
    for found in _records(folder / DOCUMENTS, DocumentRecord):
        for operation in document_operations(found):
            _check_operation(operation, folder / DOCUMENTS)
    rules = backup_rules(device.settings.home)
    for file in manifest.files:
        fault = rules.fault(file.path)
        if fault is not None:
            raise DamagedExport(f"the manifest names a file that cannot be: {fault}")
        if file.sha256 and _digest(folder, f"{FILES}/{file.path}") != file.sha256:
            raise DamagedExport(f"{folder / FILES / file.path} is missing or is not what was exported")


def _check_operation(operation: Operation, path: Path) -> None:
    try:
        encode_operation(operation)
    except CrystalError as error:
        raise DamagedExport(f"{path} holds what cannot be: {error}") from error


def _records(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Yields the records of a line file. Raises DamagedExport with the line's number."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            try:
                yield json.decode(line, type=kind)
            except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError) as error:
                raise DamagedExport(f"{path}, line {number}: {error}") from error


def _digest(folder: Path, path: str) -> str:
    """The SHA-256 of a file in the folder; "" if there is none that is reachable without a link."""
    digest = hashlib.sha256()
    try:
        with _opened(folder, path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except (OSError, FileTrouble):
        return ""
    return digest.hexdigest()


@contextmanager
def _opened(folder: Path, path: str) -> Generator[BufferedReader]:
    """Opens a regular file without following links. Raises FileTrouble, OSError."""
    with folder_of(folder, path) as found:
        if found is None:
            raise FileTrouble("it is not there")
        with troubles():
            descriptor = os.open(found[1], READ, dir_fd=found[0])
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileTrouble("it is no file")
        yield file
