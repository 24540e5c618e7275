"""The steps of a round of file sync that move something: deletions, offers, fetches, removals.

A put::

    look -> Has: which parts lack? -> read each from the disk, PutBlob -> accept PutFile -> note the offer
              (a part that does not read as it was seen: the file changed, the next round looks again; the same if the
              vault's keys were renewed meanwhile: the file is then cut at other places, and its parts have other names)

A fetch::

    look -> temporary file beside its place <- parts: from this disk where one is seen, else GetBlob
         -> durable, read back -> into its place, if what stands there is still what was looked at -> note the version

After a kill a put is made again (the log takes equal content as done), and a fetch continues after the parts that it has.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256

from crystal_crypto.errors import WrongKey
from crystal_mirror.file_paths import conflict_paths, folded
from crystal_mirror.files.moves import Moves, waits
from crystal_mirror.files.ports import (
    Disk,
    DiskFull,
    FileDatabase,
    FileMoved,
    FileOffer,
    FileTrouble,
    Incoming,
    LocalFile,
    PartPlace,
    SeenFile,
    TooLargeHere,
)
from crystal_mirror.files.tree import (
    FUSED,
    AgreedFile,
    DeletionDirection,
    FileAction,
    FileContent,
    PlannedAction,
    content_of,
    decide,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import DropFile, FilePart, PutFile, blob_name
from crystal_mirror.ports import FileRow, ReplicaView
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.requests import Flow, Progress
from crystal_mirror.snapshots.blobs import (
    BlobDamaged,
    BlobRef,
    get_blob,
    lacking,
    name_of,
    put_under,
    usable_turn,
)
from crystal_mirror.snapshots.restore import restore_pending
from crystal_mirror.types import Position

SENDING = "sending files"
FETCHING = "fetching files"
_TOGETHER_FILES = 64
"""Files whose offers are accepted in one transaction."""
_TOGETHER_PARTS = 256
_CANDIDATES = 64


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
    skipped: set[str] = field(default_factory=set[str])
    """Paths whose state is not known."""
    moved: dict[tuple[int, int], list[FilePart]] = field(
        default_factory=dict[tuple[int, int], list[FilePart]]
    )
    """The parts of files that are gone from their paths, by size and inode: they may stand at others now."""
    moves: Moves = field(default_factory=dict[tuple[str, DeletionDirection], str])
    """The planned deletions that are moves (``files.moves``)."""
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
    first thing that differs."""
    if sum(part.length for part in parts) != local.stamp.size:
        yield False
        return
    offset = 0
    for part in parts:
        same = sha256(disk.read(PartPlace(local.path, offset, part.length))).digest() == part.content
        yield same
        if not same:
            return
        offset += part.length
    now = disk.look(local.path)
    yield now is not None and now.stamp == local.stamp


def rows_stand(member: Member) -> bool:
    """Whether the replica is in no rebuild or restore."""
    return not (rebuild_pending(member) or restore_pending(member))


def move_all(this: FilesRound, plan: Sequence[PlannedAction]) -> Flow[None]:
    """Does what is planned. Deletions come before puts, so that a file may change the case of its name; fetches before
    removals, so that a renamed file is found on this disk; fetches that something blocked are repeated at the end."""

    def paths(action: FileAction) -> list[str]:
        return [planned.path for planned in plan if planned.action is action]

    _drop(this, paths(FileAction.DROP))
    yield from _put(this, paths(FileAction.PUT))
    fetches = paths(FileAction.FETCH)
    blocked = yield from _fetch_all(this, fetches)
    removals = paths(FileAction.REMOVE)
    freed = {folded(path) for path in removals}
    for path in removals:
        _remove(this, path, freed)
    if blocked:
        yield from _fetch_all(this, list(blocked))


def went_to(replica: ReplicaView, offer: FileOffer) -> str | None:
    """The conflict path at which a put of ours is kept; None if there is none. A row stays once it was made, so that it is
    recognised even if another version or a tombstone is there by now."""
    candidates = conflict_paths(offer.path, offer.origin)
    first = True
    for _ in range(_CANDIDATES):
        path = next(candidates)
        row = replica.file(path)
        if row is not None and (row.version == offer.origin or first):
            return path
        first = False
    return None


def reput_parts(member: Member, disk: Disk, database: FileDatabase) -> Flow[int]:
    """Puts back what the relay lost of the files that are here as agreed. Returns how many parts."""
    put = 0
    for row in list(member.replica.files()):
        seen = None if row.gone else database.seen_at(row.path)
        if seen is None or seen.content != content_of(row):
            continue
        for ref in (yield from lacking(member, [BlobRef.of(part) for part in row.parts])):
            data = part_on_disk(disk, database, ref.content)
            if data is not None:
                yield from put_under(member, ref, data, compress=True)
                put += 1
    return put


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


