"""The verdict on a mirror slot: what the bytes at one position are, from public data alone.

::

    bytes at (epoch, slot) --parses, names this place, signed by the epoch's Core, follows ours--> BATCH
                           --parses, names this place, signed by the Core of a later epoch ------> SEAL
                           --as BATCH or SEAL, but follows another entry than ours --------------> DIVERGED
                           --anything else ------------------------------------------------------> VOID

Only the device log decides, so every member that has read it as far comes to the same verdict. VOID holds only against a
log that was read *after* the slot, since an honest writer knew a prefix of it; the slot is judged again when the log has
grown (``void_slots.py``). ``replication/pull.py`` handles DIVERGED: the slot is void for every reader if everything before
it agrees.
"""

from dataclasses import dataclass
from enum import Enum

from crystal_crypto.entry import Channel, Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.types import Position

SEAL_PUBLIC_BYTES = 8
"""The clear part of a seal: the epoch that it leads to, big-endian."""


class SlotKind(Enum):
    BATCH = "batch"
    SEAL = "seal"
    DIVERGED = "diverged"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Slot:
    """A judged slot. ``entry`` is None only for VOID. ``next_epoch`` is the epoch that a seal leads to."""

    kind: SlotKind
    entry: Entry | None
    next_epoch: int = 0

    def after(self, position: Position) -> Position:
        """The position after this slot, which stands at ``position``."""
        if self.kind is SlotKind.VOID or self.entry is None:
            return position._replace(sequence=position.sequence + 1)
        if self.kind is SlotKind.SEAL:
            return Position(self.next_epoch, 0, self.entry.hash)  # §11.7-7
        return Position(position.epoch, position.sequence + 1, self.entry.hash)


VOID = Slot(SlotKind.VOID, None)


def judge_slot(data: bytes, position: Position, log: DeviceLog) -> Slot:
    """Judges the bytes found at ``position``. Never raises on hostile bytes."""
    try:
        entry = parse(data)
    except CryptoError:
        return VOID
    header = entry.header
    if (
        header.channel is not Channel.MIRROR  # §11.7-4, §5.5-8
        or header.vault != log.vault
        or header.epoch != position.epoch
        or header.sequence != position.sequence
    ):
        return VOID
    if header.kind is Kind.BATCH:  # §11.7-1
        lead = log.lead_of(position.epoch)
        next_epoch = 0
        if lead is None or lead.device != header.sender:
            return VOID
    elif header.kind is Kind.SEAL:
        next_epoch = int.from_bytes(entry.public, "big") if len(entry.public) == SEAL_PUBLIC_BYTES else 0
        lead = log.lead_of(next_epoch)
        if next_epoch <= position.epoch or lead is None or lead.device != header.sender:  # §11.7-2
            return VOID
    else:
        return VOID
    member = log.member(header.sender)
    if member is None:
        return VOID
    try:
        entry.verify(member.signing)
    except CryptoError:
        return VOID
    if header.previous != position.previous:  # §11.7-3
        return Slot(SlotKind.DIVERGED, entry, next_epoch)
    return Slot(SlotKind.SEAL if header.kind is Kind.SEAL else SlotKind.BATCH, entry, next_epoch)
