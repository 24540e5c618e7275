"""Changing what the vault knows of its devices, on a real device: names, grants, new keys, and what a revoked device left.

Each reads the device log first, writes one entry at most, and tells the relay what follows from it. All can be repeated.
"""

from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.administration import grant_lead, rename, renew_generation
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.held_entries import (
    Accepted,
    accept_held,
    drop_held,
    held_orphans,
    held_places,
)
from crystal_mirror.requests import Flow
from crystal_node.base.clock import now_ms
from crystal_node.device.device import Device
from crystal_node.sync.members.rights import check_administers
from crystal_node.sync.syncer import Syncer, syncing

_PURPOSE = "crystal devices"


async def rename_device(device: Device, target: bytes, name: str) -> bool:
    """Gives a device another name. Returns False if it had it already. Raises NotAllowed, NotAMember, StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        return await syncer.run(rename(device.member, target, name, now_ms=now_ms()))


async def grant_device(device: Device, target: bytes) -> bool:
    """Lets a device take the lead by itself: in the log, and at the relay. Returns False if it could already.

    Raises:
        NotAllowed, NotAMember, StoreFailure.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        fresh = await syncer.run(grant_lead(device.member, target, now_ms=now_ms()))
        await syncer.do_duties()
        return fresh


async def renew_keys(device: Device) -> int:
    """Begins a new generation now. Returns its number. Raises NotAllowed, StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        return await syncer.run(renew_generation(device.member, now_ms=now_ms()))


async def count_held(device: Device, target: bytes) -> tuple[int, int]:
    """How many entries of a revoked device are held on the relay, and how many operations of it on this device alone.

    Raises:
        NotAMember: it is no revoked device.
        StoreFailure: the relay cannot be asked.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.run(_read_log(device.member))
        places = await syncer.run(held_places(device.member, target))
        return len(places), held_orphans(device.member, target)


async def accept_left(device: Device, target: bytes) -> Accepted:
    """Takes what is held of a revoked device into this device's outbox, and sends it. Raises NotAMember, StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.round()
        accepted = await syncer.run(accept_held(device.member, target))
        await syncer.round()
        return accepted


async def drop_left(device: Device, target: bytes) -> int:
    """Has what is held of a revoked device count as done. Returns how many entries.

    Raises:
        NotAllowed, NotAMember, StoreFailure.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.round()
        dropped = held_orphans(device.member, target)
        dropped += await syncer.run(drop_held(device.member, target))
        await syncer.round()
        return dropped


async def _look(device: Device, syncer: Syncer) -> None:
    """The log as it is now, and whether this device may write it."""
    await syncer.run(_read_log(device.member))
    check_administers(device.member)


def _read_log(member: Member) -> Flow[bool]:
    return read_log(member.log, member.journal, member.keys, member.notices)
