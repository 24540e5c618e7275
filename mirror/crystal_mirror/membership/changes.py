"""News: that a device was added or revoked, leads or may lead, or that the root was replaced, and by which. Every device shows
its person each one once.

They come from the verified log alone: a relay can hold news back, and make none up. What this very device did is no news to
it, and that it was this device is known from its own journal: an entry's own word on where it was made is its signer's word,
and whoever took a device in by stealth would name the one from which to hide it.

A device that joins starts after its own entry. How far it has shown is kept in its journal, and moves forward only.
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
    """A device began to lead, the one that led before as well: a copy of it may be who did."""
    FROZEN = "frozen"
    """Nobody leads from there on."""
    GRANTED = "granted"
    """A device may take the lead by itself."""


@dataclass(frozen=True, slots=True)
class VaultChange:
    """One of them. ``device`` is whom it is about, None for the root and for a freeze.

    ``by`` is the device that signed; for what the root signed (``by_root``), the one that the entry names, None if it names
    none. ``at`` is its maker's clock, in milliseconds, 0 if this device cannot open it.
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
    """What the person has not been shown yet, in order; with ``after``, what stands behind that slot."""
    shown = shown_slot(member) if after is None else after
    own = own_slots(member.journal)
    told = (
        _told(member, event) for event in member.log.events if event.slot > shown and event.slot not in own
    )
    return [found for found in told if found is not None]


def shown_slot(member: Member) -> int:
    """The slot up to which everything was shown; for a device that never showed any, its own place in the log."""
    kept = member.journal.meta_get(META_SHOWN)
    if kept is not None:
        return int.from_bytes(kept, "big")
    info = member.log.member(member.device_id)
    return info.slot if info is not None else -1


def mark_shown(journal: Journal, slot: int) -> None:
    """Everything up to ``slot`` was shown."""
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
            if event.record.epoch == 1:  # the founder's: it is no other Core than before
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
