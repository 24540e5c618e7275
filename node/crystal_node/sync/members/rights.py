"""What this device may do to its vault. Each check raises NotAllowed and names the device that may."""

from crystal_crypto.hierarchy import Root
from crystal_mirror.errors import NotAllowed, frozen_vault
from crystal_mirror.membership.authority import authority
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name, devices
from crystal_node.base.wording import one_line
from crystal_node.device.device import Device
from crystal_node.sync.members.names import name_of


def check_is_core(device: Device, what: str) -> None:
    """``what`` completes "only the Core …": "makes snapshots". Raises NotAllowed unless this device is the Core."""
    member = device.member
    if member.is_core:
        return
    lead = member.log.lead
    if lead is not None and lead.is_freeze:
        raise frozen_vault("do what a Core does")
    core = next((entry for entry in devices(member) if entry.leads), None)
    name = name_of(core) if core is not None else "none yet"
    raise NotAllowed(f"only the Core {what}, and the Core is {name}", hint="Run the same command there.")


def check_administers(member: Member, root: Root | None = None) -> None:
    """Raises NotAllowed unless this device may change the device log; ``root``: from the recovery kit."""
    member.check_active()
    try:
        authority(member, root)
    except NotAllowed as error:
        lead = member.log.lead
        core = device_name(member, lead.device) if lead is not None else None
        if lead is not None and lead.is_freeze:
            raise frozen_vault("do that") from error
        named = f"the Core ({one_line(core, 40)})" if core else "the Core"
        raise NotAllowed(
            f"this machine cannot do that: only {named} can, or a machine that holds the vault's root",
            hint=f"Do it on {one_line(core, 40) if core else 'the Core'}.",
        ) from error
