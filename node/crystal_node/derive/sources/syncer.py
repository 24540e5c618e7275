"""Sync of one source: new and changed documents are put into the memory, missing ones are dropped.

::

    scan (stamps only) --> files whose stamp and vault agree are done
         |                  the rest is read, file by file, in batches:
         |                  same content: noted; else its passages are put, then noted
         v
    what is gone ---------> few: dropped, after everything was put, so that what a moved file holds keeps its vectors
                            many, or another folder stands there: held until a person confirms

Each batch is accepted before it is noted in the database. After a kill in between these files are read again, found in the
vault as they are, and not sent. A root or a folder that is missing or cannot be listed removes nothing.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from crystal_core.cutting import Passage, PassageKind
from crystal_core.database import Database
from crystal_core.documents import Document, documents, titles
from crystal_mirror.operations import MILLISECONDS_MAX, DropDocument, Operation, PutDocument
from crystal_node.base.clock import now_ms
from crystal_node.base.secret_files import FORM_RULES
from crystal_node.capture.redaction import redact
from crystal_node.derive.sources.database import SENT, KeptSource, KnownFile, LastScan, SourceDatabase
from crystal_node.derive.sources.extraction import Extractor
from crystal_node.derive.sources.filetypes import Skipped
from crystal_node.derive.sources.reader import BatchReader, ReadResult
from crystal_node.derive.sources.scan import SourceScan, SourceStamp
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy
from crystal_node.device.redaction_version import RULES_VERSION

TEXT_BYTES_MAX = 192 * 1024
"""Bytes of texts and titles in an operation, which keeps it under ``OPERATION_BYTES_MAX``."""
PIECES_AT_ONCE = 64
"""Passages of an operation, which shares an entry with their vectors: up to 12 KiB each from a remote model."""
_EACH = 16
"""Overhead of a text in bytes."""


def put_operations(
    source: str, path: str, version: bytes, modified_ns: int, kind: PassageKind, passages: list[Passage]
) -> Iterator[PutDocument]:
    """The operations of one document, in order."""
    first = 0
    modified_at = min(max(modified_ns // 1_000_000, 0), MILLISECONDS_MAX)
    for group in _groups(passages):
        yield PutDocument(
            source,
            path,
            version,
            modified_at,
            kind.value,
            first,
            len(passages),
            tuple(passage.text for passage in group),
            tuple(passage.title for passage in group),
        )
        first += len(group)


def without_forgotten(device: Device, passages: tuple[Passage, ...]) -> list[Passage]:
    """The passages that were not forgotten: those never leave this device again, whatever the file says."""
    hides = device.replica.hides
    return [passage for passage in passages if not hides(sha256(passage.text.encode()).digest())]


def _groups(passages: list[Passage]) -> Iterator[list[Passage]]:
    group: list[Passage] = []
    size = 0
    for passage in passages:
        length = len(passage.text.encode()) + len(passage.title.encode()) + _EACH
        if group and (len(group) == PIECES_AT_ONCE or size + length > TEXT_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(passage)
        size += length
    if group:
        yield group


DROPS_AT_ONCE = 500
FUSE_FREE_FILES = 10
"""Up to this many removals need no confirmation."""
FUSE_SHARE_MAX = 0.5
"""A larger share of a source's documents is not removed without a person's confirmation."""
NAMED_MAX = 100

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""What is done, done, total."""


@dataclass
class SourceSyncResult:
    """What one sync of a source did. ``problem``: why nothing was done. ``waiting``: removals that a person has to confirm."""

    name: str
    files: int = 0
    """Files of the source that are to be read."""
    new: int = 0
    changed: int = 0
    removed: int = 0
    pieces: int = 0
    """Passages that were put."""
    redacted: int = 0
    read: int = 0
    """Files that were opened."""
    waiting: int = 0
    waiting_named: list[str] = field(default_factory=list[str])
    problem: str = ""
    complete: bool = True
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    named: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def worked(self) -> bool:
        return bool(self.new or self.changed or self.removed)


@dataclass
class _Look:
    """Documents of the vault, files read before, files seen now, and those that have to be read. ``stale``: documents with a
    title that newer redaction rules blank."""

    vault: dict[str, Document]
    known: dict[str, KnownFile]
    stale: set[str]
    seen: set[str] = field(default_factory=set[str])
    changed: list[tuple[str, SourceStamp]] = field(default_factory=list[tuple[str, SourceStamp]])


