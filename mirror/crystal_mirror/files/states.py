"""What the steps of a round of file sync share: the states of a path as they stand now, and the report."""

from dataclasses import dataclass, field

from crystal_mirror.files.ports import Disk, FileDatabase, FileMoved, FileTrouble, LocalFile, SeenFile
from crystal_mirror.files.tree import AgreedFile, DeletionDirection, FileAction, content_digest, decide
from crystal_mirror.member import Member
from crystal_mirror.ports import FileRow
from crystal_mirror.rebuild import rebuild_pending
from crystal_mirror.snapshots.restoring import restore_pending
from crystal_mirror.types import Position


@dataclass
class FilesReport:
    """What a round did and what stands in its way. Paths are relative to the home."""

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
    """Paths at which a version of this device is kept that came second, found in this round."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    lacking: dict[str, str] = field(default_factory=dict[str, str])
    """Files that cannot be fetched now, since parts of them do not come or do not fit on the disk."""
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
    book: FileDatabase
    now_ms: int
    report: FilesReport
    position: Position
    """Where the mirror was applied to when the round began."""
    skipped: set[str] = field(default_factory=set[str])
    """Paths of which it is not known what stands there."""

    def states(
        self, path: str, *, certain: bool = True
    ) -> tuple[FileAction, LocalFile | None, FileRow | None, AgreedFile | None]:
        """What is to be done about a path as it stands now. Not ``certain``: what was only just written is taken as it was
        read, which is enough for an offer, whose parts are checked one by one; but not for anything that takes the file away.

        Raises:
            FileTrouble; FileMoved if it is not as it was read.
        """
        self.check_rows()
        local = self.disk.look(path)
        seen = self.book.seen_at(path)
        if local is not None and not self.still_holds(seen, local, certain=certain):
            raise FileMoved("the file changed after it was read")
        content = seen.content if local is not None and seen is not None else None
        row, agreed = self.member.replica.file(path), self.book.agreed_at(path)
        return decide(content, row, agreed), local, row, agreed

    def check_rows(self) -> None:
        """A replica in the middle of a replay lacks rows, and shows old tombstones. Raises FileMoved."""
        if not self.rows_stand():
            raise FileMoved("the memory is being rebuilt")

    def rows_stand(self) -> bool:
        return rows_stand(self.member) and self.member.replica.position()[:2] >= self.position[:2]

    def still_holds(self, seen: SeenFile | None, local: LocalFile, *, certain: bool = True) -> bool:
        """Whether a file holds what was read of it. To be certain, what had only just been written is read once more."""
        if seen is None or (seen.local.stamp, seen.local.executable) != (local.stamp, local.executable):
            return False
        return not certain or seen.local.quiet or content_digest(self.disk.cut(local)) == seen.digest


def rows_stand(member: Member) -> bool:
    """Whether the replica is in no rebuild or restore."""
    return not (rebuild_pending(member) or restore_pending(member))
