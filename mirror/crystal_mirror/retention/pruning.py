"""Pruning at once, and sealing again what the relay holds: what garbage collection does in time, done now, for the Core.

::

    prune      collect garbage, publish, ask; repeat until nothing is left to publish
    rewrite    blobs of files --those of an older generation: same content, another name, read back--> named by the tree
               --> ordered like any change --> a snapshot of none but the generation in force --> prune

Both can be stopped anywhere and run again: what is sealed in the generation in force already is left as it is.
"""

from dataclasses import dataclass, field

from crystal_crypto.errors import WrongKey
from crystal_mirror.entries.batches import CONDEMNED_MAX
from crystal_mirror.entries.control_state import Place, newest_snapshot, published_floor
from crystal_mirror.errors import TransactionStale
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FilePart, PutFile, blob_name
from crystal_mirror.ports import FileRow
from crystal_mirror.replication.publish import Published, publish
from crystal_mirror.requests import Flow, Progress
from crystal_mirror.retention.gc import blobs_in_use, listed_blobs, retain
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_with_generation, name_of, put_verified
from crystal_mirror.snapshots.creation import read_manifest

LOOKS_MAX = 1000
SEALING = "sealing files again"


@dataclass
class Rewritten:
    """Files whose parts were sealed again, and the paths of those of which a part cannot be had, which stay as they are."""

    files: int = 0
    parts: int = 0
    lacking: dict[str, str] = field(default_factory=dict[str, str])


def snapshot_wanted(member: Member) -> bool:
    """Whether the newest snapshot is not of the current state."""
    newest = newest_snapshot(member.replica)
    return newest is None or newest.digest != member.replica.digest().to_bytes()


def prune_now(member: Member, now_ms: int) -> Flow[Place]:
    """Collects garbage without any waiting time. For a Core whose log is published, with an announced snapshot. Returns the
    floor.

    Raises:
        TransactionStale: another process of this home writes to the log; repeat it.
        StoreFailure: repeat it.
    """
    for _ in range(LOOKS_MAX):
        before = member.replica.position()
        yield from retain(member, now_ms, force=True)
        if (yield from publish(member)) is not Published.DONE:
            raise TransactionStale("the log went on elsewhere while it was pruned")
        if member.replica.position() == before:
            break
    return published_floor(member.replica)


def seal_files_anew(member: Member) -> Flow[Rewritten]:
    """Puts every part of a living file that is sealed or named in an older generation once more, and offers the files that name
    them.

    The next rounds order these. Raises StoreFailure, RelayMisbehaves; repeat it.
    """
    report = Rewritten()
    rows = [row for row in member.replica.files() if not row.gone]
    total = sum(row.size for row in rows)
    named: dict[FilePart, int | bytes] = {}
    done = 0
    for row in rows:
        try:
            for part in row.parts:
                if part not in named:
                    named[part] = yield from _in_force(member, part)
                    report.parts += named[part] != part.named
                done += part.length
                yield Progress(SEALING, done, total)
        except (BlobDamaged, WrongKey) as error:
            report.lacking[row.path] = str(error)
            continue
        parts = tuple(FilePart(part.content, part.length, named[part]) for part in row.parts)
        if parts != row.parts:
            member.accept(_same(row, parts))
            report.files += 1
    return report


def condemn_others(member: Member, names: set[bytes]) -> Flow[int]:
    """Condemns those of the names that neither the tree, the packs nor the newest snapshot need. Returns how many.

    Raises:
        TransactionStale: as ``prune_now``.
        BlobDamaged: the newest snapshot cannot be read; nothing was condemned.
    """
    condemned = 0
    while True:
        # Read before what is needed: another process may order a file meanwhile.
        position = member.replica.position()
        newest = newest_snapshot(member.replica)
        if newest is None:
            return condemned
        manifest = yield from read_manifest(member, newest)
        needed = {name_of(member, part) for part in manifest.parts}
        needed.add(blob_name(member.secret, newest.manifest, newest.named))
        needed |= blobs_in_use(member)
        left = sorted(name for name in names - needed if not member.replica.is_condemned(name))[
            :CONDEMNED_MAX
        ]
        if not left:
            return condemned
        write_control_entry(member, condemned=left, expected=position)
        if (yield from publish(member)) is not Published.DONE:
            raise TransactionStale("the log went on elsewhere while it was pruned")
        condemned += len(left)


def all_blobs(member: Member) -> Flow[set[bytes]]:
    """The names of all blobs that the relay lists."""
    return set((yield from listed_blobs(member)))


def _in_force(member: Member, part: FilePart) -> Flow[int | bytes]:
    """A reference to a blob of that content that is sealed and named in the generation in force, which is made if there is
    none. From generation 2 on, a blob that has a turn was named by the vault's secret."""
    generation = member.log.generation
    content, sealed_in = yield from get_with_generation(member, BlobRef.of(part))
    if sealed_in >= generation and (generation == 1 or isinstance(part.named, bytes)):
        return part.named
    ref, _ = yield from put_verified(member, content, compress=True)
    return ref.named


def _same(row: FileRow, parts: tuple[FilePart, ...]) -> PutFile:
    return PutFile(row.path, row.version, row.executable, row.modified_at, parts)
