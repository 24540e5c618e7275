"""Repairing what an inspection found, as far as this device can: its own copy of the log, and parts of files on the relay.

::

    own log damaged --drop it from there, rebuild the state, read on from the relay--> whole
    part lacks, or differs --content from this disk, put under its name or the next turn's, read back--> offered, if that is new

The Core puts back in its rounds what the relay lost of the log; a snapshot that is not whole is replaced by the next one.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from crystal_crypto.errors import CryptoError
from crystal_mirror.entries.control_state import Place
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FilePart, PutFile
from crystal_mirror.replication.rebuild import mark_rebuild
from crystal_mirror.requests import Flow
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_blob, put_verified
from crystal_mirror.types import EntryState

PAGE = 64

PartOf = Callable[[bytes], bytes | None]
"""Returns a part of a file by the SHA-256 of its content, read from this device's disk and checked; None if it is not here."""


@dataclass
class FilesRepaired:
    """Parts put back under their names, files that name other parts now, and files of which a part is not on this disk."""

    parts: int = 0
    files: int = 0
    left: int = 0


def drop_damaged_log(member: Member, place: Place) -> int:
    """Drops the kept slots from that one on, which are on the relay, and marks the state for a rebuild. Returns how many.
    What this device has not sent yet stays: if that is damaged, it cannot be repaired."""
    dropped = 0
    last = member.replica.position().epoch
    with member.replica.transaction() as transaction:
        for epoch in range(place[0], last + 1):
            sequence = place[1] if epoch == place[0] else 0
            while page := transaction.entries(epoch, sequence, PAGE):
                sequence = page[-1].sequence + 1
                for kept in page:
                    if kept.state is not EntryState.UNSENT:
                        transaction.drop_entry(kept.epoch, kept.sequence)
                        dropped += 1
    mark_rebuild(member, None)
    return dropped


def repair_files(member: Member, paths: Collection[str], part_of: PartOf) -> Flow[FilesRepaired]:
    """Puts back every part of these files that the relay lacks or shows with other bytes, if its content is on this disk.

    The next rounds order the files that name other blobs than before.

    Raises:
        StoreFailure, RelayMisbehaves: repeat it.
    """
    report = FilesRepaired()
    named: dict[FilePart, int | bytes | None] = {}
    for row in list(member.replica.files()):
        if row.gone or row.path not in paths:
            continue
        for part in row.parts:
            if part not in named:
                named[part] = yield from _repaired(member, part, part_of, report)
        if any(named[part] is None for part in row.parts):
            report.left += 1
            continue
        parts = tuple(FilePart(part.content, part.length, named[part] or 0) for part in row.parts)
        if parts != row.parts:
            member.accept(PutFile(row.path, row.version, row.executable, row.modified_at, parts))
            report.files += 1
    return report


def _repaired(
    member: Member, part: FilePart, part_of: PartOf, report: FilesRepaired
) -> Flow[int | bytes | None]:
    """The turn or name under which the part is whole on the relay; None if it is not, and not here either."""
    try:
        yield from get_blob(member, BlobRef.of(part))
        return part.named
    except (BlobDamaged, CryptoError):
        data = part_of(part.content)
    if data is None:
        return None
    first = part.named if isinstance(part.named, int) else 0
    ref, _ = yield from put_verified(member, data, first=first, compress=True)
    report.parts += 1
    return ref.named
