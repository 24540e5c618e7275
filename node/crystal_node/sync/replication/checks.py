"""What ``crystal doctor`` and ``crystal status`` look at of snapshots, the log that is kept, and the model. No network."""

from dataclasses import dataclass

from crystal_core.embed.port import EmbeddingError
from crystal_mirror.retention.forgets import FORGOTTEN_MS
from crystal_mirror.retention.outlook import retention_summary
from crystal_mirror.retention.state import read_state
from crystal_mirror.snapshot_base import META_MODEL
from crystal_mirror.status import device_name
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import LocalStorage
from crystal_node.base.wording import ago, one_line
from crystal_node.device.device import Device
from crystal_node.models.embedding.selection import NONE, named

_DAY_MS = 24 * 3600 * 1000
WAITS_MS_MAX = 7 * _DAY_MS
"""A reader that holds the log for longer than this is worth a word."""


@dataclass(frozen=True, slots=True)
class RetentionFinding:
    """How it is, in words, and what to do about it; ``fix`` is empty if all is well."""

    what: str
    fix: str = ""


def other_model(device: Device) -> str:
    """The model that made the vault's vectors, if this Core is set to another one; "" otherwise. Asks nobody."""
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
    """How snapshots and the log stand: the first thing that is not well."""
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