@dataclass
class SourceLook:
    """A source that was scanned, without opening a file. ``look`` is None if it could not be: ``problem`` says why."""

    source: KeptSource
    scan: SourceScan
    look: _Look | None = None
    problem: str = ""

    @property
    def to_read(self) -> int:
        """The number of files that have to be read."""
        return 0 if self.look is None else len(self.look.changed)


async def look_at_source(device: Device, database: SourceDatabase, source: KeptSource) -> SourceLook:
    """Scans a source of this device."""
    scan = SourceScan(source.root, source.include, source.exclude, kept_out=device.settings.home.root)
    found = SourceLook(source, scan)
    work = partial(_look, scan, device.settings.home.database, database, source)
    try:
        found.look = await _in_thread(work, threading.Event())
    except FileNotFoundError:
        found.problem = f"{source.root} is not there"
    except OSError as error:
        found.problem = _why(error)
    return found


async def sync_source(
    device: Device,
    database: SourceDatabase,
    found: SourceLook,
    *,
    confirmed: bool = False,
    progress: Progress | None = None,
    seconds: float | None = None,
) -> SourceSyncResult:
    """Brings the memory up to what was found in a source of this device, for at most ``seconds``.

    Raises:
        PrivateNow: private mode is on.
        Revoked, LocalStorage: as accepting raises them; batches noted before are done.
    """
    _check_public(device)
    until = None if seconds is None else time.monotonic() + seconds
    source, scan, look = found.source, found.scan, found.look
    report = SourceSyncResult(source.name)
    stop = threading.Event()
    if look is None:
        report.problem = found.problem
        report.complete = False
        _keep(database, source, report)
        return report
    vault, known = look.vault, look.known
    report.files = len(look.seen)
    gone = [path for path in sorted(vault.keys() | known.keys()) if path not in look.seen]
    gone = [path for path in gone if not path.startswith(tuple(scan.unlisted))] if scan.unlisted else gone
    with Extractor(stop) as extractor:
        reader = BatchReader(
            source.root, iter(look.changed), known, vault, extractor.extract, stop, frozenset(look.stale)
        )
        await _put(device, database, reader, len(look.changed), report, progress, until)
    _tell_skipped(database, scan, report)
    same_root = not source.inode or (scan.device, scan.inode) == (source.device, source.inode)
    if report.complete:
        held = set[str]()
        if not confirmed:
            held = _held(source.root, gone, vault, look.seen, same_root=same_root)
        report.waiting, report.waiting_named = len(held), sorted(held)[:NAMED_MAX]
        _drop(device, database, source.name, [path for path in gone if path not in held], vault, report)
    identity = (scan.device, scan.inode) if not report.waiting else (source.device, source.inode)
    _keep(database, replace(source, device=identity[0], inode=identity[1]), report)
    return report


def _look(scan: SourceScan, memory_path: Path, database: SourceDatabase, source: KeptSource) -> _Look:
    """Scans the source, opening no file. After newer rules came, files that they concern are to be read again.

    Uses a database connection of its own: it runs in a thread.
    """
    again = source.last.rules != FORM_RULES
    with Database.open(memory_path) as memory:
        vault = {each.path: each for each in documents(memory, source.name)}
        stale = set[str]()
        if source.last.redaction != RULES_VERSION:
            stale = {path for path, title in titles(memory, source.name) if redact(title).counts}
    known = database.files(source.name)
    look = _Look(vault, known, stale)
    able = find_spec("pypdf") is not None
    for path, stamp in scan.files():
        look.seen.add(path)
        before = known.get(path)
        if again or path in stale or before is None or before.stamp != stamp:
            look.changed.append((path, stamp))
        elif before.became == SENT:
            there = vault.get(path)
            if there is None or there.version != before.digest or not there.complete:
                look.changed.append((path, stamp))
        elif path in vault or (able and before.became == Skipped.NO_EXTRACTOR.value):
            look.changed.append((path, stamp))
    return look


