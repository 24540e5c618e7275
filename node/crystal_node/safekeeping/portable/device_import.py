"""Taking the memory of one home on this machine into the vault of another one: what an export carries and, since both are the
same person's, the links between projects. Nothing is written in between, so that an encrypted memory is never plain on a disk.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crystal_core.projects import claims, links
from crystal_mirror.operations import LinkProjects
from crystal_node.device.device import Device
from crystal_node.safekeeping.portable.document_import import DocumentImporter
from crystal_node.safekeeping.portable.export import (
    document_records,
    memory_records,
    piece_count,
    piece_records,
    source_records,
)
from crystal_node.safekeeping.portable.record_import import ImportCounts, RecordImporter

Progress = Callable[[int, int], None]
"""Called with messages done and in all."""


@dataclass(frozen=True, slots=True)
class DeviceImport:
    """The outcome. ``sources``: for each source of this device, its name in the vault that it was taken into."""

    taken: ImportCounts
    documents: int
    sources: dict[str, str]


def import_device(
    source: Device, target: Device, progress: Progress = lambda _done, _total: None
) -> DeviceImport:
    """Records the memory of ``source`` through ``target``. Repeated, it goes on, and adds nothing twice.

    Credentials are blanked out, and what was forgotten in the vault of ``target`` stays forgotten. A source of documents whose
    name another device of that vault has is taken under another name.

    Raises:
        PrivateNow, LocalStorage, JournalDamaged, VaultDataError: what was recorded before stays.
    """
    database = source.replica.database
    with database.snapshot():
        whole = piece_count(database)
        importer = RecordImporter(
            target, dry_run=False, progress=lambda count: progress(count, max(count, whole))
        )
        importer.pieces(piece_records(database))
        importer.memories(memory_records(database))
        documents = DocumentImporter(target, importer)
        documents.take(source_records(database), document_records(database), rename=True)
        there = {(link.one, link.other) for link in links(target.replica.database)}
        for link in links(database):  # the other vault itself decides which folder has a repository
            if not claims((link,)) and (link.one, link.other) not in there:
                importer.other(LinkProjects(link.one, link.other, True, link.at))
        importer.flush()
    return DeviceImport(importer.taken, documents.new, documents.names)
