"""Changes of a vault that every device shows its person once: a device was added or revoked, became the Core, got a grant
to lead, or the root was replaced; and by which device.

They are read from the verified log only: a relay can delay them but not invent any. Changes made by this device are left
out. That it was this device is known from its own journal, not from the entry: an entry's statement of where it was made is
its signer's word, and an intruder would name the device from which to hide it.

A device that joins starts after its own entry. How far it has shown them is kept in its journal and only moves forward.
"""

from dataclasses import dataclass
from enum import StrEnum

from crystal_mirror.devicelog.log import NOBODY, ROOT_SENDER, LogEvent
from crystal_mirror.devicelog.records import AddRecord, GrantRecord, LeadRecord, RevokeRecord, RootRecord
from crystal_mirror.devicelog.sync import own_slots
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import details_of, device_name
from crystal_mirror.ports import Journal

META_SHOWN = "news.shown"
_SLOT_BYTES = 8


class ChangeKind(StrEnum):
    """What happened."""

    ADDED = "added"
    REVOKED = "revoked"
    ROOT_REPLACED = "root-replaced"
    NEW_CORE = "new-core"
    """A device became the Core; perhaps the one that was the Core before, since it may be a copy of it."""
    FROZEN = "frozen"
    """The vault has no Core from there on."""
    GRANTED = "granted"
    """A device may take the lead by itself."""


@dataclass(frozen=True, slots=True)
class VaultChange:
    """One change. ``device`` is the device that it concerns, None for the root and for a freeze.

    ``by`` is the device that signed; for what the root signed (``by_root``), the device that the entry names, None if it
    names none. ``at`` is its maker's clock in milliseconds, 0 if this device cannot open it.
    """

    slot: int
    kind: ChangeKind
    device: bytes | None
    name: str | None
    by: bytes | None
    by_name: str | None
    by_root: bool
    at: int


def vault_changes(member: Member, after: int | None = None) -> list[VaultChange]:
    """The changes that the person has not been shown yet, in order; with ``after``, those after that slot."""
    shown = shown_slot(member) if after is None else after
    own = own_slots(member.journal)
    told = (
        _told(member, event) for event in member.log.events if event.slot > shown and event.slot not in own
    )
    return [found for found in told if found is not None]


def shown_slot(member: Member) -> int:
    """The slot up to which everything was shown; initially the device's own place in the log."""
    kept = member.journal.meta_get(META_SHOWN)
    if kept is not None:
        return int.from_bytes(kept, "big")
    info = member.log.member(member.device_id)
    return info.slot if info is not None else -1


def mark_shown(journal: Journal, slot: int) -> None:
    """Records that everything up to ``slot`` was shown."""
    with journal.transaction() as transaction:
        kept = transaction.meta_get(META_SHOWN)
        if kept is None or int.from_bytes(kept, "big") < slot:
            transaction.meta_set(META_SHOWN, slot.to_bytes(_SLOT_BYTES, "big"))


def _told(member: Member, event: LogEvent) -> VaultChange | None:
    device: bytes | None = None
    match event.record:
        case AddRecord():
            kind, device = ChangeKind.ADDED, event.record.device
            if device == member.device_id:
                return None
        case RevokeRecord():
            kind, device = ChangeKind.REVOKED, event.record.device
        case RootRecord():
            if event.slot == 0:
                return None
            kind = ChangeKind.ROOT_REPLACED
        case LeadRecord():
            if event.record.epoch == 1:  # the founder's: the Core did not change
                return None
            freezes = event.record.device == NOBODY
            kind, device = (
                (ChangeKind.FROZEN, None) if freezes else (ChangeKind.NEW_CORE, event.record.device)
            )
        case GrantRecord():
            kind, device = ChangeKind.GRANTED, event.record.device
        case _:
            return None
    details = details_of(member, event.entry)
    by_root = event.sender == ROOT_SENDER
    by: bytes | None = event.sender
    if by_root:
        by = details.by if details is not None and member.log.member(details.by) is not None else None
    return VaultChange(
        slot=event.slot,
        kind=kind,
        device=device,
        name=device_name(member, device) if device is not None else None,
        by=by,
        by_name=device_name(member, by) if by is not None else None,
        by_root=by_root,
        at=details.at if details is not None else 0,
    )