def _drop(this: FilesRound, paths: Iterable[str]) -> None:
    member, database = this.member, this.database
    dropped: list[tuple[str, AgreedFile]] = []
    for path in paths:
        try:
            action, _, _, agreed = this.states(path)
            new = this.moves.get((path, FUSED[FileAction.DROP]))
            if new is not None and this.states(new, certain=False)[0] is not FileAction.PUT:
                raise FileMoved("the file is no longer where it was moved to")  # §14-12
        except FileTrouble as trouble:
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            continue
        if action is FileAction.DROP and agreed is not None:
            dropped.append((path, agreed))
    for start in range(0, len(dropped), _TOGETHER_FILES):
        some = dropped[start : start + _TOGETHER_FILES]
        origins = member.accept_many([DropFile(path, agreed.version) for path, agreed in some])
        database.add_offers(
            [FileOffer(path, origin, None) for (path, _), origin in zip(some, origins, strict=True)]
        )
        for path, _ in some:
            _note_deleted(this, path, FUSED[FileAction.DROP])
        this.report.dropped += len(some)


def _put(this: FilesRound, paths: Sequence[str]) -> Flow[None]:
    """Offers files in groups: their parts are put first, then all are accepted at once."""
    group: list[tuple[str, SeenFile, AgreedFile | None, list[FilePart]]] = []
    total = done = 0
    for path in paths:
        seen = this.database.seen_at(path)
        total += seen.local.stamp.size if seen is not None else 0
    for path in paths:
        try:
            action, _, _, agreed = this.states(path, certain=False)
        except FileTrouble as trouble:
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            continue
        seen = this.database.seen_at(path)
        if action is not FileAction.PUT or seen is None:
            continue
        group.append((path, seen, agreed, this.database.parts_of(path)))
        done += seen.local.stamp.size
        if len(group) >= _TOGETHER_FILES or sum(len(one[3]) for one in group) >= _TOGETHER_PARTS:
            yield from _put_group(this, group)
            yield Progress(SENDING, done, total)
            group = []
    if group:
        yield from _put_group(this, group)


def _put_group(
    this: FilesRound, group: Sequence[tuple[str, SeenFile, AgreedFile | None, list[FilePart]]]
) -> Flow[None]:
    member = this.member
    refs = [_refs(this, seen, parts) for _, seen, _, parts in group]
    asked = dict.fromkeys(ref for each in refs for ref, is_new in each if is_new)
    missing = set((yield from lacking(member, list(asked))))
    ready: list[tuple[PutFile, FileContent]] = []
    for (path, seen, agreed, _), each in zip(group, refs, strict=True):
        try:
            yield from _put_parts(this, path, [ref for ref, _ in each], missing)  # §14-2
        except FileTrouble as trouble:
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            continue
        named = tuple(FilePart(ref.content, ref.length, ref.named) for ref, _ in each)
        base = None if agreed is None else agreed.version  # §14-3
        operation = PutFile(path, base, seen.local.executable, seen.local.modified_at, named)
        ready.append((operation, seen.content))
    if not ready:
        return
    origins = member.accept_many([operation for operation, _ in ready])
    this.database.add_offers(
        [
            FileOffer(operation.path, origin, content, _names(member, operation.parts))
            for (operation, content), origin in zip(ready, origins, strict=True)
        ]
    )
    this.report.put += len(ready)


def _standing(this: FilesRound) -> dict[bytes, list[BlobRef]]:
    """The blobs of the living files by content, from generation 2 on: a file that is moved, copied or made executable is not
    sent again, and the relay is not asked about it."""
    if this.generation == 1:
        return {}
    if this.standing is None:
        replica = this.member.replica
        rows = [(row, [BlobRef.of(part) for part in row.parts]) for row in replica.files() if not row.gone]
        this.standing = {content_of(row).digest: refs for row, refs in rows}  # §14-11
    return this.standing


def _refs(this: FilesRound, seen: SeenFile, parts: Sequence[FilePart]) -> list[tuple[BlobRef, bool]]:
    """The blob of each part, and whether it is one of the generation in force, which the relay may lack."""
    member = this.member
    standing = {ref.content: ref for ref in _standing(this).get(seen.digest, ())}
    found: list[tuple[BlobRef, bool]] = []
    for part in parts:
        turn = usable_turn(member, part.content)
        new = BlobRef(part.content, part.length, member.named(part.content, turn))
        ref = standing.get(part.content, new)
        if ref == new or member.replica.is_condemned(name_of(member, ref)):
            found.append((new, True))
        else:
            found.append((ref, False))
    return found


