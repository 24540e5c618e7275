"""Importing sources and their documents, from an export or from another memory on this machine."""

from collections.abc import Iterable, Iterator

from crystal_core.documents import documents, sources
from crystal_mirror.operations import (
    PIECES_MAX,
    SOURCE_NAME_CHARS_MAX,
    PutDocument,
    PutSource,
)
from crystal_node.base.clock import now_ms
from crystal_node.capture.messages import OPERATION_TEXT_BYTES, PIECE_BYTES_BESIDE_TEXT
from crystal_node.capture.redaction import redact
from crystal_node.device.device import Device
from crystal_node.safekeeping.portable.export_format import DocumentRecord, SourceRecord
from crystal_node.safekeeping.portable.record_import import RecordImporter


class DocumentImporter:
    """Imports through one device. ``new`` and ``known`` count documents; ``elsewhere`` names the sources that another device
    of the vault reads. ``names``: under which name each imported source stands here."""

    def __init__(self, device: Device, importer: RecordImporter) -> None:
        self._device, self._importer = device, importer
        self.new = self.known = 0
        self.elsewhere: list[str] = []
        self.names: dict[str, str] = {}

    def take(
        self, records: Iterable[SourceRecord], found: Iterable[DocumentRecord], *, rename: bool = False
    ) -> None:
        """Imports sources and documents; a repeated run adds nothing.

        A source that another device of this vault reads is left out with its documents or, with ``rename``, imported under a
        name that is free. Raises as ``RecordImporter.pieces``.
        """
        database, own = self._device.replica.database, self._device.identity.id
        before = {source.name: source.device for source in sources(database)}
        for record in records:
            name = record.name
            if before.get(name, own) != own:
                self.elsewhere.append(name)
                if not rename:
                    continue
                name = next(each for each in _other_names(name) if before.get(each, own) == own)
            self.names[record.name] = name
            if name not in before:
                self._importer.other(source_operation(record, name))
                before[name] = own
        there = {
            (name, each.path): each for name in self.names.values() for each in documents(database, name)
        }
        for document in found:
            name = self.names.get(document.source, "")
            if not name:
                continue
            stands = there.get((name, document.path))
            if stands is not None and stands.version.hex() == document.version and stands.complete:
                self.known += 1
                continue
            self.new += 1
            for operation in document_operations(document, name):
                self._importer.other(operation)
        self._importer.flush()


def _other_names(name: str) -> Iterator[str]:
    number = 2
    while True:
        suffix = f"-{number}"
        yield name[: SOURCE_NAME_CHARS_MAX - len(suffix)] + suffix
        number += 1


def source_operation(record: SourceRecord, name: str = "") -> PutSource:
    """The operation of a source; ``name``: under another name."""
    return PutSource(name or record.name, record.root, record.include, record.exclude, now_ms())


def document_operations(record: DocumentRecord, source: str = "") -> Iterator[PutDocument]:
    """The operations of one document, each with as many pieces as fit, without credentials; ``source``: of another source."""
    total, first = len(record.pieces), 0
    while True:
        texts: list[str] = []
        titles: list[str] = []
        size = 0
        for piece in record.pieces[first : first + PIECES_MAX]:
            text = redact(piece.text).text
            added = len(text.encode()) + len(piece.title.encode()) + PIECE_BYTES_BESIDE_TEXT
            if texts and size + added > OPERATION_TEXT_BYTES:
                break
            texts.append(text)
            titles.append(piece.title)
            size += added
        yield PutDocument(
            source or record.source,
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
