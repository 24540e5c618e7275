"""The steps of a round of file sync that move something: deletions, offers, fetches, removals.

A put::

    look -> Has: which large parts lack? -> read each from the disk, PutBlobs -> accept PutFile -> note the offer
              (a part that does not read as it was seen: the file changed, the next round looks again; the same if the
              vault's keys were renewed meanwhile: the file is then cut at other places, and its parts have other names)

A fetch::

    look -> temporary file beside its place <- parts: from this disk where one is seen, else GetBlobs
         -> durable, read back -> into its place, if what stands there is still what was looked at -> note the version

Files are put and fetched in groups: their parts in few requests, while others are read or written here. What was put may be
sent to the Core while the next group is read; files that come are made durable once for a whole group.
After a kill a put is made again (the log takes equal content as done), and a fetch continues after the parts that it has.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import accumulate

from crystal_crypto.blob import ContentChanged, blob_bytes
from crystal_crypto.errors import WrongKey
from crystal_mirror.file_paths import conflict_form, conflict_paths, folded
from crystal_mirror.files.moves import waits
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
from crystal_mirror.files.shared import FilesRound, part_on_disk
from crystal_mirror.files.tree import (
    FUSED,
    AgreedFile,
    DeletionDirection,
    FileAction,
    FileContent,
    PlannedAction,
    content_of,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import OPERATION_BYTES_MAX, ChangeFiles, DropFile, FilePart, PutFile, blob_name
from crystal_mirror.ports import FileRow, ReplicaView
from crystal_mirror.requests import Flow, Progress, PutBlobs
from crystal_mirror.snapshots.blobs import (
    BlobDamaged,
    BlobRef,
    get_blobs,
    lacking,
    name_of,
    put_under,
    sealed_blob,
    usable_turn,
)

SENDING = "sending files"
FETCHING = "fetching files"
_TOGETHER_FILES = 256
"""Files whose offers are accepted in one transaction."""
_TOGETHER_PARTS = 1024
_FETCHED_FILES = 64
"""Files that are put together at the same time. Each holds two open files and is made durable with the others."""
_WINDOW_BYTES = 3584 * 1024
"""Parts that are fetched together and held in memory: sealed, they fit one request. A larger part is fetched alone."""
_SENT_BYTES = 2 * 1024 * 1024
"""Sealed parts that are sent together: while they are on their way, the next ones are read."""
_UNSHRUNK_PARTS, _UNTRIED_PARTS = 4, 8
"""After the first number of parts in a row that compression did not make smaller, one of the second number is tried, until one
gets smaller."""
_TOLD_BYTES = 512 * 1024
"""After so much was read, progress is told, and what is on its way may go on."""
WINDOW_PARTS = 512
"""Parts that are fetched together, however small they are."""
_UNASKED_BYTES_MAX = 256 * 1024
"""A new part of up to this size is sent without asking whether the relay has it: to ask costs a request, as sending does."""
_META_SENDING = "sending"
"""Set while parts are sent: a round that finds it goes on with what another one began."""
_CHANGE_BYTES, _PART_BYTES = 64, 80
"""A change as it is encoded takes so much at most beside its path and its parts, and a part so much."""
_CANDIDATES = 64


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
    recognised even if another version or a tombstone is there by now. Files of one operation share its name: what they hold
    tells them apart."""
    candidates = conflict_paths(offer.path, offer.origin)
    first = True
    for _ in range(_CANDIDATES):
        path = next(candidates)
        row = replica.file(path)
        if row is not None and (content_of(row) == offer.content if row.version == offer.origin else first):
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


def _drop(this: FilesRound, paths: Iterable[str]) -> None:
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
        _accept(this, [(DropFile(path, agreed.version), None) for path, agreed in some])
        for path, _ in some:
            _note_deleted(this, path, FUSED[FileAction.DROP])
        this.report.dropped += len(some)


