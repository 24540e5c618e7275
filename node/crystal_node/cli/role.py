"""``crystal role``: what this device is to its vault."""

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say


def run(as_json: Json = False, debug: Debug = False) -> None:
    """Say whether this machine is the Core or a Node, and who the Core is.

    Example:

        crystal role
    """
    from crystal_mirror.status import devices
    from crystal_node.device import opened
    from crystal_node.settings import resolve
    from crystal_node.wording import one_line

    with opened(resolve()) as device:
        member = device.member
        lead = member.log.lead
        core = next((entry for entry in devices(member) if entry.leads), None)
        role = "core" if member.is_core else "node"
    name = core.details.name if core is not None and core.details is not None else None
    core_id = core.info.device.hex() if core is not None else None
    if as_json:
        emit(
            {
                "role": role,
                "device": member.device_id.hex(),
                "epoch": lead.epoch if lead else 0,
                "core": {"id": core_id, "name": name} if core_id else None,
            }
        )
        return
    if role == "core":
        say(f"core: this machine embeds and orders for the vault (epoch {lead.epoch if lead else 0}).")
    elif core_id:
        say(f"node: the Core is {one_line(name or '?', 40)} ({core_id[:8]}).")
    else:
        say("node: the vault has no Core yet.")
