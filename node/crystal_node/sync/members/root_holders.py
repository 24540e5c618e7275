"""Which devices have the vault's root, as far as this device can tell. For people; nothing is decided by it.

The device log and a device's own report are told apart. The log knows who made the root in force and who joined with it. Of
other devices it knows only that the root signed their entry or their lead: who held the root may have handed it on.
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
    """``by_log``: None if the log does not tie the device to the root. ``says``: its own report on the root in force; None if
    it has not reported since."""

    by_log: ByLog | None
    says: bool | None

    @property
    def words(self) -> str:
        """A few words to follow a device's name; "" if nothing suggests that it has the root."""
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
    """What is known of one device and the root."""
    return RootKnowledge(_by_log(member, device), says_root(member, device))


def holders(member: Member) -> list[tuple[str, RootKnowledge]]:
    """The other active devices that may have the root, by name."""
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
    """Whether the entry that added the device, signed by the root, says that it came with the root."""
    return any(
        isinstance(event.record, AddRecord) and event.record.holds_root
        for event in member.log.events
        if event.slot == slot
    )
