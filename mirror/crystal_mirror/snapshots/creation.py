"""Creating a snapshot: the Core's state of one moment, as blobs that are read back whole before the mirror announces them.

::

    (nothing) --export, put and read back each part, digests agree, the same for the manifest--> READY --announce--> announced
              --killed, or the relay fails--> (nothing): started over; parts that are there already are not sent again
    READY     --the log below it was sealed again, another Core leads, or a part was condemned--> dropped

``make_snapshot`` runs beside the rounds of sync for as long as it takes: the state is read in a transaction of its own,
unaffected by what the Core does meanwhile. READY is a value in the journal, which the next round of the Core announces.
Only what an entry announces counts, and a Core announces only what it has fetched, opened and found equal by the digest.
"""

from hashlib import sha256

import msgspec

from crystal_crypto.errors import CryptoError, WrongKey
from crystal_mirror.entries.batches import Announced
from crystal_mirror.entries.control_state import epoch_ends, newest_snapshot, published_floor
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.history.void_slots import previous_of
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.requests import Flow, Progress
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_blob, lacking, name_of, put_verified
from crystal_mirror.snapshots.manifest import Manifest, decode_manifest, encode_manifest
from crystal_mirror.types import EntryState

META_READY = "snapshot.ready"
META_DAMAGED = "snapshot.damaged"
"""In the journal: the manifest's hash of a snapshot that the relay shows damaged."""
WHAT = "making a snapshot"


class _Ready(msgspec.Struct, frozen=True, array_like=True):
    announced: Announced
    names: tuple[bytes, ...]
    """Names of the blobs that it consists of."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Ready)


def make_snapshot(member: Member, *, anew: bool = False) -> Flow[Announced | None]:
    """Makes a snapshot of the committed state, leaves it READY, and returns it.

    ``anew`` uses no part that is sealed in an older generation: it is stored again under another name, after which the
    former one can be condemned. Otherwise parts of the newest snapshot are used again, under the names that they have.

    Returns None if this device is not the Core, or part of its log is not on the relay yet.

    Raises:
        BlobDamaged: what was stored does not come back, or not as the same state. Nothing depends on it.
        StoreFailure: repeat it later; what was stored is not stored again.
    """
    if not member.is_core or member.replica.kept(EntryState.UNSENT):
        return None
    before: dict[bytes, BlobRef] = {} if anew else (yield from _parts_before(member))
    sums = member.replica.part_sums()
    with member.replica.export() as export:
        position, digest, model = export.position(), export.digest(), export.model()
        refs: list[BlobRef] = []
        done = 0
        for part in export.parts():
            ref, back = yield from _kept(member, part, before)
            sums.add(back)
            refs.append(ref)
            done += ref.length
            yield Progress(WHAT, done, 0)
    if sums.digest() != digest:  # §12.1-5, §13.3-4
        raise BlobDamaged("a snapshot does not come back as the state that it was made of")
    if not _stands(member, position.epoch, position.sequence, position.previous):
        return None
    stated = digest.to_bytes()
    ends = tuple(end for end in epoch_ends(member.replica) if end[0] < position.epoch)
    data = encode_manifest(
        epoch=position.epoch,
        sequence=position.sequence,
        previous=position.previous,
        digest=stated,
        manifest=Manifest(model, tuple(refs), ends),
    )
    ref, _ = yield from put_verified(member, data)
    announced = Announced(
        position.epoch, position.sequence, position.previous, stated, ref.content, ref.length, ref.named
    )
    names = tuple(name_of(member, each) for each in (*refs, ref))
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_READY, _encoder.encode(_Ready(announced, names)))
    return announced


def announce(member: Member) -> bool:
    """Leaves an entry for ``publish`` that announces the READY snapshot. Returns whether there was one that counts.

    It does not count if a part that it shares with an older snapshot was condemned together with that one meanwhile.

    Raises:
        TransactionStale: the mirror went on meanwhile; repeat it in a later round.
    """
    kept = member.journal.meta_get(META_READY)
    if kept is None:
        return False
    ready = _decoder.decode(kept)
    announced = ready.announced
    position = member.replica.position()
    newest = newest_snapshot(member.replica)
    place = (announced.epoch, announced.sequence)
    counts = (
        member.is_core
        and announced.epoch == position.epoch
        and place >= published_floor(member.replica)
        and (newest is None or newest != announced)
        and _stands(member, announced.epoch, announced.sequence, announced.previous)  # §12.1-5
        and not any(member.replica.is_condemned(name) for name in ready.names)
    )
    if counts:
        write_control_entry(member, announced=announced, expected=position)
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_READY, None)
    return counts


def is_ready(member: Member) -> bool:
    return member.journal.meta_get(META_READY) is not None


def damaged_snapshot(member: Member) -> bytes | None:
    """The manifest's hash of a snapshot that was found damaged at the relay; None if none was."""
    return member.journal.meta_get(META_DAMAGED)


def note_damaged_snapshot(member: Member, manifest: bytes | None) -> None:
    """Notes that the relay shows this snapshot damaged; None: not any more."""
    if damaged_snapshot(member) != manifest:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_DAMAGED, manifest)


def read_manifest(member: Member, announced: Announced) -> Flow[Manifest]:
    """Fetches and checks a snapshot's manifest. Raises BlobDamaged, WrongKey, Malformed."""
    ref = BlobRef(announced.manifest, announced.length, announced.named)
    return decode_manifest((yield from get_blob(member, ref)), announced)


def is_whole(member: Member, announced: Announced) -> Flow[bool]:
    """Whether the relay has everything of a snapshot, as far as can be seen without reading all of it."""
    try:
        manifest = yield from read_manifest(member, announced)
    except BlobDamaged as error:
        member.notices.put(Notice.SNAPSHOT_LOST, str(error))
        return False
    missing = yield from lacking(member, manifest.parts)
    if missing:
        member.notices.put(
            Notice.SNAPSHOT_LOST, f"the relay lacks {len(missing)} parts of the newest snapshot"
        )
    return not missing


def _parts_before(member: Member) -> Flow[dict[bytes, BlobRef]]:
    """The parts of the newest snapshot by their content, where they may have names of an older generation."""
    newest = newest_snapshot(member.replica)
    if newest is None or member.log.generation == 1:
        return {}
    try:
        manifest = yield from read_manifest(member, newest)
    except (BlobDamaged, CryptoError):
        return {}
    return {part.content: part for part in manifest.parts}


def _kept(member: Member, part: bytes, before: dict[bytes, BlobRef]) -> Flow[tuple[BlobRef, bytes]]:
    """The blob of a part, read back: the one that the snapshot before has, else one of the generation in force."""
    ref = before.get(sha256(part).digest())
    if ref is not None and not member.replica.is_condemned(name_of(member, ref)):
        try:
            return ref, (yield from get_blob(member, ref))  # §12.1-7
        except (BlobDamaged, WrongKey):
            pass
    return (yield from put_verified(member, part))  # §6.1-4


def _stands(member: Member, epoch: int, sequence: int, previous: bytes) -> bool:
    """Whether the log below that slot is on the relay as it was when the snapshot was made."""
    if any(
        (kept.epoch, kept.sequence) < (epoch, sequence) for kept in member.replica.kept(EntryState.UNSENT)
    ):
        return False
    position = member.replica.position()
    if (position.epoch, position.sequence) < (epoch, sequence):
        return False
    return previous_of(member, epoch, sequence) == previous
