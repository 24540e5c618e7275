"""The trash: files that sync removed from this device are kept for 30 days and can be restored.

Layout, readable by its owner only::

    .trash/<id>.json        what it was: path, when, size
    .trash/<id>/<name>      the file itself

The record is durable before the file is moved; a record without a file counts as none, so a crash in between loses nothing. A
file is moved within its file system and never overwrites another. The days are counted by a clock of the trash's own that never
jumps: setting this machine's clock a year ahead deletes nothing.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_mirror.files.ports import FileMoved, FileTrouble, LocalFile
from crystal_node.base.decoding import from_json
from crystal_node.base.file_rules import TRASH_NAME, TreeRules
from crystal_node.base.home import DIRECTORY_MODE, sync_directory, write_private
from crystal_node.sync.files.folders import folder_of, prune, troubles
from crystal_node.sync.files.scan import look_in

KEPT_MILLISECONDS = 30 * 24 * 60 * 60 * 1000  # §14-6
STEP_MILLISECONDS_MAX = 24 * 60 * 60 * 1000
"""The trash's clock follows this machine's, by no more than this between two readings."""

_COPY_BYTES = 1024 * 1024


class TrashRecord(msgspec.Struct, frozen=True):
    """``at``: this machine's clock, ``clock``: the trash's own, in milliseconds."""

    path: str
    at: int
    clock: int
    size: int


@dataclass(frozen=True, slots=True)
class Trashed:
    """A file in the trash."""

    id: str
    record: TrashRecord
    file: Path


class Trash:
    """The trash of one home."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = root / TRASH_NAME

    def items(self) -> Iterator[Trashed]:
        """Yields its files, oldest first."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob("*.json")):
            try:
                record = from_json(path.read_bytes(), TrashRecord)
            except (OSError, *UNDECODABLE):
                continue
            files = list((self.folder / path.stem).glob("*"))
            if len(files) == 1:
                yield Trashed(path.stem, record, files[0])

    def take(self, local: LocalFile, *, now_ms: int, clock: int) -> str:
        """Moves a file in if it is still as it was looked at. Returns its id. Raises FileTrouble."""
        moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
        name = f"{moment}-{secrets.token_hex(4)}"
        with troubles():
            if self.folder.is_symlink():
                raise FileTrouble("the trash is a link: it has to be a folder of this home")
            self.folder.mkdir(DIRECTORY_MODE, exist_ok=True)
            item = self.folder / name
            item.mkdir(DIRECTORY_MODE)
            record = TrashRecord(local.path, now_ms, clock, local.stamp.size)
            write_private(self.folder / f"{name}.json", msgspec.json.encode(record))
        try:
            with folder_of(self._root, local.path) as found:
                if found is None:
                    raise FileMoved("the file is gone")
                now = look_in(found[0], found[1], local.path)
                if now is None or now.stamp != local.stamp:
                    raise FileMoved("the file changed before it was removed")
                with troubles():
                    _move(found, item / found[1])
                    os.fsync(found[0])
        except FileTrouble:
            self.drop(name)
            raise
        prune(self._root, local.path)
        return name

    def restore(self, item: Trashed) -> str:
        """Puts a file back in its place, or beside it if the place is taken. Returns the path. Raises FileTrouble."""
        fault = TreeRules().fault(item.record.path)
        if fault is not None:
            raise FileTrouble(fault)
        for number in range(100):
            path = _numbered(item.record.path, number)
            try:
                with folder_of(self._root, path, create=True) as found, troubles():
                    assert found is not None, "its folders were made"
                    os.link(item.file, found[1], dst_dir_fd=found[0], follow_symlinks=False)
                    os.fsync(found[0])
            except FileTrouble as trouble:
                if isinstance(trouble.__cause__, FileExistsError):
                    continue
                raise
            self.delete(item)
            return path
        raise FileTrouble("a hundred files of that name stand there")

    def delete(self, item: Trashed) -> None:
        """Deletes a file permanently."""
        self.drop(item.id)

    def drop(self, item: str) -> None:
        """``delete`` by id."""
        shutil.rmtree(self.folder / item, ignore_errors=True)
        (self.folder / f"{item}.json").unlink(missing_ok=True)

    def expire(self, clock: int) -> int:
        """Deletes files older than ``KEPT_MILLISECONDS``. Returns how many."""
        due = [item for item in self.items() if clock - item.record.clock > KEPT_MILLISECONDS]
        for item in due:
            self.delete(item)
        return len(due)


def _move(found: tuple[int, str], target: Path) -> None:
    folder, name = found
    try:
        os.rename(name, target, src_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(folder, name, target)
        os.unlink(name, dir_fd=folder)
    sync_directory(target.parent)


def _copy(folder: int, name: str, target: Path) -> None:
    """Copies to another file system. Durable when it returns."""
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        with target.open("xb") as out:
            while piece := os.read(source, _COPY_BYTES):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        with suppress(OSError):
            target.chmod(os.fstat(source).st_mode & 0o700)
    finally:
        os.close(source)


def _numbered(path: str, number: int) -> str:
    if not number:
        return path
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    mark = " (restored)" if number == 1 else f" (restored {number})"
    return f"{folder}{slash}{stem}{mark}{dot}{suffix}"
