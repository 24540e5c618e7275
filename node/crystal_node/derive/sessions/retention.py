"""Which copies of sessions are removed by age and size, and how: by the Core, session by session, the oldest first.

Of a removed copy the head stays, which says when it was removed: devices take their segments away by it, and do not copy the
same session again until it grows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from crystal_node.derive.sessions.layout import Head, Stream
from crystal_node.derive.sessions.segments import tidy, write_head

DAY_MS = 24 * 3_600_000
GB = 10**9
RECENT_MS = DAY_MS
"""A session that grew within this time is never removed."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A session that is removed: all of its copies. ``packed``: bytes of their segments."""

    tool: str
    session: str
    heads: tuple[Head, ...]
    packed: int
    updated_at: int


def to_remove(heads: Iterable[Head], now_ms: int, *, keep_days: int, max_gb: int) -> list[Removal]:
    """What is removed now. ``keep_days``: sessions that did not grow for so long go; ``max_gb``: the oldest go until the rest
    is not larger. 0: none for that reason."""
    sessions: dict[tuple[str, str], list[Head]] = {}
    for head in heads:
        if not head.removed:
            sessions.setdefault((head.tool, head.session), []).append(head)
    found = sorted(
        (
            Removal(
                tool,
                session,
                tuple(copies),
                sum(copy.packed for copy in copies),
                max(copy.updated_at for copy in copies),
            )
            for (tool, session), copies in sessions.items()
        ),
        key=lambda each: (each.updated_at, each.tool, each.session),
    )
    total = sum(each.packed for each in found)
    chosen: list[Removal] = []
    for each in found:
        if now_ms - each.updated_at < RECENT_MS:
            break
        too_old = bool(keep_days) and now_ms - each.updated_at > keep_days * DAY_MS
        too_large = bool(max_gb) and total > max_gb * GB
        if too_old or too_large:
            chosen.append(each)
            total -= each.packed
    return chosen


def remove(root: Path, removal: Removal, now_ms: int) -> None:
    """Removes a session's copies. Raises OSError; what was begun is finished by the next call."""
    for head in removal.heads:
        gone = structs.replace(head, main=Stream(), side=(), removed=now_ms, title="", last_words="")
        write_head(root, gone)
        tidy(head.place.folder(root), gone, older_than=float("inf"))
