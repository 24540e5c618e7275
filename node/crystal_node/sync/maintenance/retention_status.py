"""Snapshots, the kept log and the embedding model in words, for ``crystal status`` and ``crystal doctor``. No network."""

from dataclasses import dataclass

from crystal_core.embed.port import EmbeddingError
from crystal_mirror.entries.control_state import META_MODEL, Place
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name
from crystal_mirror.retention.forgets import FORGOTTEN_MS
from crystal_mirror.retention.gc import read_state
from crystal_mirror.retention.status import RetentionSummary, retention_summary
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage
from crystal_node.base.wording import ago, iso, one_line, size
from crystal_node.device.device import Device
from crystal_node.models.embedding.selection import NONE, named

_DAY_MS = 24 * 3600 * 1000
WAITS_MS_MAX = 7 * _DAY_MS
"""A reader that holds the log for longer than this is reported."""


@dataclass(frozen=True, slots=True)
class RetentionFinding:
    """The state in words, and what to do about it; ``fix`` is empty if all is well."""

    what: str
    fix: str = ""


def other_model(device: Device) -> str:
    """The model that made the vault's vectors, if this Core is set to another one; "" otherwise. No network."""
    kept = (device.replica.meta_get(META_MODEL) or b"").decode()
    if not (device.member.is_core and kept) or device.settings.embedding.provider == NONE:
        return ""
    try:
        wanted = named(device.settings, kept)
        same = getattr(wanted, "known", True) and wanted.identity == kept
    except (EmbeddingError, LocalStorage):
        return ""  # told where it is used
    return "" if same else kept


def retention_finding(device: Device) -> RetentionFinding:
    """The first problem of snapshots and the log, or that there is none."""
    member = device.member
    now = now_ms()
    found = retention_summary(member, now)
    if member.is_core and read_state(member).lost:
        return RetentionFinding(
            "the relay lacks part of the newest snapshot",
            "the next sync makes another one; `crystal repair` does it now",
        )
    late = [each for each in found.forgets if not each.assumed and now - each.since > FORGOTTEN_MS]
    if late:
        return RetentionFinding(
            f"something that was forgotten {ago((now - late[0].since) / 1000)} ago may still be on the relay, sealed",
            "sync the Core every day; `crystal forget --report` says more, `crystal prune --now` does it now",
        )
    slow = [reader for reader in found.waits_for if now - reader.since > WAITS_MS_MAX]
    if slow:
        name = one_line(device_name(member, slow[0].device) or "a device", 40)
        return RetentionFinding(
            f"the log is kept for {name}, which has told of nothing new for {ago((now - slow[0].since) / 1000)}",
            "sync that machine, or revoke it if it is gone; after 30 days nobody waits for it",
        )
    if found.snapshot is None:
        return RetentionFinding("none yet: the whole log is kept")
    return RetentionFinding(f"the newest is of epoch {found.snapshot[0]}, slot {found.snapshot[1]:,}")


_NAMED_MAX = 3


def replication_document(found: RetentionSummary) -> dict[str, object]:
    """For ``--json``."""
    return {
        "base": _document(found.base),
        "newest": _document(found.snapshot),
        "since": iso(found.since),
        "bytes": found.size or None,
        "floor": _document(found.floor),
        "waits_for": [reader.device.hex() for reader in found.waits_for],
        "forgets": [
            {"epoch": each.epoch, "seq": each.sequence, "since": iso(each.since)}
            for each in found.forgets
            if not each.assumed
        ],
    }


def replication_lines(member: Member, found: RetentionSummary) -> list[str]:
    """Lines for people; none while there is no snapshot."""
    if found.snapshot is None:
        return []
    text = f"snapshot of epoch {found.snapshot[0]}, slot {found.snapshot[1]:,}"
    if found.size:
        text += f", {size(found.size)}"
    if found.since:
        text += f", {ago(max(now_ms() - found.since, 0) / 1000)} old"
    if found.floor > (0, 0):
        text += f"; the log is kept from epoch {found.floor[0]}, slot {found.floor[1]:,} on"
    lines = [text]
    if found.waits_for:
        names = [
            one_line(device_name(member, each.device) or "?", 40) for each in found.waits_for[:_NAMED_MAX]
        ]
        more = len(found.waits_for) - len(names)
        lines.append(f"         it waits for {', '.join(names)}" + (f" and {more} more" if more else ""))
    return lines


def _document(place: Place | None) -> dict[str, int] | None:
    return {"epoch": place[0], "seq": place[1]} if place is not None else None