async def _put(
    device: Device,
    database: SourceDatabase,
    reader: BatchReader,
    total: int,
    report: SourceSyncResult,
    progress: Progress | None,
    until: float | None,
) -> None:
    """Reads changed files and puts new passages. Clears ``complete`` if time was up."""
    done = 0
    if progress is not None and total:
        progress(report.name, 0, total)
    while done < total:
        batch = await _in_thread(reader.batch, reader.stop)
        _check_public(device)
        operations: list[Operation] = []
        notes: list[tuple[str, KnownFile]] = []
        for one in batch:
            _take(device, report.name, one, reader.vault, operations, notes, report)
        if operations:
            device.accept(operations)
        database.note(report.name, notes, [one.path for one in batch if one.gone])
        done += len(batch)
        if progress is not None:
            progress(report.name, done, total)
        if until is not None and time.monotonic() > until and done < total:
            report.complete = False
            return


def _take(
    device: Device,
    name: str,
    one: ReadResult,
    vault: dict[str, Document],
    operations: list[Operation],
    notes: list[tuple[str, KnownFile]],
    report: SourceSyncResult,
) -> None:
    """Turns one file into operations and notes. A file that cannot be opened now keeps its document."""
    known = one.known
    report.read += one.opened
    if known is None:
        return
    if known.became != SENT:
        if known.became == Skipped.UNREADABLE.value:
            return
        if one.path in vault:
            operations.append(DropDocument(name, one.path))
            report.removed += 1
    elif one.prepared is not None:
        passages = without_forgotten(device, one.prepared.passages)
        put = list(put_operations(name, one.path, known.digest, one.modified_ns, one.prepared.kind, passages))
        operations.extend(put)
        known = replace(known, pieces=len(passages))
        report.pieces += len(passages)
        report.redacted += one.prepared.redacted
        if one.path in vault:
            report.changed += 1
        else:
            report.new += 1
    notes.append((one.path, known))


def _held(
    root: Path, gone: list[str], vault: dict[str, Document], seen: set[str], *, same_root: bool
) -> set[str]:
    """Documents whose removal a person has to confirm: too many at once, or another folder is in the same place.

    Files that still exist and are left out by a rule are not among them.
    """
    folder = root if root.is_dir() else root.parent
    missing = {path for path in gone if path in vault and not (folder / path).exists()}
    few = len(missing) <= max(FUSE_FREE_FILES, FUSE_SHARE_MAX * len(vault))
    return set() if few and same_root and seen else missing


def _tell_skipped(database: SourceDatabase, scan: SourceScan, report: SourceSyncResult) -> None:
    """Reports what was not read, because of its name or content."""
    counts = Counter({why.value: count for why, count in scan.skips.counts.items()})
    counts.update(database.totals(report.name).others)
    report.skipped = dict(counts)
    named = {path: why.value for path, why in scan.skips.named.items()}
    report.named = named | {
        path: why for path, why in database.not_taken(report.name, NAMED_MAX) if Skipped(why).told
    }


def _drop(
    device: Device,
    database: SourceDatabase,
    name: str,
    gone: list[str],
    vault: dict[str, Document],
    report: SourceSyncResult,
) -> None:
    for start in range(0, len(gone), DROPS_AT_ONCE):
        some = gone[start : start + DROPS_AT_ONCE]
        operations = [DropDocument(name, path) for path in some if path in vault]
        if operations:
            device.accept(operations)
            report.removed += len(operations)
        database.note(name, gone=some)


def _keep(database: SourceDatabase, source: KeptSource, report: SourceSyncResult) -> None:
    """Stores how the scan went. A source that was removed meanwhile stays removed."""
    if database.source(source.name) is None:
        return
    now = now_ms()
    last = source.last
    if report.problem:
        database.put(
            replace(
                source, last=msgspec.structs.replace(last, at=now, complete=False, problem=report.problem)
            )
        )
        return
    database.put(
        replace(
            source,
            last=LastScan(
                now,
                report.complete,
                now if report.worked else last.worked,
                "",
                report.waiting,
                tuple(report.waiting_named),
                {why: count for why, count in report.skipped.items() if count},
                report.named,
                FORM_RULES if report.complete else last.rules,
                RULES_VERSION if report.complete else last.redaction,
            ),
        )
    )


def _check_public(device: Device) -> None:
    if read_privacy(device.journal).on:
        raise PrivateNow("private mode is on: nothing is recorded")


def _why(error: OSError) -> str:
    return f"{error.filename or 'the folder'} cannot be read: {error.strerror or error}"


async def _in_thread(work: Callable[[], T], stop: threading.Event) -> T:
    """Runs ``work`` in a thread and waits for its end even when cancelled: it holds the database and files."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        raise
