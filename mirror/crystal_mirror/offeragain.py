"""Offering again: operations of mirror entries that are not, or not any more, in the believed log go into the outbox under
their own names. Before a device gives its state up, and before it lets go of entries, nothing that they carry may be lost."""

from collections.abc import Iterable

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.batch import opened_batch
from crystal_mirror.member import Member
from crystal_mirror.orphans import hold_entry
from crystal_mirror.types import EntryState, KeptEntry


def reoffer(member: Member, orphans: Iterable[KeptEntry], *, unless_done: bool = False) -> None:
    """Puts every operation of the orphaned entries into the outbox, unless it is there already; with ``unless_done`` also not
    those that the state here has done: for who has gone over to the believed state already. Idempotent.

    What a device signed that is revoked by now is another matter: a relay in league with it may have shown us, and us alone,
    an epoch that it wrote on after it was out. Of that only this device's own operations are offered; the rest is held until
    the owner decides (``held.py``).
    """
    with member.journal.transaction() as transaction:
        known = {name.origin for name in transaction.names()}
        for kept in orphans:
            if kept.state is EntryState.VOID:
                continue
            entry = parse(kept.data)
            key = member.key_for(entry.header.generation)
            if key is None or entry.header.kind is not Kind.BATCH:
                continue
            try:
                batch = opened_batch(entry, key)
            except CryptoError as error:
                raise AssertionError("an entry that was applied here opens") from error
            doubtful = not member.log.is_active(entry.header.sender)  # §9.10-4
            lacking = [
                (origin, operation)
                for origin, operation in batch.operations
                if not (unless_done and member.replica.done(origin))
            ]
            if doubtful and any(origin.device != member.device_id for origin, _ in lacking):
                hold_entry(transaction, entry)  # §9.10-4
            for origin, operation in lacking:
                if doubtful and origin.device != member.device_id:
                    continue
                if origin not in known:
                    known.add(origin)
                    member.seal_row(transaction, operation, origin)
