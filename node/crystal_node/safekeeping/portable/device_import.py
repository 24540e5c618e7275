"""Taking the memory of one home on this machine into the vault of another one: what an export carries and, since both are the
same person's, the links between projects. Nothing is written in between, so that an encrypted memory is never plain on a disk.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from crystal_core.messages import forgotten
from crystal_core.projects import claims, links
from crystal_mirror.operations import TARGETS_MAX, Forget, LinkProjects
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


def forget_too(source: Device, target: Device, before: Collection[bytes]) -> None:
    """Forgets in the vault of ``target`` what was forgotten in that of ``source`` since ``before``, the keyed hashes of then.

    Raises what ``Device.accept`` raises.
    """
    since = forgotten(source.replica.database) - set(before)
    if not since:
        return
    texts = [(bytes(content), bytes(keyed)) for content, keyed in target.replica.database.rows(_TEXTS)]
    there = source.member.secret.forget_hashes([content for content, _ in texts])
    found = [
        keyed
        for (content, keyed), hashed in zip(texts, there, strict=True)
        if hashed in since and not target.replica.hides(content)
    ]
    for start in range(0, len(found), TARGETS_MAX):
        target.accept([Forget(tuple(found[start : start + TARGETS_MAX]))])


_TEXTS = "SELECT id, forget_hash FROM chunks"
