"""What a device knows about itself and its vault; no network."""

from dataclasses import dataclass

from crystal_crypto.entry import Entry
from crystal_mirror.devicelog.log import MemberInfo
from crystal_mirror.devicelog.records import Details, entry_details
from crystal_mirror.membership.cursors import Cursor, seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.ports import OutboxState
from crystal_mirror.types import EntryState

_HELD = frozenset(
    {
        Notice.STREAM_TAMPERED.value,
        Notice.STREAM_UNREADABLE.value,
        Notice.MIRROR_UNREADABLE.value,
        Notice.QUARANTINED.value,
        Notice.PEER_AHEAD.value,
        Notice.HELD_REVOKED.value,
    }
)


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A device's status.

    ``epoch`` is the latest in the log, ``position`` the mirror slot that this device reads or writes next. ``pending``
    operations wait here; ``stored`` ones are on the relay and not yet durable. ``quarantined`` counts what could not be
    taken and is kept: void slots, and streams or slots that are held.
    """

    vault: bytes
    device: bytes
    is_core: bool
    epoch: int
    position: tuple[int, int]
    digest: bytes
    pending: int
    stored: int
    unsent: int
    quarantined: int
    void_slots: int
    notices: dict[str, str]
    raised: dict[str, int]


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """One device of the log, revoked ones included.

    ``details`` is its newest name and system, ``added`` the details of its ``add`` entry; None if this device cannot open
    them. ``cursor`` is its own last report, None if unknown here. ``revoked_details`` tell when and where it was revoked.
    """

    info: MemberInfo
    details: Details | None
    added: Details | None
    leads: bool
    is_this: bool
    cursor: Cursor | None
    revoked_details: Details | None


def status(member: Member) -> MemberStatus:
    """Reads the member's databases; no network."""
    rows = member.journal.names()
    position = member.replica.position()
    void = member.log.void_slots + len(member.replica.kept(EntryState.VOID))
    notices = member.notices.current()
    return MemberStatus(
        vault=member.vault,
        device=member.device_id,
        is_core=member.is_core,
        epoch=member.log.lead.epoch if member.log.lead else 0,
        position=(position.epoch, position.sequence),
        digest=member.replica.digest().to_bytes(),
        pending=sum(row.state is OutboxState.PENDING for row in rows),
        stored=sum(row.state is OutboxState.STORED for row in rows),
        unsent=len(member.replica.kept(EntryState.UNSENT)),
        quarantined=void + sum(name in _HELD for name in notices),
        void_slots=void,
        notices=notices,
        raised=member.notices.raised(),
    )


def devices(member: Member) -> list[DeviceEntry]:
    """The vault's devices, in the order in which they were added; no network."""
    log, lead = member.log, member.log.lead
    cursors = {cursor.device: cursor for cursor in seen_cursors(member)}
    return [
        DeviceEntry(
            info=info,
            details=details_of(member, info.named),
            added=details_of(member, info.entry),
            leads=lead is not None and lead.device == info.device,
            is_this=info.device == member.device_id,
            cursor=cursors.get(info.device),
            revoked_details=details_of(member, info.revoked.entry) if info.revoked else None,
        )
        for info in sorted(log.members(), key=lambda info: info.slot)
    ]


def details_of(member: Member, entry: Entry) -> Details | None:
    """The private part of a log entry, as far as this device can open it."""
    return entry_details(entry, member.key_for(entry.header.generation))


def device_name(member: Member, device: bytes) -> str | None:
    """The name of a device, as far as this device can open it."""
    info = member.log.member(device)
    details = details_of(member, info.named) if info is not None else None
    return details.name if details is not None else None