def _accept(this: FilesRound, changes: Sequence[tuple[PutFile | DropFile, FileContent | None]]) -> None:
    """Offers puts and deletions, with what the files hold; several in one operation."""
    groups = list(_groups(changes))
    operations = [
        ChangeFiles(tuple(each for each, _ in some)) if len(some) > 1 else some[0][0] for some in groups
    ]
    origins = this.member.accept_many(operations)
    this.database.add_offers(
        [
            FileOffer(each.path, origin, content, () if content is None else _names(this.member, each))
            for some, origin in zip(groups, origins, strict=True)
            for each, content in some
        ]
    )
    this.offered()


_Changes = list[tuple[PutFile | DropFile, FileContent | None]]


def _groups(changes: Sequence[tuple[PutFile | DropFile, FileContent | None]]) -> Iterator[_Changes]:
    """Changes that make one operation each."""
    group: _Changes = []
    size, forms = 0, set[str]()
    for each, content in changes:
        parts = len(each.parts) if isinstance(each, PutFile) else 0
        weight = _CHANGE_BYTES + len(each.path.encode()) + _PART_BYTES * parts
        form = conflict_form(each.path)
        if group and (size + weight > OPERATION_BYTES_MAX or form in forms):  # §14-13
            yield group
            group, size, forms = [], 0, set[str]()
        group.append((each, content))
        size += weight
        forms.add(form)
    if group:
        yield group


def _put(this: FilesRound, paths: Sequence[str]) -> Flow[None]:
    """Offers files in groups: their parts are put first, then all are accepted at once."""
    group: list[tuple[str, SeenFile, AgreedFile | None, list[FilePart]]] = []
    parts = 0
    found = (this.database.seen_at(path) for path in paths)
    sending = _Sending(this, sum(seen.local.stamp.size for seen in found if seen is not None))
    this.resumes = this.database.meta_get(_META_SENDING) is not None
    if paths and not this.resumes:
        this.database.meta_set(_META_SENDING, b"")
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
        parts += len(group[-1][3])
        if len(group) >= _TOGETHER_FILES or parts >= _TOGETHER_PARTS:
            yield from _put_group(this, group, sending)
            group, parts = [], 0
    if group:
        yield from _put_group(this, group, sending)
    if paths:
        this.database.meta_set(_META_SENDING, None)


def _put_group(
    this: FilesRound,
    group: Sequence[tuple[str, SeenFile, AgreedFile | None, list[FilePart]]],
    sending: "_Sending",
) -> Flow[None]:
    member = this.member
    refs = [_refs(this, path, seen, parts) for path, seen, _, parts in group]
    direct, asked = set[BlobRef](), dict[BlobRef, None]()
    for (path, *_), each in zip(group, refs, strict=True):
        new = [ref for ref, is_new in each if is_new]
        probable = _probably_there(this, path, new)
        direct |= {ref for ref in new if ref not in probable}
        asked |= dict.fromkeys(ref for ref in new if ref in probable)
    direct -= asked.keys()
    missing = set((yield from lacking(member, list(asked)))) | direct
    ready: list[tuple[PutFile | DropFile, FileContent | None]] = []
    for (path, seen, agreed, _), each in zip(group, refs, strict=True):
        try:
            yield from sending.put_parts(path, [ref for ref, _ in each], missing)
        except FileTrouble as trouble:
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            continue
        named = tuple(FilePart(ref.content, ref.length, ref.named) for ref, _ in each)
        base = None if agreed is None else agreed.version  # §14-3
        operation = PutFile(path, base, seen.local.executable, seen.local.modified_at, named)
        ready.append((operation, seen.content))
    yield from sending.flush()  # §14-2
    if not ready:
        return
    _accept(this, ready)
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


def _probably_there(this: FilesRound, path: str, refs: Sequence[BlobRef]) -> set[BlobRef]:
    """The parts that the relay may well have, so that it is asked: all of them if the file was moved or an earlier round was
    stopped while it sent, else large ones, and those that the file had before or another file here has."""
    if this.resumes or path in this.moved_to:
        return set(refs)
    before = {ref.content for ref in _of_row(this, path)}
    return {
        ref
        for ref in refs
        if ref.length > _UNASKED_BYTES_MAX
        or ref.content in before
        or any(place.path != path for place in this.database.places(ref.content))
    }


