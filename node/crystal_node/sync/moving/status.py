"""Status of the Core: who it is, since when and by whose signature; how far each device is; what a forced promotion would
lose.

The relay is asked, for a few seconds; without it, what is known here is shown, and said to be that. Positions of other devices
are their own reports.
"""

import asyncio
from dataclasses import dataclass

from crystal_crypto.errors import CrystalError
from crystal_mirror.devicelog.log import ROOT_SENDER, Lead
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.handover.terms import told_by
from crystal_mirror.membership.cursors import Cursor, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import details_of, device_name
from crystal_mirror.replication.claim import lost_by_claim
from crystal_mirror.requests import Flow
from crystal_node.base.errors import describe
from crystal_node.device.device import Device
from crystal_node.device.runner import Runner
from crystal_node.sync.members.device_list import REFRESH_SECONDS_MAX, MemberRow, rows_of
from crystal_relay.errors import RelayError


@dataclass(frozen=True, slots=True)
class Loss:
    """A device that has applied entries that neither this one nor the relay has, up to ``slot``."""

    device: bytes
    name: str | None
    epoch: int
    slot: int


@dataclass(frozen=True, slots=True)
class EpochInfo:
    """The latest epoch. ``core``: None while the vault is frozen. ``by``: the device that signed it, None for the root. ``at``:
    when, by the signer's clock, 0 if unknown."""

    core: bytes | None
    name: str | None
    epoch: int
    slot: int
    at: int
    by: bytes | None
    by_name: str | None


@dataclass(frozen=True, slots=True)
class CoreStatus:
    """What ``crystal role`` shows. ``losses`` is None if the relay could not be asked; ``problem`` says why."""

    role: str
    epoch_info: EpochInfo | None
    rows: tuple[MemberRow, ...]
    losses: tuple[Loss, ...] | None
    core_pending: int | None
    problem: str


async def core_status(device: Device) -> CoreStatus:
    """Asks the relay, and returns what is known."""
    member = device.member
    losses: tuple[Loss, ...] | None = None
    problem = ""
    try:
        async with asyncio.timeout(REFRESH_SECONDS_MAX), device.online() as store:
            losses = await Runner(store, None).run(look_for_losses(member))
    except TimeoutError:
        problem = "the relay did not answer in time"
    except (CrystalError, RelayError) as error:
        problem = describe(error).message
    lead = member.log.lead
    core = told_by(member, lead.device) if lead is not None else None
    return CoreStatus(
        role="core" if member.is_core else "node",
        epoch_info=epoch_info(member, lead) if lead is not None else None,
        rows=tuple(row for row in rows_of(device) if not row.revoked),
        losses=losses,
        core_pending=core.pending if core is not None and not member.is_core else None,
        problem=problem,
    )


def look_for_losses(member: Member) -> Flow[tuple[Loss, ...]]:
    """Reads the log and the devices' positions. Raises Revoked, StoreFailure."""
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    member.check_active()
    yield from read_cursors(member)
    return tuple(_loss(member, cursor) for cursor in (yield from lost_by_claim(member)))


def epoch_info(member: Member, lead: Lead) -> EpochInfo:
    event = next(event for event in member.log.events if event.slot == lead.slot)
    details = details_of(member, event.entry)
    by = None if event.sender == ROOT_SENDER else event.sender
    return EpochInfo(
        core=None if lead.is_freeze else lead.device,
        name=device_name(member, lead.device),
        epoch=lead.epoch,
        slot=lead.slot,
        at=details.at if details is not None else 0,
        by=by,
        by_name=device_name(member, by) if by is not None else None,
    )


def _loss(member: Member, cursor: Cursor) -> Loss:
    return Loss(cursor.device, device_name(member, cursor.device), cursor.epoch, cursor.sequence - 1)
