"""A word for who has no recovery kit that works, as far as this device knows."""

from typing import TYPE_CHECKING

from crystal_node.base.settings import Settings
from crystal_node.device.kit.state import KitState, kit_state

if TYPE_CHECKING:
    from crystal_mirror.member import Member

KIT_FIX = "`crystal recovery show` shows the kit, `crystal recovery verify` has you type it back."


def kit_reminder(settings: Settings, member: "Member") -> str | None:
    """A sentence; None if there is a kit that works."""
    from crystal_node.sync.members.rootholders import holders

    match kit_state(settings.config, member.log.root):
        case KitState.NEVER if member.root is not None or not holders(member):
            return "the recovery kit was never verified: whoever loses all devices without it loses the vault"
        case KitState.OUTDATED:
            return "the recovery kit is of a root that was replaced: it opens nothing any more"
        case _:
            return None