def _of_row(this: FilesRound, path: str) -> set[BlobRef]:
    """The blobs of the living row of a path."""
    row = this.member.replica.file(path)
    return set() if row is None or row.gone else {BlobRef.of(part) for part in row.parts}


def _refs(
    this: FilesRound, path: str, seen: SeenFile, parts: Sequence[FilePart]
) -> list[tuple[BlobRef, bool]]:
    """The blob of each part, and whether the relay may lack it: what a living row of this path names is there."""
    member = this.member
    standing = {ref.content: ref for ref in _standing(this).get(seen.digest, ())}
    mine = set[BlobRef]() if this.resumes or path in this.moved_to else _of_row(this, path)
    found: list[tuple[BlobRef, bool]] = []
    for part in parts:
        turn = usable_turn(member, part.content)
        new = BlobRef(part.content, part.length, member.named(part.content, turn))
        ref = standing.get(part.content, new)
        if ref == new or member.replica.is_condemned(name_of(member, ref)):
            found.append((new, new not in mine))  # §14-11
        else:
            found.append((ref, False))
    return found


@dataclass
class _Sending:
    """Sealed parts on their way to the relay, many in one request. The next ones are read meanwhile."""

    this: FilesRound
    total: int
    """Bytes of all files that are put."""
    done: int = 0
    told: int = 0
    blobs: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    size: int = 0
    begun: bool = False
    """Whether any of them may still be on its way."""

    def put_parts(self, path: str, refs: Sequence[BlobRef], missing: set[BlobRef]) -> Flow[None]:
        """Reads and seals the parts of a file that are missing. They are on the relay after the next ``flush``."""
        this, offset, unshrunk = self.this, 0, 0
        for part in refs:
            if this.member.log.generation != this.generation:  # §14-10
                raise FileMoved("the vault's keys were renewed while the file was sent")
            if part in missing:
                data = this.disk.read(PartPlace(path, offset, part.length))
                tries = unshrunk < _UNSHRUNK_PARTS or not unshrunk % _UNTRIED_PARTS  # §6.1-4
                try:
                    blob = sealed_blob(this.member, part, data, compress=tries)
                except ContentChanged as changed:
                    raise FileMoved("the file changed while it was sent") from changed
                unshrunk = unshrunk + 1 if len(blob[1]) == blob_bytes(part.length) else 0
                self.blobs.append(blob)
                self.size += len(blob[1])
                missing.discard(part)
                this.report.parts_put += 1
                this.report.bytes_put += part.length
                if self.size >= _SENT_BYTES:
                    yield PutBlobs(tuple(self.blobs), behind=True)
                    self.blobs, self.size, self.begun = [], 0, True
            offset += part.length
            self.done += part.length
            if self.done - self.told >= _TOLD_BYTES:
                self.told = self.done
                yield Progress(SENDING, self.done, max(self.total, self.done))

    def flush(self) -> Flow[None]:
        """Until all of them are on the relay."""
        if self.blobs or self.begun:
            yield PutBlobs(tuple(self.blobs))
            self.blobs, self.size, self.begun = [], 0, False


def _names(member: Member, change: PutFile | DropFile) -> tuple[bytes, ...]:
    parts = change.parts if isinstance(change, PutFile) else ()
    return tuple(blob_name(member.secret, part.content, part.named) for part in parts)


@dataclass
class _Arriving:
    """A file that is being fetched."""

    row: FileRow
    local: LocalFile | None
    incoming: Incoming
    failed: bool = False


