"""The memory home as the port ``crystal_mirror.files.ports.Disk``.

Never follows a link, leaves the home, or touches Crystal's own files. What programs execute or obey by its name is as if a
person had excluded it, until one allows it. The execute bit of another device is not set here: a file that would have it
counts as having it, so that nothing is offered for that, and a person who sets it keeps it. On a disk that ignores case, a path
names a file only in the spelling in which it stands there; otherwise renaming ``A`` to ``a`` would look like two files.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from crystal_mirror.files.ports import FileMoved, FileTrouble, Incoming, LocalFile, PartPlace
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.types import Origin
from crystal_node.base.clock import now_ms
from crystal_node.base.file_rules import MARKER_NAME, TreeRules, held_reason
from crystal_node.sync.files.artefacts import is_as_made, is_made_here, is_superseded_segment
from crystal_node.sync.files.database import FileDatabase
from crystal_node.sync.files.folders import READ, folder_of, prune, troubles
from crystal_node.sync.files.incoming_file import FlushFailed, IncomingFile, temporary_name
from crystal_node.sync.files.marker import Marker, read_marker, verdict, write_marker
from crystal_node.sync.files.parts import Cutter, read_pieces, read_place
from crystal_node.sync.files.scan import Scan, closed_above, look, look_in
from crystal_node.sync.files.trash import STEP_MILLISECONDS_MAX, Trash

FLUSHES_AT_ONCE = 16
"""Files that are made durable side by side: file systems do for many at once what they do for one."""
TEMPORARY_MILLISECONDS = 24 * 60 * 60 * 1000
"""A temporary file that did not grow for this long belongs to an abandoned transfer."""
FLUSH_PAUSE_SECONDS, FLUSH_PAUSE_SECONDS_MAX = 60.0, 24 * 60 * 60.0
"""Pause before a file is fetched again that the disk failed to write: it doubles with each failure."""

_META_CLOCK = "trash.clock"
CLOCK_KEPT_MS = 3600 * 1000
"""The trash's clock is written this often; in between it follows from what was written."""


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A file that the disk failed to write."""

    reason: str
    pause: float
    until: float


@dataclass
class HomeDisk:
    """One home's files."""

    root: Path
    database: FileDatabase
    marker: Marker
    tree: TreeRules
    now: Callable[[], int] = now_ms
    monotonic: Callable[[], float] = time.monotonic
    trash: Trash = field(init=False)
    scan_seconds: float = 0.0
    """How long the last scan took, with what was done meanwhile."""
    _last: Scan = field(init=False)
    _open_folders: set[str] = field(init=False, default_factory=set[str])
    """Folders that are not left out, as seen since files were last put in place: each is listed once for a group of files."""
    _cutter: Cutter | None = field(init=False, default=None)
    _unwritten: dict[str, _Unwritten] = field(init=False, default_factory=dict[str, _Unwritten])
    """Files that are fetched again only after a pause, by their temporary names: another content is another file. Another
    process tries at once."""
    _flushers: ThreadPoolExecutor | None = field(init=False, default=None)
    """While files come; they end when the next round begins."""

    def __post_init__(self) -> None:
        self.trash = Trash(self.root)
        self._last = Scan(self.root, self.tree)

    def halted(self) -> str:
        found = read_marker(self.root)
        reason = verdict(found, self.marker, known=bool(self.database.agreed_count()))
        if not reason and found is None:
            write_marker(self.root, self.marker)
        return reason

    def adopt(self) -> None:
        """Marks this home as this device's and forgets what is known of its files; see ``marker``."""
        self.database.forget_everything()
        write_marker(self.root, self.marker)

    def fault(self, path: str) -> str | None:
        return self.tree.fault(path)

    def excluded(self, path: str) -> bool:
        if self.tree.patterns and self.tree.excluded(path):
            return True
        return self.tree.held(path) is not None or any(  # §14-9
            path.startswith(f"{folder}/") for folder in self._last.closed
        )

    def derived(self, path: str) -> bool:
        return is_made_here(path) or is_superseded_segment(self.root, path)

    def rules(self) -> bytes:
        return self.tree.fingerprint

    def scan(self) -> Iterator[LocalFile]:
        self._last = Scan(self.root, self.tree)
        without = self.database.bits_withheld()
        started = time.monotonic()
        for local in self._last:
            yield self._with_bit(local, without)
        self.scan_seconds = time.monotonic() - started

    def refused(self) -> dict[str, str]:
        return dict(self._last.refused)

    def look(self, path: str) -> LocalFile | None:
        self._check(path)
        local = look(self.root, path)
        if local is None or not self._is_spelled_so(path):
            return None
        return self._with_bit(local, self.database.bits_withheld(path))

    def cut(self, local: LocalFile, seed: int) -> Iterator[FilePart]:
        if self._cutter is None or self._cutter.seed != seed:
            self._cutter = Cutter(self.root, seed)
        return self._cutter.cut(local, self.database.parts_of(local.path))

    def read(self, place: PartPlace) -> bytes:
        return read_place(self.root, place)

    def pieces(self, local: LocalFile, lengths: Sequence[int]) -> Iterator[bytes]:
        return read_pieces(self.root, local, lengths)

    def incoming(self, row: FileRow) -> Incoming:
        self._check(row.path)
        self._check_obeyed(row.path)
        unwritten = self._unwritten.get(temporary_name(row))
        if unwritten is not None and self.monotonic() < unwritten.until:
            raise FileTrouble(unwritten.reason)
        return IncomingFile(self.root, row, lambda placed: self._without_bit(placed, row.executable))

    def place(self, arrived: Sequence[tuple[Incoming, LocalFile | None]]) -> list[LocalFile | FileTrouble]:
        self._open_folders.clear()
        troubled: dict[int, FileTrouble] = {}
        files = [(_of_this_disk(incoming), expected) for incoming, expected in arrived]

        completed = [
            (number, partial(file.complete, expected)) for number, (file, expected) in enumerate(files)
        ]
        troubled |= self._side_by_side(completed)
        for number, (file, _) in enumerate(files):
            self._note_flush(file.name, troubled.get(number))
        folders: dict[tuple[int, int], list[int]] = {}
        for number, (file, expected) in enumerate(files):
            if number not in troubled:
                try:
                    file.put_in_place(expected)
                    folders.setdefault(file.folder, []).append(number)
                except FileTrouble as trouble:
                    troubled[number] = trouble
        flushed = {numbers[0]: numbers for numbers in folders.values()}
        works = [(first, files[first][0].flush_folder) for first in flushed]
        for first, unflushed in self._side_by_side(works).items():
            troubled |= dict.fromkeys(flushed[first], unflushed)
        placed: list[LocalFile | FileTrouble] = []
        for number, (file, _) in enumerate(files):
            try:
                placed.append(troubled.get(number) or file.placed())
            except FileTrouble as trouble:
                placed.append(trouble)
        return placed

    def set_executable(self, local: LocalFile, executable: bool) -> LocalFile:
        with folder_of(self.root, local.path) as found, troubles():
            if found is None or (now := look_in(*found, local.path)) is None or now.stamp != local.stamp:
                raise FileMoved("the file changed a moment ago")
            if not executable:
                descriptor = os.open(found[1], READ, dir_fd=found[0])
                try:
                    os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o666)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            changed = look_in(*found, local.path)
        if changed is None:
            raise FileMoved("the file is gone")
        return self._without_bit(changed, executable)

    def rename(self, local: LocalFile, path: str) -> LocalFile:
        self._check(path)
        without = self.database.bits_withheld(local.path)
        with folder_of(self.root, local.path) as source, folder_of(self.root, path, create=True) as target:
            if source is None or target is None:
                raise FileMoved("the file is gone")
            now = look_in(*source, local.path)
            if now is None or now.stamp != local.stamp:
                raise FileMoved("the file changed a moment ago")
            there = look_in(*target, path)
            if there is not None and there.stamp.inode != local.stamp.inode:
                raise FileTrouble("something else stands in its place")
            with troubles():
                if there is None:
                    os.link(
                        source[1],
                        target[1],
                        src_dir_fd=source[0],
                        dst_dir_fd=target[0],
                        follow_symlinks=False,
                    )
                    os.fsync(target[0])
                os.unlink(source[1], dir_fd=source[0])
                os.fsync(source[0])
            moved = look_in(*target, path)
        prune(self.root, local.path)
        if moved is None:
            raise FileMoved("the file is gone")
        return self._without_bit(moved, bool(without))

    def remove(self, local: LocalFile, version: Origin) -> None:
        self._check(local.path)
        item = self.trash.take(local, now_ms=self.now(), clock=self._trash_clock())
        if is_superseded_segment(self.root, local.path) or (
            is_made_here(local.path) and is_as_made(self.trash.folder / item / local.path.rpartition("/")[2])
        ):
            # Made from the memory and unchanged: the memory holds its content, or it was forgotten.
            self.trash.drop(item)

    def tidy(self) -> None:
        self._open_folders.clear()
        if self._flushers is not None:
            self._flushers.shutdown()
            self._flushers = None
        self.trash.expire(self._trash_clock())
        for path in self._last.temporaries:
            with suppress(FileTrouble):  # a link, a pipe or a folder of that name is not ours
                self._tidy(path)
        self._last.temporaries.clear()

    def _tidy(self, path: str) -> None:
        with folder_of(self.root, path) as found:
            local = look_in(*found, path) if found is not None else None
            if found is None or local is None:
                return
            if self.now() - local.stamp.changed_ns // 1_000_000 > TEMPORARY_MILLISECONDS:
                with troubles():
                    os.unlink(found[1], dir_fd=found[0])

    def _check(self, path: str) -> None:
        fault = self.tree.fault(path)
        if fault is not None:
            raise FileTrouble(fault)

    def _check_obeyed(self, path: str) -> None:
        """The last guard before anything is written: also holds where no scan of this process has seen the folders."""
        part, folder = self.tree.held(path), path.rpartition("/")[0]
        if part is None and folder in self._open_folders:
            return
        reason = held_reason(part) if part is not None else closed_above(self.root, path, self.tree)
        if reason is not None:
            raise FileTrouble(reason)
        self._open_folders.add(folder)

    def _without_bit(self, local: LocalFile, executable: bool) -> LocalFile:
        """Notes that the tree has the bit for a file that has not, or that there is nothing to note."""
        self.database.withhold_bit(local.path, withheld=executable and not local.executable)
        return local._replace(executable=local.executable or executable)  # §14-8

    def _with_bit(self, local: LocalFile, without: Collection[str]) -> LocalFile:
        """A file as the tree has it: with the bit that was not set here. Once a person has set it, it is an ordinary one."""
        if local.path not in without:
            return local
        if local.executable:
            self.database.withhold_bit(local.path, withheld=False)
        return local._replace(executable=True)

    def _side_by_side(self, works: Sequence[tuple[int, Callable[[], object]]]) -> dict[int, FileTrouble]:
        """Does all of it, in threads if there are several. Returns what went wrong, by number."""
        stripes = [works[start::FLUSHES_AT_ONCE] for start in range(min(FLUSHES_AT_ONCE, len(works)))]
        if len(stripes) < 2:
            return _attempt(works)
        if self._flushers is None:
            self._flushers = ThreadPoolExecutor(FLUSHES_AT_ONCE, "flush")
        outcomes = [self._flushers.submit(_attempt, stripe) for stripe in stripes]
        wait(outcomes)  # all of them: the caller closes the files, whatever happened
        return {number: trouble for outcome in outcomes for number, trouble in outcome.result().items()}

    def _note_flush(self, name: str, trouble: FileTrouble | None) -> None:
        """Notes for how long a file is not fetched, or that it was written."""
        if isinstance(trouble, FlushFailed):
            before = self._unwritten.get(name)
            pause = FLUSH_PAUSE_SECONDS if before is None else min(2 * before.pause, FLUSH_PAUSE_SECONDS_MAX)
            self._unwritten[name] = _Unwritten(str(trouble), pause, self.monotonic() + pause)
        else:
            self._unwritten.pop(name, None)

    def _trash_clock(self) -> int:
        """Follows this machine's clock forwards, by ``STEP_MILLISECONDS_MAX`` at a time."""
        now = self.now()
        kept = self.database.meta_get(_META_CLOCK)
        if kept is None:
            clock = max((item.record.clock for item in self.trash.items()), default=0)
        else:
            last, clock = map(int, kept.split())
            clock += min(max(now - last, 0), STEP_MILLISECONDS_MAX)
            if 0 <= now - last < CLOCK_KEPT_MS:
                return clock
        self.database.meta_set(_META_CLOCK, b"%d %d" % (now, clock))
        return clock

    @cached_property
    def _ignores_case(self) -> bool:
        """Whether this disk finds the marker under another spelling."""
        return (self.root / MARKER_NAME.upper()).exists() and (self.root / MARKER_NAME).exists()

    def _is_spelled_so(self, path: str) -> bool:
        if not self._ignores_case:
            return True
        folder = self.root
        for component in path.split("/"):
            try:
                if all(each.name != component for each in folder.iterdir()):
                    return False
            except OSError:
                return False
            folder /= component
        return True


def _of_this_disk(incoming: Incoming) -> IncomingFile:
    assert isinstance(incoming, IncomingFile), "begun by this disk"
    return incoming


def _attempt(works: Sequence[tuple[int, Callable[[], object]]]) -> dict[int, FileTrouble]:
    troubled: dict[int, FileTrouble] = {}
    for number, work in works:
        try:
            work()
        except FileTrouble as trouble:
            troubled[number] = trouble
    return troubled
