"""The vault's devices as ``crystal devices`` lists them: from the device log, and from what each last reported of itself.

The relay is asked for both, for a few seconds; without it, what is known here is shown, and said to be that. What a device
reports of itself (last seen, position, whether it holds the root) may be false; nothing depends on it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_mirror.devicelog.log import ROOT_SENDER
from crystal_mirror.devicelog.records import Details, RootRecord
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import Revoked
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import DeviceEntry, device_name, devices
from crystal_mirror.requests import Flow
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe
from crystal_node.device.access import Access, note_access
from crystal_node.device.device import Device
from crystal_node.sync.members.root_holders import RootKnowledge, known_of

REFRESH_SECONDS_MAX = 4.0


class JoinMethod(StrEnum):
    """How a device came into the vault."""

    FOUNDER = "founder"
    CODE = "code"
    INVITE = "invite"


@dataclass(frozen=True, slots=True)
class Party:
    """The device that did something: by its signature or, with ``by_root``, as named in an entry that the root signed."""

    device: bytes | None
    name: str | None
    by_root: bool


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One device. Times are in milliseconds by the clock of their origin, 0 if unknown; counts are None if unknown.

    ``behind``: mirror entries that some device has applied and this one has not. ``pending``: operations of it that are not
    durable yet. ``root``: what is known of it and the root in force.
    """

    entry: DeviceEntry
    way: JoinMethod
    added_by: Party
    seen_at: int
    behind: int | None
    pending: int | None
    root: RootKnowledge
    version: str
    revoked_by: Party | None

    @property
    def revoked(self) -> bool:
        return self.entry.info.revoked is not None


async def refresh(device: Device) -> str:
    """Reads the log and the devices' positions from the relay. Returns why that failed, "" if it did not."""
    # Lazy: `crystal status` lists devices without the network.
    import asyncio

    from crystal_node.device.runner import Runner, TokenRefused
    from crystal_relay.errors import RelayError

    try:
        async with asyncio.timeout(REFRESH_SECONDS_MAX), device.online() as store:
            await Runner(store, None).run(_read(device.member))
    except TimeoutError:
        return "the relay did not answer in time"
    except (CrystalError, RelayError) as error:
        if isinstance(error, (Revoked, TokenRefused)):
            note_access(device.journal, Access.REVOKED if isinstance(error, Revoked) else Access.REFUSED)
        return describe(error).message
    return ""


def rows_of(device: Device) -> list[MemberRow]:
    """All devices, revoked ones too, in the order in which they came. No network."""
    member = device.member
    entries = devices(member)
    furthest = max([_own_place(member), *(_place(entry) for entry in entries if entry.cursor is not None)])
    return [_row(device, entry, furthest) for entry in entries]


def _read(member: Member) -> Flow[None]:
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    member.check_active()
    yield from read_cursors(member)


def _row(device: Device, entry: DeviceEntry, furthest: tuple[int, int]) -> MemberRow:
    member, info, cursor = device.member, entry.info, entry.cursor
    revoked = info.revoked
    behind = pending = None
    if entry.is_this:
        behind, pending = (
            _entries_between(member, _own_place(member), furthest),
            device.journal.outbox_count(),
        )
    elif cursor is not None and revoked is None:
        behind, pending = _entries_between(member, _place(entry), furthest), cursor.pending
    return MemberRow(
        entry=entry,
        way=_way(member, entry),
        added_by=_party(member, info.entry.header.sender, entry.added),
        seen_at=now_ms() if entry.is_this else cursor.told_at if cursor is not None else 0,
        behind=behind,
        pending=pending,
        root=_root(device, entry),
        version=cursor.version if cursor is not None else "",
        revoked_by=_party(member, revoked.sender, entry.revoked_details) if revoked is not None else None,
    )


def _root(device: Device, entry: DeviceEntry) -> RootKnowledge:
    known = known_of(device.member, entry.info.device)
    return replace(known, says=device.holds_root) if entry.is_this else known


def _way(member: Member, entry: DeviceEntry) -> JoinMethod:
    first = member.log.events[0].record
    if isinstance(first, RootRecord) and first.holder == entry.info.device:
        return JoinMethod.FOUNDER
    by_itself = entry.added is not None and entry.added.by == entry.info.device
    return JoinMethod.CODE if entry.info.by_root and by_itself else JoinMethod.INVITE


def _party(member: Member, sender: bytes, details: Details | None) -> Party:
    if sender != ROOT_SENDER:
        return Party(sender, device_name(member, sender), False)
    named = details.by if details is not None and member.log.member(details.by) is not None else None
    return Party(named, device_name(member, named) if named is not None else None, True)


def _place(entry: DeviceEntry) -> tuple[int, int]:
    cursor = entry.cursor
    return (cursor.epoch, cursor.sequence) if cursor is not None else (0, 0)


def _own_place(member: Member) -> tuple[int, int]:
    position = member.replica.position()
    return position.epoch, position.sequence


def _entries_between(member: Member, place: tuple[int, int], furthest: tuple[int, int]) -> int | None:
    """The number of mirror entries between two places; None if this device does not keep the end of an epoch between."""
    (epoch, sequence), (last_epoch, last_sequence) = place, furthest
    count = 0
    while epoch < last_epoch:
        end = member.replica.last_entry(epoch)
        if end is None:
            return None
        count += max(end.sequence + 1 - sequence, 0)
        epoch, sequence = epoch + 1, 0
    return count + max(last_sequence - sequence, 0)
