"""Decrees: entries of the mirror that carry no operation, only what the Core decides alone.

A snapshot that counts from here on, the floor below which the log is not kept, names of blobs that are not used again, vectors
of another model. A decree is applied, sealed and kept in one transaction like any batch (``collect.py``), and is put by
``publish``; nothing that it allows is done before the relay has it.
"""

from collections.abc import Sequence

from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.batches import Announced, Batch, Pack, encode_batch, seal_mirror
from crystal_mirror.entries.control_state import META_MODEL, META_REBUILD, META_RESTORE, take_control_entry
from crystal_mirror.errors import TransactionStale
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import ReplicaTransaction
from crystal_mirror.types import EntryState, Position


def write_control_entry(
    member: Member,
    *,
    announced: Announced | None = None,
    floor: tuple[int, int] | None = None,
    condemned: Sequence[bytes] = (),
    model: str = "",
    drops_vectors: bool = False,
    embedded: Sequence[tuple[bytes, Sequence[bytes]]] = (),
    packs: tuple[Pack, ...] | None = None,
    expected: Position | None = None,
) -> None:
    """Applies a decree and leaves it sealed for ``publish``. ``embedded``: content hashes with their new windows' vectors.
    ``expected``: the position at which what it says was found out.

    Raises:
        TransactionStale: something is not published yet, or this device does not lead; repeat it in a later round.
        TooLarge: it does not fit an entry.
    """
    with member.replica.transaction() as transaction:
        position = transaction.position()
        lead = member.log.lead
        if (
            transaction.kept(EntryState.UNSENT)
            or not member.is_core
            or lead is None
            or lead.epoch != position.epoch
        ):
            raise TransactionStale("a decree waits for what is not published yet")
        if expected is not None and expected != position:
            raise TransactionStale("the mirror went on while a decree was prepared")
        if drops_vectors:
            transaction.drop_vectors()
        for content, windows in embedded:
            transaction.embed_anew(content, windows)
        if model:
            transaction.meta_set(META_MODEL, model.encode())
        batch = Batch(
            operations=(),
            also_done=(),
            vectors=tuple(tuple(windows) for _, windows in embedded),
            model=model,
            digest=_digest_with(transaction, condemned),
            announced=announced,
            floor=floor,
            condemned=tuple(condemned),
            embedded_anew=tuple(content for content, _ in embedded),
            drops_vectors=drops_vectors,
            packs=packs,
        )
        keep_batch(member, transaction, batch, position)


def _digest_with(transaction: ReplicaTransaction, condemned: Sequence[bytes]) -> bytes:
    if condemned:
        transaction.condemn(condemned)
    return transaction.digest().to_bytes()


def keep_batch(member: Member, transaction: ReplicaTransaction, batch: Batch, position: Position) -> None:
    """Seals an applied batch for the slot at ``position`` and keeps it, unsent; what it decrees holds here from now on.

    Raises:
        TransactionStale: another process of this home makes the rows anew.
    """
    if any(transaction.meta_get(name) is not None for name in (META_REBUILD, META_RESTORE)):
        raise TransactionStale("the rows are being made anew")
    stream = member.journal.stream()
    sealed = seal_mirror(
        Kind.BATCH,
        encode_batch(batch),
        position=position,
        vault=member.vault,
        sender=member.device_id,
        incarnation=stream.incarnation if stream else bytes(8),
        log_head=member.log.head,
        key=member.generation_key,
        signer=member.identity.signing,
        salt=member.salt(),
    )
    transaction.keep_entry(position.epoch, position.sequence, sealed, EntryState.UNSENT)
    transaction.set_position(Position(position.epoch, position.sequence + 1, parse(sealed).hash))
    take_control_entry(transaction, batch, (position.epoch, position.sequence))
