"""What this device has to tell the relay and has not told it yet, from its journal and the device log. No network.

``duties`` tells it. Kept apart, so that ``crystal status`` need not load an HTTP client.
"""

from dataclasses import dataclass

from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.sync import META_PUT_BACK
from crystal_mirror.types import DEVICE_ID_BYTES
from crystal_node.device.device import Device

META_REVOKING = "node.revoking"
"""The device for whose revocation the root is being replaced here, until all of it is done."""
META_MEMBERS = "relay.members"
META_RECOVERY = "relay.recovery"
META_LEADS = "relay.leads"


@dataclass(frozen=True, slots=True)
class DutiesDue:
    """What this device may tell the relay, and has not."""

    members: bool
    recovery: bool
    leads: tuple[bytes, ...]

    def __bool__(self) -> bool:
        return self.members or self.recovery or bool(self.leads)


def duties_due(device: Device) -> DutiesDue:
    """Reads the journal only."""
    member, journal = device.member, device.journal
    log = member.log
    if not log.is_active(member.device_id) or not (member.is_core or device.holds_root):
        return DutiesDue(False, False, ())
    lost = relay_lost(device)
    told = 0 if lost else int.from_bytes(journal.meta_get(META_MEMBERS) or b"", "big")
    told_root = None if lost else journal.meta_get(META_RECOVERY)
    told_granted = set[bytes]() if lost else set(told_leads(device))
    return DutiesDue(
        members=newest_exclusion(log) > told,
        recovery=device.holds_root and log.root_number > 0 and told_root != admin_in_force(log),
        leads=tuple(sorted(granted(log) - told_granted)),
    )


def relay_lost(device: Device) -> bool:
    """Whether the relay lost part of the device log, which was put back, and so forgot what it was told."""
    return device.journal.meta_get(META_PUT_BACK) is not None


def settling_due(device: Device) -> bool:
    """Whether a root rotation that is in the log, and known to the relay, has to be completed here."""
    target = device.journal.meta_get(META_REVOKING)
    ended = target is not None and not device.member.log.is_active(target)
    return ended or (device.spare_root is not None and device.holds_root)


def unfinished(device: Device) -> bytes | None:
    """The device whose revocation was begun here and has no entry in the log yet; None if there is none."""
    target = device.journal.meta_get(META_REVOKING)
    return target if target is not None and device.member.log.is_active(target) else None


def newest_exclusion(log: DeviceLog) -> int:
    """The slot of the newest revocation or root rotation; 0 if there is none. A holder of the old root may have registered
    tokens at the relay that the log does not know."""
    revoked = (info.revoked.slot for info in log.members() if info.revoked is not None)
    return max(log.root_slot if log.root_number else 0, *revoked, 0)


def granted(log: DeviceLog) -> set[bytes]:
    """The devices that may take the lead by themselves."""
    return {info.device for info in log.active() if info.grant}


def told_leads(device: Device) -> list[bytes]:
    kept = device.journal.meta_get(META_LEADS) or b""
    return [kept[at : at + DEVICE_ID_BYTES] for at in range(0, len(kept), DEVICE_ID_BYTES)]


def admin_in_force(log: DeviceLog) -> bytes:
    assert log.root is not None, "a vault with devices has a root"
    return log.root.admin
