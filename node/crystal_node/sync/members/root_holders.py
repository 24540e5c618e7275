"""Who has the vault's root, as exactly as this device can tell, for whoever reads a list. Nothing is decided by it.

Two things are told apart: what the device log says of a device, and what that device last said of itself. The log knows who
made the root in force and who joined with it. For other devices it knows only that the root had a hand in their coming or in
their lead, and then whoever held the root may have handed it on. A device's own word is no more than that.
"""

from dataclasses import dataclass
from enum import StrEnum

from crystal_mirror.devicelog.records import AddRecord
from crystal_mirror.membership.administration import may_have_root
from crystal_mirror.membership.cursors import says_root
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name


class ByLog(StrEnum):
    """What the log says of a device and the root in force."""

    MADE = "made"
    JOINED = "joined-with-it"
    MAY_HAVE = "may-have"


@dataclass(frozen=True, slots=True)
class RootKnowledge:
    """``by_log``: None if the log ties the device to no root. ``says``: its own word, of the root in force; None if it has not
    said anything since that one is in force."""

    by_log: ByLog | None
    says: bool | None

    @property
    def words(self) -> str:
        """In a few words, as follows a device's name; "" if nothing speaks for it."""
        denies = ", says it holds it no more" if self.says is False else ""
        match self.by_log:
            case ByLog.MADE:
                return f"made the root{denies}"
            case ByLog.JOINED:
                return f"joined with the root{denies}"
            case _ if self.says:
                return "says it holds the root"
            case ByLog.MAY_HAVE:
                return "may have the root" + (", says it does not" if self.says is False else "")
            case None:
                return ""


def known_of(member: Member, device: bytes) -> RootKnowledge:
    """What is known of another device."""
    return RootKnowledge(_by_log(member, device), says_root(member, device))


def holders(member: Member) -> list[tuple[str, RootKnowledge]]:
    """The other devices for which anything speaks, by name, without revoked ones."""
    return [
        (device_name(member, info.device) or info.device.hex()[:8], known)
        for info in member.log.active()
        if info.device != member.device_id and (known := known_of(member, info.device)).words
    ]


def _by_log(member: Member, device: bytes) -> ByLog | None:
    log = member.log
    if log.root is not None and log.root.holder == device:
        return ByLog.MADE
    info = log.member(device)
    if (
        info is not None
        and info.by_root
        and info.slot > log.root_slot
        and _says_it_came_with_it(member, info.slot)
    ):
        return ByLog.JOINED
    return ByLog.MAY_HAVE if may_have_root(member, device) else None


def _says_it_came_with_it(member: Member, slot: int) -> bool:
    """Signed by the root itself: by whoever had it."""
    return any(
        isinstance(event.record, AddRecord) and event.record.holds_root
        for event in member.log.events
        if event.slot == slot
    )
