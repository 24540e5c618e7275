"""Status of this device, gathered from its own databases without a network, and the JSON of ``crystal status --json``.

The JSON gains fields; no field changes its meaning.
"""

from dataclasses import dataclass
from typing import cast

from msgspec import to_builtins

from crystal_core.encryption import EncryptionState
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.membership.changes import vault_changes
from crystal_mirror.membership.status import MemberStatus, details_of, status
from crystal_mirror.retention.status import RetentionSummary, retention_summary
from crystal_node.agent.health.channels import Channels, channels
from crystal_node.agent.health.facts import Background, background, free_space, other_facts
from crystal_node.agent.health.findings import CoreSeen, DeviceFacts, Finding, device_findings
from crystal_node.agent.health.vault_findings import vault_findings
from crystal_node.base.clock import now_ms
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.settings import Settings
from crystal_node.base.wording import iso
from crystal_node.capture.tools import tools_here
from crystal_node.derive.sessions.heads import CopiesSummary, copies_summary
from crystal_node.device.access import Access, read_access
from crystal_node.device.activity import (
    Activity,
    RoundFailure,
    read_moments,
    read_problems,
    read_strange,
    read_trouble,
)
from crystal_node.device.bridge import BridgeReport, read_bridge
from crystal_node.device.device import Device
from crystal_node.device.keys.report import encryption_state, encryption_word
from crystal_node.device.privacy import Privacy, read_privacy
from crystal_node.search.recall.report import RecallReport, recall_report
from crystal_node.sync.files.status import FilesStatus, files_document, files_status
from crystal_node.sync.maintenance.retention_status import replication_document
from crystal_node.sync.members.device_list import MemberRow, rows_of
from crystal_node.sync.members.names import name_of
from crystal_node.sync.members.news import line_of


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """Rows of the memory. ``texts``: distinct ones. ``places``: where they were said. ``forgotten``: suppressed hashes.
    ``provisional``: texts that only this device has so far."""

    texts: int
    places: int
    memories: int
    forgotten: int
    provisional: int


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """``pending_seconds``: None if nothing waits. ``holds_root``: whether this device can show the recovery code.
    ``generation_at``: when the keys' generation began, by its maker's clock, 0 if unknown. ``devices``: those not revoked.
    ``trouble``: why the last round failed. ``databases``: how far they are encrypted at rest, None for not at all.
    ``copies``: of raw sessions, None if none were looked at."""

    member: MemberStatus
    counts: MemoryCounts
    pending_seconds: float | None
    privacy: Privacy
    background: Background
    holds_root: bool
    generation: int
    generation_at: int
    model: str
    replication: RetentionSummary
    files: FilesStatus
    devices: tuple[MemberRow, ...]
    channels: Channels
    moments: dict[Activity, int]
    trouble: RoundFailure | None
    concerns: tuple[Finding, ...]
    stuck: tuple[Finding, ...]
    recall: RecallReport
    databases: EncryptionState | None
    copies: CopiesSummary | None = None
    bridge: BridgeReport | None = None

    @property
    def watching(self) -> bool:
        return self.background.runner is not None


def device_status(device: Device) -> DeviceStatus:
    """The status now."""
    model = device.replica.meta_get(META_MODEL)
    now, member = now_ms(), status(device.member)
    rows = [row for row in rows_of(device) if not row.revoked]
    files = files_status(device)
    behind = background(device.settings.home)
    other = other_facts(device.settings.home)
    moments, trouble = read_moments(device.journal), read_trouble(device.journal)
    through = channels(device, member, rows, files, other.commands, moments.get(Activity.PULL, 0))
    facts = DeviceFacts(
        now_ms=now,
        is_core=member.is_core,
        access=_access(device),
        failure=trouble,
        last=moments,
        channels=through,
        background=behind,
        disks=free_space(device.settings.home),
        core=_core(rows),
        quarantined=member.quarantined,
        notices=member.notices,
        generation_missing=_generation_missing(device),
        unreadable=tuple(read_problems(device.journal)),
        files_halted=files.last.halted,
        files_withheld=len(files.withheld),
        others=other,
        unknown_lines=tuple(read_strange(device.journal)),
    )
    return DeviceStatus(
        member=member,
        counts=_counts(device),
        pending_seconds=through.conversations.oldest_seconds,
        privacy=read_privacy(device.journal),
        background=behind,
        holds_root=device.holds_root,
        generation=device.member.log.generation,
        generation_at=_generation_at(device),
        model=model.decode() if model else "",
        replication=retention_summary(device.member, now),
        files=files,
        devices=tuple(rows),
        channels=through,
        moments=moments,
        trouble=trouble,
        concerns=tuple(vault_findings(device)),
        stuck=tuple(device_findings(facts)),
        recall=recall_report(device.settings, device.replica.database, now, judging=False),
        databases=encryption_state(device.settings.home),
        copies=copies_summary(device.settings.home),
        bridge=read_bridge(device.journal),
    )


def _sessions(settings: Settings, copies: CopiesSummary | None) -> dict[str, object]:
    rules = settings.sessions
    return {
        "on": rules.on,
        "kept": None if copies is None else copies.sessions,
        "copies": None if copies is None else copies.copies,
        "bytes": None if copies is None else copies.bytes,
        "removed": None if copies is None else copies.dropped,
        "unreadable": None if copies is None else copies.unreadable,
        "keep_days": rules.keep_days,
        "max_gb": rules.max_gb,
    }


def _access(device: Device) -> Access:
    """By the device log, which proves a revocation, or else by what the last round found."""
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


