"""What ``crystal status`` says of snapshots and of the log that is kept."""

from crystal_mirror.member import Member
from crystal_mirror.retention.outlook import RetentionSummary
from crystal_mirror.snapshot_base import Place
from crystal_mirror.status import device_name
from crystal_node.base.clock import now_ms
from crystal_node.base.wording import ago, iso, one_line, size

_NAMED_MAX = 3


def replication_document(found: RetentionSummary) -> dict[str, object]:
    """For programs."""
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
    """For people; nothing while there is no snapshot."""
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
