"""Epochs of a revoked Core, which are read to their end before anything of them is applied.

A revoked Core can still sign slots of its epoch, and a relay in league with it can show them to a device that has not read
so far. Every revocation of a Core was made after its epoch had been sealed, so there is an end: the seal of a device that
is not revoked, to which all slots before it are chained by their hashes.

::

    at an epoch of a revoked Core --read on, applying nothing, to a seal that leads to an active Core's epoch--> CLOSED: apply
                                  --no such seal is shown-----------------------------------------------------> hold; named
    CLOSED --a slot is not as it was when the end was read--> hold; named
"""

from dataclasses import dataclass, field
from hashlib import sha256

from crystal_mirror.history.slots import VOID, SlotKind, judge_slot
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, GetMany
from crystal_mirror.types import Position

READ_AT_ONCE = 16
VOIDS_IN_A_ROW_MAX = 4096
"""Void slots in a row after which no end is expected, since a relay may show junk forever. An honest Core never had to step
over as many."""


@dataclass
class ClosedEpochs:
    """The slots up to the end, by the hashes of their bytes: only what was chained to the seal is applied."""

    hashes: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])

    def covers(self, position: Position) -> bool:
        return (position.epoch, position.sequence) in self.hashes

    def holds(self, position: Position, data: bytes) -> bool:
        """Whether these bytes are those that were there when the end was read."""
        return self.hashes.get((position.epoch, position.sequence)) == sha256(data).digest()


def needs_its_end(member: Member, epoch: int) -> bool:
    """Whether the epoch's Core is revoked, so that nothing of it may be applied before its end is known."""
    lead = member.log.lead_of(epoch)
    return lead is not None and not member.log.is_active(lead.device)


def read_to_the_end(member: Member, position: Position) -> Flow[ClosedEpochs | None]:
    """Reads on from ``position`` to the seal that leads to an epoch of an active Core. None if that is not shown."""
    closed = ClosedEpochs()
    voids = 0
    while needs_its_end(member, position.epoch):  # §9.10-1
        keys = tuple(
            member.keys.mirror(position.epoch, position.sequence + ahead) for ahead in range(READ_AT_ONCE)
        )
        found: list[bytes | None] = yield GetMany(keys)
        for data in found:
            if data is None:
                return None
            closed.hashes[position.epoch, position.sequence] = sha256(data).digest()
            slot = judge_slot(data, position, member.log)
            if slot.kind is SlotKind.DIVERGED:
                slot = VOID  # for a reader at this position
            voids = voids + 1 if slot.kind is SlotKind.VOID else 0
            if voids > VOIDS_IN_A_ROW_MAX:  # §9.10-3
                return None
            position = slot.after(position)
            if slot.kind is SlotKind.SEAL:
                break
    return closed
