"""Findings on the vault: what about it only a person decides. Nothing here uses the network."""

from collections.abc import Iterator

from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import DeviceEntry, device_name, devices
from crystal_node.agent.health.facts import asking_for_grant
from crystal_node.agent.health.findings import ARRIVES_MS_MAX, Finding, FindingName, Severity
from crystal_node.base.clock import now_ms
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted, one_line
from crystal_node.device.access import TEXTS, Access, read_access
from crystal_node.device.device import Device
from crystal_node.device.planned_deletion import read_planned
from crystal_node.device.recovery_kit import KitState, kit_state
from crystal_node.sync.embedding_notes import META_PROBLEM, META_UNAGREED, texts_set_aside
from crystal_node.sync.maintenance.retention_status import other_model
from crystal_node.sync.members.duties_due import duties_due, unfinished
from crystal_node.sync.members.names import name_of
from crystal_node.sync.members.root_holders import holders


def vault_findings(device: Device) -> list[Finding]:
    """What about the vault only a person decides, most important first."""
    member = device.member
    if not member.log.is_active(member.device_id):
        return [Finding(FindingName.REVOKED, Severity.FAILED, TEXTS[Access.REVOKED])]
    found: list[Finding] = []

    def add(name: FindingName, text: str, fix: str = "", severity: Severity = Severity.WARNING) -> None:
        found.append(Finding(name, severity, text, fix))

    if read_access(device.journal) is Access.REFUSED:
        add(FindingName.REFUSED, TEXTS[Access.REFUSED], severity=Severity.FAILED)
    planned = read_planned(device.journal)
    if planned is not None and planned.is_over:
        add(
            FindingName.VAULT_DELETION,
            f"The relay was to delete this vault on {planned.day}, as its owner asked, and has not been reached since.",
            "`crystal sync` shows whether it did. The memory on this machine stays.",
        )
    elif planned is not None:
        add(
            FindingName.VAULT_DELETION,
            f"The relay deletes this vault on {planned.day}, as its owner asked. The memory on this machine stays.",
            "`crystal vault keep` calls it off, on the Core or with the recovery kit.",
        )
    if member.log.lead is not None and member.log.lead.is_freeze:
        add(
            FindingName.FROZEN,
            "The vault is frozen: no machine is its Core, and nothing that is recorded reaches the others.",
            "`crystal promote`, on a machine that may lead, ends that.",
        )
    begun = unfinished(device)
    if begun is not None:
        name = one_line(device_name(member, begun) or begun.hex()[:8], 40)
        add(
            FindingName.REVOCATION_UNFINISHED,
            f"The revocation of {name} is not finished: run `crystal devices revoke {begun.hex()[:8]}` again.",
        )
    if duties_due(device):
        add(
            FindingName.RELAY_NOT_TOLD,
            "The relay was not told yet of the last revocation, root or grant: `crystal sync` does it.",
        )
    if device.root is not None and not device.holds_root:
        add(
            FindingName.ROOT_REPLACED,
            "The vault's root that is kept here was replaced, and has no power any more: this machine no longer holds the "
            "root.",
            "If it shall, pair it with the newest code.",
        )
    if other_model(device):
        add(
            FindingName.OTHER_MODEL,
            "The vault's vectors are of another model than this Core is set to: `crystal embed migrate` makes them again.",
        )
    found += vector_findings(device)
    found += kit_findings(device.settings, member)
    for name, entries in _of_one_name(member):
        ids = [entry.info.device.hex()[:8] for entry in entries]
        add(
            FindingName.SAME_NAME,
            f"{len(ids)} devices are called {name}: {', '.join(ids)}.",
            f"`crystal devices rename {ids[-1]} NAME` tells them apart.",
        )
    for entry in asking_for_grant(device):
        add(
            FindingName.GRANT_ASKED,
            f"{name_of(entry)} asks to be allowed to become the Core.",
            f"If you want that: `crystal devices grant {entry.info.device.hex()[:8]}`.",
        )
    for entry in _never_arrived(device):
        add(
            FindingName.NEVER_ARRIVED,
            f"{name_of(entry)} was added, and was not heard of since.",
            "If it never finished joining, pair it again; if you do not know it, revoke it: "
            f"`crystal devices revoke {entry.info.device.hex()[:8]}`.",
        )
    return found


def vector_findings(device: Device) -> Iterator[Finding]:
    """On a Core whose embedding model cannot be used now, or died with a text again and again."""
    problem = device.journal.meta_get(META_PROBLEM)
    if device.member.is_core and problem is not None:
        why = one_line(problem.decode(), 300)
        yield Finding(
            FindingName.NO_VECTORS,
            Severity.WARNING,
            f"New text gets no vectors for now and is found by its words: {why}.",
            "It gets them when that is over; `crystal embed status` tries it.",
        )
    unagreed = device.journal.meta_get(META_UNAGREED)
    if device.member.is_core and unagreed is not None:
        yield Finding(
            FindingName.NO_VECTORS,
            Severity.WARNING,
            "Many texts came at once, and are found by their words only: their vectors cost money "
            f"({one_line(unagreed.decode(), 80)}).",
            "`crystal embed migrate` shows how much, and asks.",
        )
    count = texts_set_aside(device) if device.member.is_core else 0
    if count:
        yield Finding(
            FindingName.SET_ASIDE,
            Severity.WARNING,
            f"{counted(count, 'text')} can be found by words only: the embedding model dies each time that it is to embed "
            f"{'it' if count == 1 else 'one of them'}.",
            "Another model may do better: `crystal embed migrate`.",
        )


def kit_findings(settings: Settings, member: Member) -> Iterator[Finding]:
    """Where no recovery kit works, as far as this device knows. One for a relay in this home would bring nothing back."""
    if settings.relay_is_local:
        return
    match kit_state(settings.config, member.log.root):
        case KitState.NEVER if member.root is not None or not holders(member):
            text = (
                "The recovery kit was never verified: if you lose all devices without it, you lose the vault."
            )
        case KitState.OUTDATED:
            text = "The recovery kit is of a root that was replaced: it opens nothing any more."
        case _:
            return
    fix = "`crystal recovery show` shows the kit, `crystal recovery verify` has you type it back."
    yield Finding(FindingName.KIT, Severity.WARNING, text, fix)


def _of_one_name(member: Member) -> Iterator[tuple[str, list[DeviceEntry]]]:
    """The names that several active devices have, and those devices, in the order in which they came."""
    named: dict[str, list[DeviceEntry]] = {}
    for entry in devices(member):
        if entry.info.revoked is None and entry.details is not None:
            named.setdefault(one_line(entry.details.name, 40), []).append(entry)
    yield from ((name, entries) for name, entries in named.items() if len(entries) > 1)


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
