"""Verification of the memory: the digest computed from its rows, the stored one, and the one that the mirror states."""

import time
from dataclasses import dataclass

from crystal_crypto.entry import Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.entries.batches import opened_batch
from crystal_mirror.types import EntryState, KeptEntry
from crystal_node.device.device import Device


@dataclass(frozen=True, slots=True)
class Verification:
    """Digests in hex. ``stated`` is None before the first mirror entry. ``tables`` are names and row counts."""

    computed: str
    kept: str
    stated: str | None
    epoch: int
    sequence: int
    tables: tuple[tuple[str, int], ...]
    provisional: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.computed == self.kept and self.stated in (None, self.computed)


def verify(device: Device, *, passes_damage: bool = False) -> Verification:
    """Reads every row once, in one database snapshot; no network.

    ``passes_damage``: skips kept mirror entries that cannot be opened; the inspection reports them.

    Raises:
        CryptoError: the last mirror entry that is kept here cannot be opened.
    """
    started = time.monotonic()
    replica = device.replica
    with replica.database.snapshot():
        computed = replica.recompute_digest()
        kept = replica.digest()
        position = replica.position()
        stated = _stated(device, position.epoch, position.sequence, passes_damage=passes_damage)
        provisional = len(replica.provisional_origins())
    return Verification(
        computed=computed.hex(),
        kept=kept.hex(),
        stated=None if stated is None else stated.hex(),
        epoch=position.epoch,
        sequence=position.sequence,
        tables=tuple((table.name, table.count) for table in computed.tables),
        provisional=provisional,
        seconds=time.monotonic() - started,
    )


def _stated(device: Device, epoch: int, sequence: int, *, passes_damage: bool) -> bytes | None:
    """The digest in the latest applied batch."""
    while epoch > 0:
        while sequence > 0:
            sequence -= 1
            found = device.replica.entries(epoch, sequence, 1)
            digest = (
                _digest(device, found[0], passes_damage=passes_damage)
                if found and found[0].sequence == sequence
                else None
            )
            if digest is not None:
                return digest
        epoch -= 1
        last = device.replica.last_entry(epoch) if epoch else None
        sequence = last.sequence + 1 if last else 0
    return None


def _digest(device: Device, kept: KeptEntry, *, passes_damage: bool) -> bytes | None:
    if kept.state not in (EntryState.SENT, EntryState.UNSENT):
        return None
    try:
        entry = parse(kept.data)
        key = device.member.key_for(entry.header.generation)
        if entry.header.kind is not Kind.BATCH or key is None:
            return None
        return opened_batch(entry, key).digest
    except CryptoError:
        if passes_damage:
            return None
        raise
