"""Changes to the vault's devices: names, grants, new keys, and what a revoked device left.

Each function reads the device log first, writes at most one entry, and tells the relay what follows. All may be repeated.
"""

from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.administration import grant_lead, rename, renew_generation
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.held_entries import (
    Accepted,
    accept_held,
    drop_held,
    held_locally,
    held_places,
)
from crystal_mirror.requests import Flow
from crystal_node.base.clock import now_ms
from crystal_node.device.device import Device
from crystal_node.search.devices import keep_names
from crystal_node.sync.members.rights import check_administers
from crystal_node.sync.syncer import Syncer, syncing

_PURPOSE = "crystal devices"


async def rename_device(device: Device, target: bytes, name: str) -> bool:
    """Renames a device. Returns False if it has that name already. Raises NotAllowed, NotAMember, NameTaken,
    StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        fresh = await syncer.run(rename(device.member, target, name, now_ms=now_ms()))
        keep_names(device.member)
        return fresh


async def grant_device(device: Device, target: bytes) -> bool:
    """Grants a device the right to become the Core, in the log and at the relay. Returns False if it had it already.

    Raises:
        NotAllowed, NotAMember, StoreFailure.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        fresh = await syncer.run(grant_lead(device.member, target, now_ms=now_ms()))
        await syncer.do_duties()
        return fresh


async def renew_keys(device: Device) -> int:
    """Begins a new key generation. Returns its number. Raises NotAllowed, StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await _look(device, syncer)
        return await syncer.run(renew_generation(device.member, now_ms=now_ms()))


async def count_held(device: Device, target: bytes) -> tuple[int, int]:
    """Counts the entries of a revoked device held on the relay, and its operations that only this device has.

    Raises:
        NotAMember: it is no revoked device.
        StoreFailure: the relay cannot be asked.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.run(_read_log(device.member))
        places = await syncer.run(held_places(device.member, target))
        return len(places), held_locally(device.member, target)


async def accept_left(device: Device, target: bytes) -> Accepted:
    """Moves held entries of a revoked device into this device's outbox, and sends them. Raises NotAMember, StoreFailure."""
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.round()
        accepted = await syncer.run(accept_held(device.member, target))
        await syncer.round()
        return accepted


async def drop_left(device: Device, target: bytes) -> int:
    """Discards held entries of a revoked device. Returns how many.

    Raises:
        NotAllowed, NotAMember, StoreFailure.
    """
    async with syncing(device, _PURPOSE) as syncer:
        await syncer.round()
        dropped = held_locally(device.member, target)
        dropped += await syncer.run(drop_held(device.member, target))
        await syncer.round()
        return dropped


async def _look(device: Device, syncer: Syncer) -> None:
    """Reads the log and checks that this device may write it."""
    await syncer.run(_read_log(device.member))
    check_administers(device.member)


def _read_log(member: Member) -> Flow[bool]:
    return read_log(member.log, member.journal, member.keys, member.notices)
