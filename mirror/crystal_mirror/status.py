"""What a device knows about itself and its vault, without asking anybody."""

from dataclasses import dataclass

from crystal_mirror.devicelog import DeviceDetails, MemberInfo, read_details
from crystal_mirror.member import Member
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
    }
)


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A device's standing.

    ``epoch`` is the latest that the log names, ``position`` the mirror slot that this device reads or writes next.
    ``pending`` operations wait here, ``stored`` ones are on the relay and not yet durable. ``quarantined`` counts what
    could not be taken and is kept: void slots, and streams or slots that are held.
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
    """One device as the log lists it. ``details`` is None if this device cannot open that entry's body."""

    info: MemberInfo
    details: DeviceDetails | None
    leads: bool
    is_this: bool


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
    """The vault's devices, in the order in which they were added."""
    lead = member.log.lead
    entries: list[DeviceEntry] = []
    for info in sorted(member.log.members(), key=lambda info: info.slot):
        key = member.key_for(info.generation)
        entries.append(
            DeviceEntry(
                info=info,
                details=read_details(info, key) if key else None,
                leads=lead is not None and lead.device == info.device,
                is_this=info.device == member.device_id,
            )
        )
    return entries