def _put_parts(this: FilesRound, path: str, refs: Sequence[BlobRef], missing: set[BlobRef]) -> Flow[None]:
    offset = 0
    for part in refs:
        if this.member.log.generation != this.generation:  # §14-10
            raise FileMoved("the vault's keys were renewed while the file was sent")
        if part in missing:
            data = this.disk.read(PartPlace(path, offset, part.length))
            if sha256(data).digest() != part.content:
                raise FileMoved("the file changed while it was sent")
            yield from put_under(this.member, part, data, compress=True)  # §6.1-4
            missing.discard(part)
            this.report.parts_put += 1
            this.report.bytes_put += part.length
        offset += part.length


def _names(member: Member, parts: Iterable[FilePart]) -> tuple[bytes, ...]:
    return tuple(blob_name(member.secret, part.content, part.named) for part in parts)


def _fetch_all(this: FilesRound, paths: Sequence[str]) -> Flow[list[str]]:
    """Fetches files. Returns those that something blocks."""
    blocked: list[str] = []
    rows = (this.member.replica.file(path) for path in paths)
    total = sum(row.size for row in rows if row is not None)
    done = 0
    for path in paths:
        this.report.refused.pop(path, None)
        try:
            done += yield from _fetch(this, path, done, total)
        except TooLargeHere as trouble:
            this.skipped.add(path)
            this.report.lacking[path] = str(trouble)
        except DiskFull as trouble:
            this.skipped.add(path)
            this.report.lacking[path] = str(trouble)
            return []
        except (BlobDamaged, WrongKey) as trouble:
            this.skipped.add(path)
            this.report.lacking[path] = str(trouble)
        except FileTrouble as trouble:
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            if not isinstance(trouble, FileMoved):
                blocked.append(path)
    return blocked


def _fetch(this: FilesRound, path: str, done: int, total: int) -> Flow[int]:
    action, local, row, _ = this.states(path)
    if action is not FileAction.FETCH or row is None:
        return 0
    content = content_of(row)
    seen = this.database.seen_at(path)
    if local is not None and seen is not None and seen.digest == content.digest:
        new = this.disk.set_executable(local, row.executable)
    else:
        incoming = this.disk.incoming(row)
        try:
            new = yield from _fetch_parts(this, incoming, row, local, done, total)
        finally:
            incoming.close()
    this.database.note_seen((SeenFile(new, content.digest), row.parts))
    this.database.set_agreed(AgreedFile(path, row.version, content))
    this.report.fetched += 1
    return row.size


def _fetch_parts(
    this: FilesRound, incoming: Incoming, row: FileRow, local: LocalFile | None, done: int, total: int
) -> Flow[LocalFile]:
    have = incoming.have()
    done += sum(part.length for part in row.parts[:have])
    for part in row.parts[have:]:
        data = part_on_disk(this.disk, this.database, part.content)
        if data is None:
            data = yield from get_blob(this.member, BlobRef.of(part))
            this.report.parts_fetched += 1
            this.report.bytes_fetched += part.length
        incoming.add(data)
        done += part.length
        yield Progress(FETCHING, done, max(total, done))
    if local is not None and not this.still_holds(this.database.seen_at(row.path), local):
        raise FileMoved("the file changed while another version was fetched")
    return incoming.finish(local)


def _remove(this: FilesRound, path: str, freed: AbstractSet[str]) -> None:
    direction = FUSED[FileAction.REMOVE]
    try:
        action, local, row, _ = this.states(path)
        if action is not FileAction.REMOVE or local is None or row is None:
            return
        if waits(this.database, this.member.replica, this.moves, path, freed):
            this.skipped.add(path)
            return
        this.disk.remove(local, row.version)  # §14-6
    except FileTrouble as trouble:
        this.skipped.add(path)
        this.report.troubled(path, trouble)
        return
    _note_deleted(this, path, direction)
    this.database.forget_seen([path])
    this.database.drop_agreed(path)
    this.report.removed += 1


def _note_deleted(this: FilesRound, path: str, direction: DeletionDirection) -> None:
    """Counts a deletion for the fuse, unless nothing is lost by it."""
    if not this.disk.derived(path) and (path, direction) not in this.moves:
        this.database.note_deleted(path, direction, this.now_ms)
