"""What ``crystal status`` asks the person to look after: things about the vault that no round of sync mends by itself."""

from dataclasses import dataclass
from enum import StrEnum

from crystal_mirror.status import DeviceEntry, device_name, devices
from crystal_node.agent.health.kitreminder import KIT_FIX, kit_reminder
from crystal_node.base.clock import now_ms
from crystal_node.base.wording import one_line
from crystal_node.device.access import TEXTS, Access, read_access
from crystal_node.device.device import Device
from crystal_node.sync.embedding_notes import META_PROBLEM
from crystal_node.sync.members.due import duties_due, unfinished
from crystal_node.sync.members.naming import name_of
from crystal_node.sync.replication.checks import other_model

ARRIVES_MS_MAX = 3600 * 1000
"""A newcomer that was not heard of for this long after it was added is worth a word."""


class ConcernName(StrEnum):
    """The names, for programs."""

    REVOKED = "revoked"
    REFUSED = "refused"
    FROZEN = "frozen"
    REVOCATION_UNFINISHED = "revocation-unfinished"
    RELAY_NOT_TOLD = "relay-not-told"
    ROOT_REPLACED = "root-replaced"
    OTHER_MODEL = "vectors-of-another-model"
    NO_VECTORS = "texts-without-vectors"
    KIT = "recovery-kit"
    NEVER_ARRIVED = "never-arrived"


@dataclass(frozen=True, slots=True)
class Concern:
    """One of them, with what to do about it."""

    name: ConcernName
    text: str


def concerns(device: Device) -> list[Concern]:
    """All that there are, what matters most first. No network."""
    member = device.member
    if not member.log.is_active(member.device_id):
        return [Concern(ConcernName.REVOKED, TEXTS[Access.REVOKED])]
    found: list[Concern] = []
    if read_access(device.journal) is Access.REFUSED:
        found.append(Concern(ConcernName.REFUSED, TEXTS[Access.REFUSED]))
    if member.log.lead is not None and member.log.lead.is_freeze:
        text = (
            "The vault is frozen: no machine is its Core, and nothing that is recorded reaches the others. "
            "`crystal promote`, on a machine that may lead, ends that."
        )
        found.append(Concern(ConcernName.FROZEN, text))
    begun = unfinished(device)
    if begun is not None:
        name = one_line(device_name(member, begun) or begun.hex()[:8], 40)
        found.append(
            Concern(
                ConcernName.REVOCATION_UNFINISHED,
                f"The revocation of {name} is not finished: run `crystal devices revoke {begun.hex()[:8]}` again.",
            )
        )
    if duties_due(device):
        text = "The relay was not told yet of the last revocation, root or grant: `crystal sync` does it."
        found.append(Concern(ConcernName.RELAY_NOT_TOLD, text))
    if device.root is not None and not device.holds_root:
        text = (
            "The vault's root that is kept here was replaced, and has no power any more: this machine no longer holds the "
            "root. If it shall, pair it with the newest code."
        )
        found.append(Concern(ConcernName.ROOT_REPLACED, text))
    if other_model(device):
        text = "The vault's vectors are of another model than this Core is set to: `crystal embed migrate` makes all anew."
        found.append(Concern(ConcernName.OTHER_MODEL, text))
    problem = device.journal.meta_get(META_PROBLEM)
    if member.is_core and problem is not None:
        text = (
            f"New text gets no vectors for now and is found by its words: {one_line(problem.decode(), 300)}. It gets them when "
            "that is over; `crystal embed status` tries it."
        )
        found.append(Concern(ConcernName.NO_VECTORS, text))
    reminder = kit_reminder(device.settings, member)
    if reminder is not None:
        found.append(Concern(ConcernName.KIT, f"{reminder[:1].upper()}{reminder[1:]}. {KIT_FIX}"))
    for entry in _never_arrived(device):
        text = (
            f"{name_of(entry)} was added, and was not heard of since. If it never finished joining, pair it again; if you do "
            f"not know it, revoke it: `crystal devices revoke {entry.info.device.hex()[:8]}`."
        )
        found.append(Concern(ConcernName.NEVER_ARRIVED, text))
    return found


def _never_arrived(device: Device) -> list[DeviceEntry]:
    """Devices that were added a while ago, and were not heard of since. They may never have finished joining."""
    now = now_ms()
    return [
        entry
        for entry in devices(device.member)
        if entry.cursor is None
        and entry.info.revoked is None
        and not entry.is_this
        and not entry.leads
        and entry.added is not None
        and now - entry.added.at > ARRIVES_MS_MAX
    ]
