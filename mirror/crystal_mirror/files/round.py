"""A round of file sync: brings this device's files and the replicated tree together once.

::

    offers of ours that are ordered -> settle      scan -> read what changed, and in a new generation what is not in the tree
    -> plan -> fuse
    -> deletions -> offers (parts first) -> fetches (from this disk what it has) -> removals -> fetches that were blocked

Every step decides by the current state and leaves a state from which the next round can go on, so the round may be stopped
anywhere. A file in trouble is named in the report and left alone; a store that cannot answer ends the round.

Must be run when the memory's round is over and the mirror is applied: a replica in the middle of a replay lacks rows.
"""

from collections.abc import Callable, Iterator, Sequence

from crystal_mirror.entries.control_state import read_base
from crystal_mirror.file_paths import folded
from crystal_mirror.files.moves import moves
from crystal_mirror.files.ports import Disk, FileDatabase, FileOffer, FileTrouble, LocalFile, SeenFile
from crystal_mirror.files.shared import FilesReport, FilesRound, matches, rows_stand
from crystal_mirror.files.transfers import move_all, went_to
from crystal_mirror.files.tree import (
    FUSED,
    AgreedFile,
    FileAction,
    FileContent,
    PlannedAction,
    content_digest,
    content_of,
    decide,
    fused,
    merged,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import FILE_PARTS_MAX, FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.requests import Flow, Progress

FILES_TABLE = "files"
"""The table of the replicated tree in the state digest."""
READING = "reading files"

_META_SETTLED = "settled"
_META_CUT = "cut"
"""In which generation the files that are not in the tree yet were cut."""
_PROGRESS_BYTES = 16 * 1024 * 1024
_TOGETHER_FILES = 200
_TOGETHER_PARTS = 1000


def files_round(
    member: Member,
    disk: Disk,
    database: FileDatabase,
    *,
    now_ms: int,
    scan: bool = True,
    offered: Callable[[], None] = lambda: None,
) -> Flow[FilesReport]:
    """Runs one round. Without ``scan`` the disk is taken as last seen, except for the files that are touched. ``offered`` is
    called each time that changes were accepted: a round of the memory may send them while this one goes on.

    Raises:
        Revoked, KeysWithheld: this device may not offer anything.
        StoreFailure: the store could not answer; repeat the round later.
    """
    report = FilesReport()
    member.check_active()
    report.halted = disk.halted()
    if report.halted or not rows_stand(member):
        return report
    disk.tidy()
    this = FilesRound(
        member, disk, database, now_ms, report, member.replica.position(), *member.cut_seed(), offered
    )
    settle_offers(this)
    cut_now = this.generation.to_bytes(4, "big")
    renewed = database.meta_get(_META_CUT) != cut_now
    if renewed:
        _forget_cuts(this)
    changed = (yield from _read_changed(this)) if scan or renewed else False
    if renewed:
        database.meta_set(_META_CUT, cut_now)
    if not this.rows_stand():
        return report
    mark = _mark(member, disk)
    if not changed and not report.waiting and database.meta_get(_META_SETTLED) == mark:
        report.files = database.agreed_count()
        return report
    database.meta_set(_META_SETTLED, None)
    plan = list(_plan(this))
    yield from move_all(this, _within_the_fuse(this, plan))
    report.files = database.agreed_count()
    if not (plan or report.waiting or this.skipped):
        database.meta_set(_META_SETTLED, mark)
    return report


def settle_offers(this: FilesRound) -> None:
    """Notes what became of the offers that are ordered by now.

    A put of ours is at its path; or at a conflict path, where the local file then goes; or it named a condemned blob, had
    no effect, and is offered again; or a later version made from it is in its place.
    """
    replica = this.member.replica
    waiting = None
    agreed: list[AgreedFile] = []
    for offer in this.database.offers():
        if not replica.done(offer.origin):
            waiting = waiting or {name.origin for name in this.member.journal.names()}
            if offer.origin in waiting:
                this.report.waiting += 1
            else:  # the journal was lost, or the operation got another name: it is offered again, which does no harm
                this.database.end_offer(offer.path)
            continue
        if offer.content is None:
            this.database.end_offer(offer.path)
            continue
        try:
            settled = _settled_put(this, offer, offer.content)
            if settled is not None:
                agreed.append(settled)
        except FileTrouble as trouble:
            this.skipped.add(offer.path)
            this.report.troubled(offer.path, trouble)
    this.database.set_agreed(*agreed)


def _settled_put(this: FilesRound, offer: FileOffer, content: FileContent) -> AgreedFile | None:
    """The version that is at its path now; None if the offer was handled otherwise."""
    database, replica = this.database, this.member.replica
    ours = AgreedFile(offer.path, offer.origin, content)
    row = replica.file(offer.path)
    if row is not None and row.version == offer.origin:
        if content_of(row) == content:
            return ours
        database.end_offer(offer.path)  # another copy of this device gave that name to another version
        return None
    kept_at = went_to(replica, offer)
    if kept_at is not None:
        _step_aside(this, offer, content, kept_at)  # §14-4
        return None
    if any(replica.is_condemned(name) for name in offer.names):  # §14-2
        database.end_offer(offer.path)
        return None
    if row is not None and not row.gone and content_of(row) == content:
        return AgreedFile(offer.path, row.version, content)
    if read_base(replica) is not None:
        # The log was read from a snapshot on: that the name is done does not prove that our operation was done.
        # If it was, offering it again leaves at worst a copy beside the later version.
        database.end_offer(offer.path)
        return None
    return ours


def _step_aside(this: FilesRound, offer: FileOffer, content: FileContent, kept_at: str) -> None:
    """Another version came first: the local file, with any later change to it, goes where the log keeps it."""
    local = this.disk.look(offer.path)
    if local is not None:
        seen, parts = this.database.seen_at(offer.path), this.database.parts_of(offer.path)
        known = seen is not None and seen.holds_for(local)
        moved = this.disk.rename(local, kept_at)
        this.database.set_agreed(AgreedFile(kept_at, offer.origin, content))
        if known and seen is not None:
            this.database.note_seen((SeenFile(moved, seen.digest), parts))
    this.database.forget_seen([offer.path])
    this.database.drop_agreed(offer.path)
    this.report.conflicts.append(kept_at)


def _forget_cuts(this: FilesRound) -> None:
    """Has files read again that were cut in an older generation and are not put yet: a device that was revoked since could tell
    where they are cut. A file that was agreed upon or offered as it is here stays as it was cut."""
    offered = {offer.path: offer.content for offer in this.database.offers()}
    stale: list[str] = []
    for seen in this.database.seen():
        row = this.member.replica.file(seen.local.path)
        agreed = this.database.agreed_at(seen.local.path)
        known = [content_of(row)] if row is not None and not row.gone else []
        known += [content for content in (agreed and agreed.content, offered.get(seen.local.path)) if content]
        if seen.digest not in {content.digest for content in known}:  # §14-10
            stale.append(seen.local.path)
    this.database.forget_seen(stale)


def _read_changed(this: FilesRound) -> Flow[bool]:
    """Updates the database from the disk. Returns whether anything changed."""
    changed, vanished = _compared(this)
    this.report.refused |= this.disk.refused()
    gone: list[str] = []
    for path in vanished:
        if this.disk.excluded(path):
            gone.append(path)
            continue
        try:
            local = this.disk.look(path)
        except FileTrouble as trouble:  # something else is there, or it cannot be read: that is no deletion
            this.skipped.add(path)
            this.report.troubled(path, trouble)
            continue
        if local is None:
            gone.append(path)
        else:
            changed.append(local)
    places = {(local.stamp.size, local.stamp.inode) for local in changed}
    for path in gone:
        seen = this.database.seen_at(path)
        if seen is not None and (place := (seen.local.stamp.size, seen.local.stamp.inode)) in places:
            this.moved[place] = this.database.parts_of(path)
    this.database.forget_seen(gone)
    yield from _read(this, changed)
    return bool(changed or vanished)


def _read(this: FilesRound, changed: Sequence[LocalFile]) -> Flow[None]:
    """Reads files and notes what they hold, many in one transaction of the database."""
    total = sum(local.stamp.size for local in changed)
    done = told = held = 0
    read: dict[str, tuple[SeenFile, list[FilePart]]] = {}
    for local in changed:
        try:
            parts: list[FilePart] = []
            form = folded(local.path)
            if form in read or this.database.spelled_otherwise(local.path) is not None:
                raise FileTrouble("its name differs from another file's only in case or accents")
            known = yield from _known_parts(this, local)
            for part in this.disk.cut(local, this.seed) if known is None else known:
                parts.append(part)
                done += part.length
                if len(parts) > FILE_PARTS_MAX:
                    raise FileTrouble("it is too large to be synced")
                if done - told >= _PROGRESS_BYTES:
                    told = done
                    yield Progress(READING, done, max(total, done))
            read[form] = SeenFile(local, content_digest(parts)), parts
            held += len(parts)
        except FileTrouble as trouble:
            this.skipped.add(local.path)
            this.report.troubled(local.path, trouble)
        if len(read) >= _TOGETHER_FILES or held > _TOGETHER_PARTS:
            this.database.note_seen(*read.values())
            read.clear()
            held = 0
    this.database.note_seen(*read.values())


def _known_parts(this: FilesRound, local: LocalFile) -> Flow[Sequence[FilePart] | None]:
    """The parts of this file in the tree or at the last look (also under another name), if it still consists of them: then it
    stays cut in these places. None if its content is another."""
    row = this.member.replica.file(local.path)
    candidates: dict[bytes, Sequence[FilePart]] = {}
    if row is not None and not row.gone:
        candidates[content_digest(row.parts)] = row.parts
    if (seen := this.database.seen_at(local.path)) is not None:
        candidates.setdefault(seen.digest, this.database.parts_of(local.path))
    if (moved := this.moved.get((local.stamp.size, local.stamp.inode))) is not None:
        candidates.setdefault(content_digest(moved), moved)
    for parts in candidates.values():
        told = done = 0
        for number, same in enumerate(matches(this.disk, local, parts)):
            if not same:
                break
            done += parts[number].length if number < len(parts) else 0
            if done - told >= _PROGRESS_BYTES:
                told = done
                yield Progress(READING, done, local.stamp.size)
        else:
            return parts
    return None


def _compared(this: FilesRound) -> tuple[list[LocalFile], list[str]]:
    """The files that have to be read, and the paths that are gone. Both sides are in the order of their paths."""
    changed: list[LocalFile] = []
    vanished: list[str] = []
    known: Iterator[SeenFile] = this.database.seen()
    seen = next(known, None)
    for local in this.disk.scan():
        while seen is not None and seen.local.path < local.path:
            vanished.append(seen.local.path)
            seen = next(known, None)
        if seen is not None and seen.local.path == local.path:
            if not seen.holds_for(local):
                changed.append(local)
            seen = next(known, None)
        else:
            changed.append(local)
    while seen is not None:
        vanished.append(seen.local.path)
        seen = next(known, None)
    return changed, vanished


def _plan(this: FilesRound) -> Iterator[PlannedAction]:
    """What is to be done, path by path. What only has to be noted is noted at the end."""
    pending = {offer.path for offer in this.database.offers()}
    noted: list[tuple[FileAction, str, FileRow | None, FileContent | None]] = []
    agreed_now: list[AgreedFile] = []
    set_aside = 0
    here = ((seen.local.path, seen.content) for seen in this.database.seen())
    for path, local, agreed, remote in merged(here, this.database.agreed(), this.member.replica.files()):
        if path in this.skipped:
            continue
        action = decide(local, remote, agreed, pending=path in pending)
        if action in (FileAction.NOTHING, FileAction.WAIT):
            continue
        fault = this.disk.fault(path)  # §14-5
        if fault is not None:
            this.report.refused[path] = fault
        elif this.disk.excluded(path):
            if agreed is not None and not agreed.aside:
                agreed_now.append(AgreedFile(path, agreed.version, agreed.content, aside=True))
                set_aside += 1
        elif action in (FileAction.ADOPT, FileAction.FORGET):
            noted.append((action, path, remote, local))
        else:
            yield PlannedAction(path, action)
    for action, path, row, local in noted:
        if action is FileAction.ADOPT and row is not None and local is not None:
            agreed_now.append(AgreedFile(path, row.version, local))
        else:
            this.database.drop_agreed(path)
    this.report.adopted += len(agreed_now) - set_aside
    this.database.set_agreed(*agreed_now)


def _within_the_fuse(this: FilesRound, plan: list[PlannedAction]) -> list[PlannedAction]:
    confirmed = this.database.confirmed()
    lately = this.database.deleted_lately(this.now_ms)
    asked = {(one.path, FUSED[one.action]) for one in plan if one.action in FUSED}
    derived = {one for one in asked if this.disk.derived(one[0])}
    this.moves = moves(this.database, this.member.replica, plan)
    held = fused(plan, this.database.agreed_count(), lately, confirmed | derived | this.moves.keys())
    this.database.withhold(held, sorted(asked & confirmed))
    this.report.withheld = held
    withheld = set(held)
    return [
        planned
        for planned in plan
        if planned.action not in FUSED or (planned.path, FUSED[planned.action]) not in withheld
    ]


def _mark(member: Member, disk: Disk) -> bytes:
    """Changes with every change of the replicated tree, and of what is excluded here."""
    sums = [table for table in member.replica.digest().tables if table.name == FILES_TABLE]
    return b"".join(table.sum + table.count.to_bytes(8, "big") for table in sums) + disk.rules()
