"""Which copies of sessions are removed by age and size, and how: by the Core, session by session, the oldest first.

Of a removed copy the head stays, which says when it was removed: devices take their segments away by it, and do not copy the
same session again until it grows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.layout import CopyPlace, Stream
from crystal_node.derive.sessions.segments import tidy, write_head

DAY_MS = 24 * 3_600_000
GB = 10**9
RECENT_MS = DAY_MS
"""A session that grew within this time is never removed."""


class KeptCopy(Protocol):
    """What the rules ask of a copy: a head, or what is known of it."""

    @property
    def place(self) -> CopyPlace: ...
    @property
    def updated_at(self) -> int: ...
    @property
    def packed(self) -> int: ...
    @property
    def removed(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Removal:
    """A session that is removed: all of its copies. ``packed``: bytes of their segments."""

    tool: str
    session: str
    places: tuple[CopyPlace, ...]
    packed: int
    updated_at: int


def to_remove(heads: Iterable[KeptCopy], now_ms: int, *, keep_days: int, max_gb: int) -> list[Removal]:
    """What is removed now. ``keep_days``: sessions that did not grow for so long go; ``max_gb``: the oldest go until the rest
    is not larger. 0: none for that reason."""
    sessions: dict[tuple[str, str], list[KeptCopy]] = {}
    for head in heads:
        if not head.removed:
            sessions.setdefault((head.place.tool, head.place.session), []).append(head)
    found = sorted(
        (
            Removal(
                tool,
                session,
                tuple(copy.place for copy in copies),
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


def remove(copies: SessionCopies, removal: Removal, now_ms: int) -> None:
    """Removes a session's copies. Raises OSError, CopyDamaged; what was begun is finished by the next call."""
    for place in removal.places:
        head = copies.head(place)
        if head is None:
            continue
        gone = structs.replace(head, main=Stream(), side=(), removed=now_ms, title="", last_words="")
        write_head(copies.root, gone)
        tidy(place.folder(copies.root), gone, older_than=float("inf"))
