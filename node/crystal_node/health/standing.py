"""How a device stands, gathered from its own databases in one go: what ``crystal status`` shows. No network."""

from dataclasses import dataclass

from crystal_mirror.retention.outlook import Brief, brief
from crystal_mirror.snapshots.base import META_MODEL
from crystal_mirror.status import MemberStatus, details_of, status
from crystal_node.clock import now_ms
from crystal_node.device import Device
from crystal_node.locking import is_held
from crystal_node.privacy import Privacy, read_privacy


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
    ``generation_at`` is when the keys' generation began, by its maker's clock, 0 if unknown."""

    member: MemberStatus
    counts: Counts
    pending_seconds: float | None
    privacy: Privacy
    watching: bool
    holds_root: bool
    generation: int
    generation_at: int
    model: str
    replication: Brief


def standing(device: Device) -> Standing:
    """Gathers it."""
    model = device.replica.meta_get(META_MODEL)
    return Standing(
        member=status(device.member),
        counts=_counts(device),
        pending_seconds=device.pending_seconds(),
        privacy=read_privacy(device.journal),
        watching=is_held(device.settings.home.watch_lock),
        holds_root=device.holds_root,
        generation=device.member.log.generation,
        generation_at=_generation_at(device),
        model=model.decode() if model else "",
        replication=brief(device.member, now_ms()),
    )


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
