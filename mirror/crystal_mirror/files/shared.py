"""What the steps of a round of file sync share: its report, the states of a path, and what this disk has of a part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from crystal_mirror.files.moves import Moves
from crystal_mirror.files.ports import (
    Disk,
    FileDatabase,
    FileMoved,
    FileTrouble,
    LocalFile,
    SeenFile,
)
from crystal_mirror.files.tree import FUSED, AgreedFile, DeletionDirection, FileAction, decide
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.snapshots.blobs import BlobRef
from crystal_mirror.snapshots.restore import restore_pending
from crystal_mirror.types import Position


@dataclass
class FilesReport:
    """What a round did and what prevented the rest. Paths are relative to the home."""

    halted: str = ""
    files: int = 0
    put: int = 0
    fetched: int = 0
    removed: int = 0
    dropped: int = 0
    adopted: int = 0
    parts_put: int = 0
    parts_fetched: int = 0
    bytes_put: int = 0
    """Of parts, before they are sealed."""
    bytes_fetched: int = 0
    waiting: int = 0
    """Offers that the Core has not ordered yet."""
    conflicts: list[str] = field(default_factory=list[str])
    """Paths at which this round found a version of this device that came second."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    lacking: dict[str, str] = field(default_factory=dict[str, str])
    """Files that cannot be fetched now: parts of them are missing on the relay, or do not fit on the disk."""
    busy: list[str] = field(default_factory=list[str])
    """Files that changed while they were looked at: the next round looks again."""
    withheld: list[tuple[str, DeletionDirection]] = field(default_factory=list[tuple[str, DeletionDirection]])

    @property
    def offered(self) -> int:
        return self.put + self.dropped

    def troubled(self, path: str, trouble: FileTrouble) -> None:
        if isinstance(trouble, FileMoved):
            self.busy.append(path)
        else:
            self.refused[path] = str(trouble)


@dataclass
class FilesRound:
    """What the steps of a round share."""

    member: Member
    disk: Disk
    database: FileDatabase
    now_ms: int
    report: FilesReport
    position: Position
    """Where the mirror was applied to when the round began."""
    seed: int
    """The cut seed of this round."""
    generation: int
    """The generation that ``seed`` is of."""
    offered: Callable[[], None]
    """Called when changes were accepted."""
    skipped: set[str] = field(default_factory=set[str])
    """Paths whose state is not known."""
    moved: dict[tuple[int, int], list[FilePart]] = field(
        default_factory=dict[tuple[int, int], list[FilePart]]
    )
    """The parts of files that are gone from their paths, by size and inode: they may stand at others now."""
    moves: Moves = field(default_factory=dict[tuple[str, DeletionDirection], str])
    """The planned deletions that are moves (``files.moves``)."""

    @cached_property
    def moved_to(self) -> frozenset[str]:
        """Where files that this device has moved stand now."""
        return frozenset(
            new for (_, direction), new in self.moves.items() if direction is FUSED[FileAction.DROP]
        )

    resumes: bool = False
    """Whether an earlier round was stopped while it sent parts."""
    standing: dict[bytes, list[BlobRef]] | None = None
    """The blobs of the living files by what these hold, once they are needed (``_standing``)."""

    def states(
        self, path: str, *, certain: bool = True
    ) -> tuple[FileAction, LocalFile | None, FileRow | None, AgreedFile | None]:
        """What is to be done about a path now. Without ``certain``, what was only just written is taken as it was read.
        That is enough for an offer, whose parts are checked one by one, but not for anything that takes the file away.

        Raises:
            FileTrouble; FileMoved if it is not as it was read.
        """
        self.check_rows()
        local = self.disk.look(path)
        seen = self.database.seen_at(path)
        if local is not None and not self.still_holds(seen, local, certain=certain):
            raise FileMoved("the file changed after it was read")
        content = seen.content if local is not None and seen is not None else None
        row, agreed = self.member.replica.file(path), self.database.agreed_at(path)
        return decide(content, row, agreed), local, row, agreed

    def check_rows(self) -> None:
        """Raises FileMoved in the middle of a replay, when the replica lacks rows and shows old tombstones."""
        if not self.rows_stand():
            raise FileMoved("the memory is being rebuilt")

    def rows_stand(self) -> bool:
        return rows_stand(self.member) and self.member.replica.position()[:2] >= self.position[:2]

    def still_holds(self, seen: SeenFile | None, local: LocalFile, *, certain: bool = True) -> bool:
        """Whether a file still holds what was read of it. With ``certain``, a file that had just been written is read once
        more."""
        if seen is None or (seen.local.stamp, seen.local.executable) != (local.stamp, local.executable):
            return False
        if not certain or seen.local.quiet:
            return True
        return all(matches(self.disk, local, self.database.parts_of(local.path)))


def matches(disk: Disk, local: LocalFile, parts: Sequence[FilePart]) -> Iterator[bool]:
    """Whether a file holds these parts, wherever it would be cut now: True for each part that does, False and no more at the
    first thing that differs. Raises FileMoved if the file changes meanwhile."""
    if sum(part.length for part in parts) != local.stamp.size:
        yield False
        return
    lengths = [part.length for part in parts]
    for data, part in zip(disk.pieces(local, lengths), parts, strict=True):
        same = sha256(data).digest() == part.content
        yield same
        if not same:
            return


def rows_stand(member: Member) -> bool:
    """Whether the replica is in no rebuild or restore."""
    return not (rebuild_pending(member) or restore_pending(member))


def part_on_disk(disk: Disk, database: FileDatabase, content: bytes) -> bytes | None:
    """A part of that content from wherever on this disk it was seen, read and checked."""
    for place in database.places(content):
        try:
            data = disk.read(place)
        except FileTrouble:
            continue
        if sha256(data).digest() == content:
            return data
    return None
