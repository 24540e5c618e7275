"""What only the Core does, and what another device says instead: who the Core is."""

from crystal_mirror.errors import NotAllowed, frozen_vault
from crystal_mirror.membership.status import devices
from crystal_node.device.device import Device
from crystal_node.sync.members.names import name_of


def check_is_core(device: Device, what: str) -> None:
    """``what`` goes on from "the Core": "makes snapshots". Raises NotAllowed, which names the Core."""
    member = device.member
    if member.is_core:
        return
    lead = member.log.lead
    if lead is not None and lead.is_freeze:
        raise frozen_vault("do what a Core does")
    core = next((entry for entry in devices(member) if entry.leads), None)
    name = name_of(core) if core is not None else "none yet"
    raise NotAllowed(f"only the Core {what}, and the Core is {name}", hint="Run the same command there.")
