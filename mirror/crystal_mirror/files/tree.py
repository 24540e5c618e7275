"""What is to be done about a file: pure decisions over three states, and the plan of a whole round with its fuse.

*Local* is what stands on this device's disk, *remote* the row of the replicated tree, *agreed* the version at which both
were last equal here. A file that was offered to the Core and not yet ordered waits. All else is this table::

    local      agreed           remote                       action
    ---------  ---------------  ---------------------------  -----------------------------------------------
    any        any              an offer of ours is pending  WAIT
    present    any              the same content             ADOPT (NOTHING if the version is agreed already)
    present    none             its bytes, executable there  FETCH, of the bit alone
    changed    another version  its bytes, executable there  FETCH, of the bit alone
    present    none             anything else                PUT, based on nothing
    changed    some version     anything else                PUT, based on the agreed version
    unchanged  some version     a tombstone                  REMOVE, into the trash
    unchanged  some version     another version              FETCH
    unchanged  some version     no row at all                PUT, based on the agreed version
    absent     none             living                       FETCH
    absent     none             a tombstone, or no row       NOTHING
    absent     set aside        living                       FETCH (it was excluded here: that is no deletion)
    absent     the version      living, that version         DROP
    absent     another version  living                       FETCH (an edit beats a deletion)
    absent     some version     a tombstone, or no row       FORGET

Nothing is removed without a tombstone, and nothing is overwritten that was not agreed. Which of two versions wins is decided
by the order of the log, not here: a PUT whose base is no longer the row's version is kept beside it (``conflict_path``).

The fuse: more than ``FUSE_FILES_MAX`` deletions at once in one direction, or more than ``FUSE_SHARE_MAX`` of all files, wait
until a person has confirmed them. "At once" is within ``FUSE_WINDOW_MILLISECONDS``, so that many small deletions count too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.types import Origin

FUSE_FILES_MAX = 20
FUSE_SHARE_MAX = 0.10
FUSE_FREE_FILES = 3
"""So few deletions never need confirmation, however small the tree."""
FUSE_WINDOW_MILLISECONDS = 10 * 60 * 1000

_LENGTH_BYTES = 4


class FileAction(StrEnum):
    """See the module's table."""

    NOTHING = "nothing"
    WAIT = "wait"
    ADOPT = "adopt"
    FORGET = "forget"
    FETCH = "fetch"
    REMOVE = "remove"
    PUT = "put"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file holds: ``digest`` is ``content_digest`` of its parts."""

    digest: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class AgreedFile:
    """The version of a file at which this device and the tree were last equal. ``aside``: excluded here since then."""

    path: str
    version: Origin
    content: FileContent
    aside: bool = False


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A path that needs something done."""

    path: str
    action: FileAction


class DeletionDirection(StrEnum):
    """Where the deletions that a fuse holds back would take effect."""

    HERE = "here"
    """Deleted by others; would be removed from this device."""
    EVERYWHERE = "everywhere"
    """Deleted on this device; would be removed from all."""


FUSED = {FileAction.REMOVE: DeletionDirection.HERE, FileAction.DROP: DeletionDirection.EVERYWHERE}
"""The actions that delete."""


def content_digest(parts: Iterable[FilePart]) -> bytes:
    """A name for what a file holds, whatever its blobs are called (their turns do not count)."""
    state = sha256(b"crystal/v2/file")
    for part in parts:
        state.update(part.content + part.length.to_bytes(_LENGTH_BYTES, "big"))
    return state.digest()


def content_of(row: FileRow) -> FileContent:
    return FileContent(content_digest(row.parts), row.executable)


def decide(
    local: FileContent | None, remote: FileRow | None, agreed: AgreedFile | None, *, pending: bool = False
) -> FileAction:
    """What is to be done about one path. See the module's table."""
    living = remote if remote is not None and not remote.gone else None
    if pending:
        return FileAction.WAIT
    if local is not None:
        if living is not None and content_of(living) == local:
            same = agreed is not None and agreed.version == living.version and not agreed.aside
            return FileAction.NOTHING if same and agreed and agreed.content == local else FileAction.ADOPT
        if living is not None and _lacks_the_bit_alone(local, living, agreed):
            return FileAction.FETCH  # §14-8
        if agreed is None or agreed.content != local or remote is None:
            return FileAction.PUT
        return FileAction.REMOVE if living is None else FileAction.FETCH  # §14-6
    if living is None:
        return FileAction.NOTHING if agreed is None else FileAction.FORGET
    if agreed is None or agreed.aside or agreed.version != living.version:
        return FileAction.FETCH
    return FileAction.DROP  # §14-3


def _lacks_the_bit_alone(local: FileContent, living: FileRow, agreed: AgreedFile | None) -> bool:
    """Whether a version that was never agreed upon has the very bytes and is executable. A device that leaves such a bit unset,
    and then loses its database, would otherwise make a second file of each of these."""
    if agreed is not None and agreed.version == living.version:
        return False
    there = content_of(living)
    return there.executable and not local.executable and there.digest == local.digest


def fuse_limit(files: int) -> int:
    """How many deletions at once a tree of that many files allows without confirmation."""
    return min(FUSE_FILES_MAX, max(FUSE_FREE_FILES, int(files * FUSE_SHARE_MAX)))


def fused(
    plan: Iterable[PlannedAction],
    files: int,
    lately: dict[DeletionDirection, int],
    confirmed: frozenset[tuple[str, DeletionDirection]],
) -> list[tuple[str, DeletionDirection]]:
    """The deletions of a plan that wait for a person: all of a direction's that are not confirmed, if they are too many.

    ``files``: how many files are agreed. ``lately``: how many were deleted in each direction within the fuse's window.
    """
    asked: dict[DeletionDirection, list[str]] = {direction: [] for direction in DeletionDirection}
    for planned in plan:
        direction = FUSED.get(planned.action)
        if direction is not None and (planned.path, direction) not in confirmed:
            asked[direction].append(planned.path)
    held: list[tuple[str, DeletionDirection]] = []
    for direction, paths in asked.items():
        before = lately.get(direction, 0)
        if len(paths) + before > fuse_limit(files + before):
            held += [(path, direction) for path in paths]
    return held


def merged(
    locals_: Iterable[tuple[str, FileContent]], agreed: Iterable[AgreedFile], remote: Iterable[FileRow]
) -> Iterator[tuple[str, FileContent | None, AgreedFile | None, FileRow | None]]:
    """The three states side by side, path by path. All three must come in the order of their paths."""
    left, middle, right = iter(locals_), iter(agreed), iter(remote)
    one, two, three = next(left, None), next(middle, None), next(right, None)
    while one is not None or two is not None or three is not None:
        heads: list[str] = []
        if one is not None:
            heads.append(one[0])
        if two is not None:
            heads.append(two.path)
        if three is not None:
            heads.append(three.path)
        path = min(heads)
        here = there = past = None
        if one is not None and one[0] == path:
            here, one = one[1], next(left, None)
        if two is not None and two.path == path:
            past, two = two, next(middle, None)
        if three is not None and three.path == path:
            there, three = three, next(right, None)
        yield path, here, past, there
