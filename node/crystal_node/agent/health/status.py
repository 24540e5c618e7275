"""How a device stands, gathered from its own databases in one go: what ``crystal status`` shows. No network."""

from dataclasses import dataclass

from crystal_mirror.retention.outlook import Brief, brief
from crystal_mirror.snapshot_base import META_MODEL
from crystal_mirror.status import MemberStatus, details_of, status
from crystal_node.agent.health.channels import Channels, channels
from crystal_node.agent.health.concerns import Concern, concerns
from crystal_node.agent.health.disks import disks_of
from crystal_node.agent.health.facts import Background, background
from crystal_node.agent.health.findings import CoreSeen, Facts, Stuck, stuck
from crystal_node.agent.health.others import others
from crystal_node.base.clock import now_ms
from crystal_node.device.access import Access, read_access
from crystal_node.device.activity import (
    Moment,
    Trouble,
    read_moments,
    read_problems,
    read_strange,
    read_trouble,
)
from crystal_node.device.device import Device
from crystal_node.device.privacy import Privacy, read_privacy
from crystal_node.sync.files.standing import FilesStatus, files_status
from crystal_node.sync.members.listing import MemberRow, rows_of
from crystal_node.sync.members.naming import name_of


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of the memory: distinct texts, places they came from, memories, suppressed hashes, and how many of the texts
    are only this device's so far."""

    texts: int
    places: int
    memories: int
    forgotten: int
    provisional: int


@dataclass(frozen=True, slots=True)
class Standing:
    """See the module. ``pending_seconds`` is None when nothing waits; ``holds_root`` says who can show the code;
    ``generation_at`` is when the keys' generation began, by its maker's clock, 0 if unknown; ``devices`` are those of the vault
    that were not revoked; ``trouble`` says why the last round failed."""

    member: MemberStatus
    counts: Counts
    pending_seconds: float | None
    privacy: Privacy
    background: Background
    holds_root: bool
    generation: int
    generation_at: int
    model: str
    replication: Brief
    files: FilesStatus
    devices: tuple[MemberRow, ...]
    channels: Channels
    moments: dict[Moment, int]
    trouble: Trouble | None
    concerns: tuple[Concern, ...]
    stuck: tuple[Stuck, ...]

    @property
    def watching(self) -> bool:
        return self.background.runner is not None


def standing(device: Device) -> Standing:
    """Gathers it."""
    model = device.replica.meta_get(META_MODEL)
    now, member = now_ms(), status(device.member)
    rows = [row for row in rows_of(device) if not row.revoked]
    files = files_status(device)
    behind = background(device.settings.home)
    other = others(device.settings.home)
    moments, trouble = read_moments(device.journal), read_trouble(device.journal)
    through = channels(device, member, rows, files, other.commands, moments.get(Moment.PULL, 0))
    facts = Facts(
        now_ms=now,
        is_core=member.is_core,
        access=_access(device),
        trouble=trouble,
        moments=moments,
        channels=through,
        background=behind,
        disks=disks_of(device.settings.home),
        core=_core(rows),
        quarantined=member.quarantined,
        notices=member.notices,
        generation_missing=_generation_missing(device),
        problems=tuple(read_problems(device.journal)),
        files_halted=files.last.halted,
        files_withheld=len(files.withheld),
        others=other,
        strange=tuple(read_strange(device.journal)),
    )
    return Standing(
        member=member,
        counts=_counts(device),
        pending_seconds=through.conversations.oldest_seconds,
        privacy=read_privacy(device.journal),
        background=behind,
        holds_root=device.holds_root,
        generation=device.member.log.generation,
        generation_at=_generation_at(device),
        model=model.decode() if model else "",
        replication=brief(device.member, now),
        files=files,
        devices=tuple(rows),
        channels=through,
        moments=moments,
        trouble=trouble,
        concerns=tuple(concerns(device)),
        stuck=tuple(stuck(facts)),
    )


def _access(device: Device) -> Access:
    """By the log, which proves it, or else by what the last round found."""
    return (
        read_access(device.journal)
        if device.member.log.is_active(device.member.device_id)
        else Access.REVOKED
    )


def _core(rows: list[MemberRow]) -> CoreSeen | None:
    lead = next((row for row in rows if row.entry.leads and not row.entry.is_this), None)
    return CoreSeen(name_of(lead.entry), lead.seen_at) if lead is not None else None


def _generation_missing(device: Device) -> int | None:
    number = device.member.log.generation
    return number if device.member.key_for(number) is None else None


def _generation_at(device: Device) -> int:
    log = device.member.log
    entry = log.generation_entry(log.generation)
    details = details_of(device.member, entry) if entry is not None else None
    return details.at if details is not None else 0


def _counts(device: Device) -> Counts:
    row = device.replica.database.row(
        "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM occurrences), (SELECT count(*) FROM memories),"
        " (SELECT count(*) FROM suppressed), (SELECT count(*) FROM chunks WHERE provisional = 1)"
    )
    assert row is not None, "counts are always one row"
    return Counts(*row)
