"""Control entries: mirror entries without operations, which carry what only the Core decides.

They announce a snapshot, publish the floor below which the log is not kept, condemn names of blobs, or bring vectors of
another model. A control entry is applied, sealed and kept in one transaction like any batch (``replication/collect.py``)
and put by ``publish``; nothing that it allows is done before the relay has it.
"""

from collections.abc import Sequence

from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.batches import Announced, Batch, Pack, encode_batch, seal_mirror
from crystal_mirror.entries.control_state import META_MODEL, is_remade, take_control_entry
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
    """Applies a control entry and leaves it sealed for ``publish``. ``embedded``: content hashes with the vectors of their
    windows. ``expected``: the position at which its content was determined.

    Raises:
        TransactionStale: something is not published yet, or this device is not the Core; repeat it in a later round.
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
            raise TransactionStale("a control entry waits for what is not published yet")
        if expected is not None and expected != position:
            raise TransactionStale("the mirror went on while a control entry was prepared")
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
    """Seals an applied batch for the slot at ``position`` and keeps it, unsent; its control entries count here from now on.

    Raises:
        TransactionStale: another process of this home rebuilds the rows.
    """
    if is_remade(transaction):
        raise TransactionStale("the rows are being rebuilt")
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