@dataclass
class _Fetches:
    """What the fetches of a round have come to."""

    total: int
    done: int = 0
    blocked: list[str] = field(default_factory=list[str])
    """Paths of files in whose way something stands."""
    full: bool = False
    """The disk is: nothing more is fetched."""
    ahead: dict[BlobRef, None] = field(default_factory=dict[BlobRef, None])
    """Parts that are probably wanted next, and are nowhere on this disk."""

    def failed(self, this: FilesRound, path: str, trouble: FileTrouble | BlobDamaged | WrongKey) -> None:
        this.skipped.add(path)
        if not isinstance(trouble, FileTrouble) or isinstance(trouble, DiskFull):
            this.report.lacking[path] = str(trouble)
            self.full |= isinstance(trouble, DiskFull) and not isinstance(trouble, TooLargeHere)
            return
        this.report.troubled(path, trouble)
        if not isinstance(trouble, FileMoved):
            self.blocked.append(path)


def _fetch_all(this: FilesRound, paths: Sequence[str]) -> Flow[list[str]]:
    """Fetches files, many at a time. Returns those that something blocks."""
    rows = (this.member.replica.file(path) for path in paths)
    fetches = _Fetches(sum(row.size for row in rows if row is not None))
    group: list[_Arriving] = []
    held = 0
    try:
        for number, path in enumerate(paths, 1):
            this.report.refused.pop(path, None)
            try:
                arriving = _begin_fetch(this, path)
            except FileTrouble as trouble:
                fetches.failed(this, path, trouble)
                if fetches.full:
                    break
                continue
            if arriving is not None:
                group.append(arriving)
                held += arriving.row.size
            if len(group) >= _FETCHED_FILES or held >= _WINDOW_BYTES:
                yield from _fetch_group(this, group, fetches, paths[number : number + _FETCHED_FILES])
                held = 0
                if fetches.full:
                    return []
        yield from _fetch_group(this, group, fetches, ())
    finally:
        for arriving in group:
            arriving.incoming.close()
    return [] if fetches.full else fetches.blocked


def _begin_fetch(this: FilesRound, path: str) -> _Arriving | None:
    """None if there is nothing to fetch (any more). Raises FileTrouble."""
    action, local, row, _ = this.states(path)
    if action is not FileAction.FETCH or row is None:
        return None
    seen = this.database.seen_at(path)
    if local is not None and seen is not None and seen.digest == content_of(row).digest:
        _note_fetched(this, [(row, this.disk.set_executable(local, row.executable))])
        return None
    return _Arriving(row, local, this.disk.incoming(row))


def _fetch_group(
    this: FilesRound, group: list[_Arriving], fetches: _Fetches, after: Sequence[str]
) -> Flow[None]:
    """Fetches the parts of these files, a window of them at a time, and puts the files in their places. Empties the group.
    ``after``: the files that are probably fetched next."""
    waiting: list[tuple[_Arriving, FilePart]] = []
    for arriving in group:
        have = arriving.incoming.have()
        waiting += ((arriving, part) for part in arriving.row.parts[have:])
        fetches.done += sum(part.length for part in arriving.row.parts[:have])
    windows = list(_windows(waiting))
    for number, window in enumerate(windows, 1):
        wanted = [each for each in window if not each[0].failed]
        following = [part for _, part in windows[number]] if number < len(windows) else _first(this, after)
        absent, fetches.ahead = fetches.ahead, _absent(this, following)
        yield from _fetch_window(this, wanted, absent, fetches)
        yield Progress(FETCHING, fetches.done, max(fetches.total, fetches.done))
        if fetches.full:
            break
    if not fetches.full:
        _place(this, [arriving for arriving in group if not arriving.failed], fetches)
    for arriving in group:
        arriving.incoming.close()
    group.clear()


_Window = list[tuple[_Arriving, FilePart]]


def _windows(parts: Iterable[tuple[_Arriving, FilePart]]) -> Iterator[_Window]:
    """Parts that are fetched together."""
    window: _Window = []
    size = 0
    for each in parts:
        if window and (len(window) == WINDOW_PARTS or size + each[1].length > _WINDOW_BYTES):
            yield window
            window, size = [], 0
        window.append(each)
        size += each[1].length
    if window:
        yield window


