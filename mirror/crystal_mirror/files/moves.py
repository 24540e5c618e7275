"""Deletions that are moves: the same content appears at another path in the same round, so that nobody is asked about them.

::

    deleted here,   and put at another path         -> a move: passed on, whatever the fuse has counted
    deleted there,  and to be fetched at another    -> a move: removed here once the file is at its new path
    the same, but an earlier round was stopped between the two -> still a move, as long as the file stands there

Each file that appears accounts for one deletion.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from crystal_mirror.file_paths import folded
from crystal_mirror.files.ports import FileDatabase
from crystal_mirror.files.tree import FUSED, DeletionDirection, FileAction, PlannedAction, content_of
from crystal_mirror.ports import ReplicaView

_META_MOVED = "moved"
"""Old and new paths of files that were moved on another device, while they are not removed here yet."""
_APPEARS = {FileAction.PUT: DeletionDirection.EVERYWHERE, FileAction.FETCH: DeletionDirection.HERE}

Moves = dict[tuple[str, DeletionDirection], str]
"""The new paths, by the deletions."""


def moves(database: FileDatabase, replica: ReplicaView, plan: Sequence[PlannedAction]) -> Moves:
    """The deletions of a plan that are moves. Notes those of this device, for a round after one that was stopped."""
    deletions = [planned for planned in plan if planned.action in FUSED]
    before = _noted(database)
    if not deletions and not before:
        return {}
    appearing: dict[tuple[DeletionDirection, bytes], list[str]] = {}
    for planned in reversed(plan):
        if planned.action in _APPEARS and (digest := _appearing(database, replica, planned)) is not None:
            appearing.setdefault((_APPEARS[planned.action], digest), []).append(planned.path)
    found: Moves = {}
    for planned in deletions:
        direction, agreed = FUSED[planned.action], database.agreed_at(planned.path)
        if agreed is None:
            continue
        if new := appearing.get((direction, agreed.content.digest)):
            found[planned.path, direction] = new.pop()  # §14-12
            continue
        kept = before.get(planned.path) if direction is DeletionDirection.HERE else None
        if kept is not None and _stands_at(database, replica, kept, agreed.content.digest):
            found[planned.path, direction] = kept
    after = {path: new for (path, direction), new in found.items() if direction is DeletionDirection.HERE}
    if after != before:
        database.meta_set(_META_MOVED, msgspec.msgpack.encode(after) if after else None)
    return found


def waits(
    database: FileDatabase, replica: ReplicaView, moved: Moves, old: str, freed: AbstractSet[str]
) -> bool:
    """Whether a file that was moved on another device has to stay, since it is not at its new path yet. It need not stay if it
    is in the way of the new path: ``freed`` are the paths that are to be removed, without their case."""
    new, agreed = moved.get((old, DeletionDirection.HERE)), database.agreed_at(old)
    if new is None or agreed is None or _stands_at(database, replica, new, agreed.content.digest):
        return False
    steps = folded(new).split("/")
    return not any("/".join(steps[:count]) in freed for count in range(1, len(steps) + 1))


def _stands_at(database: FileDatabase, replica: ReplicaView, path: str, digest: bytes) -> bool:
    """Whether this content stands at a path, on this disk and in the tree."""
    seen, row = database.seen_at(path), replica.file(path)
    living = row is not None and not row.gone and content_of(row).digest == digest
    return living and seen is not None and seen.digest == digest


def _appearing(database: FileDatabase, replica: ReplicaView, planned: PlannedAction) -> bytes | None:
    if planned.action is FileAction.PUT:
        seen = database.seen_at(planned.path)
        return None if seen is None else seen.digest
    row = replica.file(planned.path)
    return None if row is None else content_of(row).digest


def _noted(database: FileDatabase) -> dict[str, str]:
    kept = database.meta_get(_META_MOVED)
    return {} if kept is None else msgspec.msgpack.decode(kept, type=dict[str, str])