def _counts(device: Device) -> MemoryCounts:
    row = device.replica.database.row(
        "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM occurrences), (SELECT count(*) FROM memories),"
        " (SELECT count(*) FROM suppressed), (SELECT count(*) FROM chunks WHERE provisional = 1)"
    )
    assert row is not None, "counts are always one row"
    return MemoryCounts(*row)


def status_document(device: Device, found: DeviceStatus) -> dict[str, object]:
    """The document of ``crystal status --json``."""
    member, settings = found.member, device.settings
    return {
        "role": "core" if member.is_core else "node",
        "vault": member.vault.hex(),
        "device": member.device.hex(),
        "name": device.name,
        "home": str(settings.home.root),
        "relay": settings.relay_url,
        "agent": settings.agent_id,
        "epoch": member.epoch,
        "outbox": {
            "pending": found.channels.conversations.waiting,
            "unsent": member.pending,
            "stored": member.stored,
            "oldest_seconds": _rounded(found.pending_seconds),
        },
        "mirror": {
            "epoch": member.position[0],
            "seq": member.position[1],
            "digest": member.digest.hex(),
            "unsent": member.unsent,
        },
        "quarantined": member.quarantined,
        "void": member.void_slots,
        "memory": {
            "texts": found.counts.texts,
            "places": found.counts.places,
            "memories": found.counts.memories,
            "forgotten": found.counts.forgotten,
            "provisional": found.counts.provisional,
            "model": found.model or None,
        },
        "snapshot": replication_document(found.replication),
        "capture": {
            "on": settings.capture.on,
            "without": sorted(settings.capture.without),
            "tools": [one.name for one in tools_here(settings, settings.person_home)],
        },
        "private": {
            "on": found.privacy.on,
            "since": None if found.privacy.since is None else iso(found.privacy.since),
        },
        "files": files_document(found.files),
        "sessions": _sessions(settings, found.copies),
        "watching": found.watching,
        "keys": device.keys.kind.value,
        "holds_root": found.holds_root,
        "generation": {"number": found.generation, "begun_at": iso(found.generation_at)},
        "databases": encryption_word(found.databases),
        "bridge": None
        if found.bridge is None
        else to_builtins(found.bridge) | {"at": iso(found.bridge.at) if found.bridge.at else None},
        "devices": [_device(row) for row in found.devices],
        "channels": _channels(found),
        "last": {moment.value: iso(found.moments.get(moment, 0)) for moment in Activity},
        "sync": _sync(found),
        "background": _background(found),
        "stuck": [
            {"name": str(each.name), "text": each.text, "remedy": each.fix, "since": iso(each.since)}
            for each in found.stuck
        ],
        "concerns": [{"name": str(each.name), "text": each.sentence} for each in found.concerns],
        "news": [
            {
                "event": piece.kind.value,
                "device": piece.device.hex() if piece.device else None,
                "name": piece.name,
                "by": piece.by.hex() if piece.by else None,
                "by_name": piece.by_name,
                "with_root": piece.by_root,
                "at": iso(piece.at),
                "text": line_of(piece, member.device),
            }
            for piece in vault_changes(device.member)
        ],
        "notices": [
            {"name": name, "detail": detail, "text": notice_text(name)}
            for name, detail in member.notices.items()
        ],
        "noticed": dict(member.raised),
        "recall": to_builtins(found.recall),
    }


def without_ages(document: dict[str, object]) -> object:
    """The document without what changes as time passes, for comparing two of them."""
    return _plain(document)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return {name: _plain(each) for name, each in named.items() if name not in ("oldest_seconds", "text")}
    return [_plain(each) for each in cast("list[object]", value)] if isinstance(value, list) else value


def _device(row: MemberRow) -> dict[str, object]:
    entry = row.entry
    return {
        "id": entry.info.device.hex(),
        "name": entry.details.name if entry.details else None,
        "role": "core" if entry.leads else "node",
        "this": entry.is_this,
        "last_seen": None if entry.is_this else iso(row.seen_at),
        "behind": row.behind,
        "pending": row.pending,
    }


def _channels(found: DeviceStatus) -> dict[str, object]:
    through = found.channels
    talk, commands = through.conversations, through.commands
    return {
        "conversations": {
            "unsent": talk.unsent,
            "stored": talk.stored,
            "oldest_seconds": _rounded(talk.oldest_seconds),
        },
        "mirror": {
            "behind": through.mirror.behind,
            "ahead": through.mirror.ahead,
            "oldest_seconds": _rounded(through.mirror.oldest_seconds),
        },
        "files": {
            "waiting": through.files.waiting,
            "oldest_seconds": _rounded(through.files.oldest_seconds),
        },
        "commands": None
        if commands is None
        else {
            "asked": commands.asked,
            "running": commands.running,
            "waiting": commands.waiting,
            "oldest_seconds": _rounded(commands.oldest_seconds),
        },
    }


def _sync(found: DeviceStatus) -> dict[str, object]:
    trouble = found.trouble
    return {
        "ok": trouble is None,
        "failing_since": iso(trouble.since) if trouble else None,
        "failure": trouble.message if trouble else None,
        "exit_code": trouble.exit_code if trouble else None,
    }


def _background(found: DeviceStatus) -> dict[str, object]:
    work = found.background
    return {
        "running": work.runner is not None,
        "pid": work.runner.pid if work.runner else None,
        "what": (work.runner.purpose or None) if work.runner else None,
        "failing": [
            {
                "job": job.name,
                "why": job.text,
                "failures": job.failures,
                "at": iso(job.at),
                "broken": job.broken,
            }
            for job in work.failing
        ],
        "paused": list(work.paused),
        "since": iso(work.started),
        "put_off": work.put_off or None,
        "put_off_jobs": list(work.waiting),
        "fault": work.fault or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