def _first(this: FilesRound, paths: Sequence[str]) -> list[FilePart]:
    """The first parts of files that may be fetched, a window of them."""
    rows = (this.member.replica.file(path) for path in paths)
    parts = [part for row in rows if row is not None for part in row.parts[:WINDOW_PARTS]]
    sizes = accumulate(part.length for part in parts)
    return [part for part, size in zip(parts, sizes, strict=True) if size <= _WINDOW_BYTES][:WINDOW_PARTS]


def _absent(this: FilesRound, parts: Iterable[FilePart]) -> dict[BlobRef, None]:
    """Those that are nowhere on this disk, as far as it was seen."""
    refs = dict.fromkeys(BlobRef.of(part) for part in parts)
    return {ref: None for ref in refs if not this.database.places(ref.content)}


def _fetch_window(
    this: FilesRound, window: _Window, absent: Container[BlobRef], fetches: _Fetches
) -> Flow[None]:
    """``absent``: parts of the window that are not looked for on this disk."""
    data: dict[BlobRef, bytes | BlobDamaged | WrongKey] = {}
    lacking_here: dict[BlobRef, None] = {}
    for _, part in window:
        ref = BlobRef.of(part)
        if ref not in data and ref not in lacking_here:
            here = None if ref in absent else part_on_disk(this.disk, this.database, part.content)
            if here is None:
                lacking_here[ref] = None
            else:
                data[ref] = here
    if lacking_here:
        data |= yield from get_blobs(this.member, tuple(lacking_here), tuple(fetches.ahead))
    fetched = [data[ref] for ref in lacking_here]
    this.report.parts_fetched += sum(isinstance(content, bytes) for content in fetched)
    this.report.bytes_fetched += sum(len(content) for content in fetched if isinstance(content, bytes))
    for arriving, part in window:
        content = data[BlobRef.of(part)]
        if arriving.failed or fetches.full:
            continue
        try:
            if not isinstance(content, bytes):
                raise content
            arriving.incoming.add(content)
            fetches.done += part.length
        except (FileTrouble, BlobDamaged, WrongKey) as trouble:
            arriving.failed = True
            fetches.failed(this, arriving.row.path, trouble)


def _place(this: FilesRound, arrived: Sequence[_Arriving], fetches: _Fetches) -> None:
    """Puts files that are there whole in their places, and notes them as agreed."""
    whole: list[_Arriving] = []
    for arriving in arrived:
        local = arriving.local
        try:
            if local is not None and not this.still_holds(this.database.seen_at(local.path), local):
                raise FileMoved("the file changed while another version was fetched")
            whole.append(arriving)
        except FileTrouble as trouble:
            fetches.failed(this, arriving.row.path, trouble)
    placed = this.disk.place([(arriving.incoming, arriving.local) for arriving in whole])
    noted: list[tuple[FileRow, LocalFile]] = []
    for arriving, outcome in zip(whole, placed, strict=True):
        if isinstance(outcome, FileTrouble):
            fetches.failed(this, arriving.row.path, outcome)
        else:
            noted.append((arriving.row, outcome))
    _note_fetched(this, noted)


def _note_fetched(this: FilesRound, fetched: Sequence[tuple[FileRow, LocalFile]]) -> None:
    contents = [content_of(row) for row, _ in fetched]
    this.database.note_seen(
        *(
            (SeenFile(new, content.digest), row.parts)
            for (row, new), content in zip(fetched, contents, strict=True)
        )
    )
    this.database.set_agreed(
        *(
            AgreedFile(row.path, row.version, content)
            for (row, _), content in zip(fetched, contents, strict=True)
        )
    )
    this.report.fetched += len(fetched)


def _remove(this: FilesRound, path: str, freed: AbstractSet[str]) -> None:
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
    _note_deleted(this, path, FUSED[FileAction.REMOVE])
    this.database.forget_seen([path])
    this.database.drop_agreed(path)
    this.report.removed += 1


def _note_deleted(this: FilesRound, path: str, direction: DeletionDirection) -> None:
    """Counts a deletion for the fuse, unless nothing is lost by it."""
    if not this.disk.derived(path) and (path, direction) not in this.moves:
        this.database.note_deleted(path, direction, this.now_ms)
