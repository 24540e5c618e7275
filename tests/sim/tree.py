"""A home's files in memory: a disk that keeps the contract of ``files.ports.Disk`` and dies like one, and the real book.

The person who owns the files writes, deletes and renames between any two requests. Times are counted in steps so coarse that
two changes can leave one and the same stamp. What sync removes or overwrites is noted (`Removed`), for P7.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256

import apsw

from crystal_mirror.file_paths import fault_of
from crystal_mirror.files.ports import FileMoved, FileStamp, FileTrouble, Incoming, LocalFile, PartPlace
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.types import Origin
from crystal_node.sync.files.database import FileDatabase

PART_BYTES = 24
"""Files here are short, and of several parts all the same."""
GRAIN = 4
"""Changes that can share a stamp."""


@dataclass(frozen=True)
class SimFile:
    data: bytes
    executable: bool
    inode: int
    changed: int


@dataclass(frozen=True)
class Removed:
    """What sync took from its place: overwritten by another version, or removed, and then into the trash."""

    path: str
    data: bytes
    overwritten: bool
    trashed: bool


@dataclass
class SimDisk:
    """Survives its process. ``point`` is where that may die."""

    point: Callable[[], None]
    files: dict[str, SimFile] = field(default_factory=dict[str, SimFile])
    trash: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    started: dict[tuple[str, bytes], list[bytes]] = field(
        default_factory=dict[tuple[str, bytes], list[bytes]]
    )
    """Files that are being put together, by path and content."""
    on_removed: Callable[[Removed], None] = lambda _removed: None
    time: int = GRAIN
    _inodes: int = 0

    # What a person does.

    def write(self, path: str, data: bytes) -> bool:
        """False where a folder is in the way, or a file in the place of a folder."""
        folders = {path[:at] for at, char in enumerate(path) if char == "/"}
        if folders & self.files.keys() or any(other.startswith(path + "/") for other in self.files):
            return False
        self.time += 1
        old = self.files.get(path)
        self.files[path] = SimFile(data, False, old.inode if old else self._new_inode(), self.time)
        return True

    def delete(self, path: str) -> None:
        self.time += 1
        del self.files[path]

    def copy(self, point: Callable[[], None]) -> "SimDisk":
        """The disk of a clone, or a backup."""
        return replace(
            self, point=point, files=dict(self.files), trash=list(self.trash), started=dict(self.started)
        )

    def put_back(self, backup: "SimDisk") -> None:
        """The person has the files restored: with the times that they had."""
        self.files, self.started = dict(backup.files), {}

    # The port.

    def halted(self) -> str:
        return ""

    def fault(self, path: str) -> str | None:
        return fault_of(path)

    def excluded(self, path: str) -> bool:
        return False

    def derived(self, path: str) -> bool:
        return False

    def rules(self) -> bytes:
        return b""

    def scan(self) -> Iterator[LocalFile]:
        self.time += 1
        yield from [self._local(path) for path in sorted(self.files)]

    def refused(self) -> dict[str, str]:
        return {}

    def look(self, path: str) -> LocalFile | None:
        if any(other.startswith(path + "/") for other in self.files):
            raise FileTrouble("a folder stands in its place")
        return self._local(path) if path in self.files else None

    def cut(self, local: LocalFile, seed: int) -> Iterator[FilePart]:
        self._still(local)
        yield from cut(self.files[local.path].data)

    def pieces(self, local: LocalFile, lengths: Sequence[int]) -> Iterator[bytes]:
        offset = 0
        for length in lengths:
            self._still(local)
            yield self.files[local.path].data[offset : offset + length]
            offset += length
        self._still(local)

    def read(self, place: PartPlace) -> bytes:
        file = self.files.get(place.path)
        if file is None:
            raise FileMoved("the file is gone")
        return file.data[place.offset : place.offset + place.length]

    def incoming(self, row: FileRow) -> Incoming:
        folders = {row.path[:at] for at, char in enumerate(row.path) if char == "/"}
        if folders & self.files.keys() or any(other.startswith(row.path + "/") for other in self.files):
            raise FileTrouble("something else stands in its place")
        return _Incoming(self, row)

    def place(self, arrived: Sequence[tuple[Incoming, LocalFile | None]]) -> list[LocalFile | FileTrouble]:
        """One after the other: a crash may come between any two of them."""
        placed: list[LocalFile | FileTrouble] = []
        for incoming, expected in arrived:
            assert isinstance(incoming, _Incoming), "begun by this disk"
            try:
                placed.append(incoming.finish(expected))
            except FileTrouble as trouble:
                placed.append(trouble)
        return placed

    def set_executable(self, local: LocalFile, executable: bool) -> LocalFile:
        self._still(local)
        self.time += 1
        file = self.files[local.path]
        self.files[local.path] = replace(file, executable=executable, changed=self.time)
        return self._local(local.path)

    def rename(self, local: LocalFile, path: str) -> LocalFile:
        self._still(local)
        if path in self.files and self.files[path].inode != local.stamp.inode:
            raise FileTrouble("something else stands in its place")
        self.point()
        self.files[path] = self.files[local.path]
        self.point()
        del self.files[local.path]
        self.point()
        return self._local(path)

    def remove(self, local: LocalFile, version: Origin) -> None:
        self._still(local)
        self.point()
        file = self.files.pop(local.path)
        self.to_trash(local.path, file.data)
        trashed = (local.path, file.data) in self.trash
        self.on_removed(Removed(local.path, file.data, overwritten=False, trashed=trashed))
        self.point()

    def to_trash(self, path: str, data: bytes) -> None:
        self.trash.append((path, data))

    def tidy(self) -> None:
        self.started = {key: parts for key, parts in self.started.items() if parts}

    def put_in_place(self, path: str, data: bytes, executable: bool, expected: LocalFile | None) -> LocalFile:
        """What was put together comes to its place, unless that holds something else by now."""
        now = self._local(path) if path in self.files else None
        if (now is None) != (expected is None) or (now and expected and now.stamp != expected.stamp):
            raise FileMoved("the file changed while another version was fetched")
        self.point()
        self.time += 1
        old = self.files.get(path)
        self.files[path] = SimFile(data, executable, self._new_inode(), self.time)
        if old is not None:
            self.on_removed(Removed(path, old.data, overwritten=True, trashed=False))
        self.point()
        return self._local(path)

    def _local(self, path: str) -> LocalFile:
        file = self.files[path]
        coarse = file.changed // GRAIN
        stamp = FileStamp(len(file.data), coarse, file.inode, coarse)
        return LocalFile(path, stamp, file.executable, quiet=coarse < self.time // GRAIN)

    def _still(self, local: LocalFile) -> None:
        if local.path not in self.files or self._local(local.path).stamp != local.stamp:
            raise FileMoved("the file changed a moment ago")

    def _new_inode(self) -> int:
        self._inodes += 1
        return self._inodes


class _Incoming:
    """The parts that are there survive the process, as a temporary file does."""

    def __init__(self, disk: SimDisk, row: FileRow) -> None:
        self._disk, self._row = disk, row
        mark = sha256(b"".join(part.content for part in row.parts)).digest()
        self._parts = disk.started.setdefault((row.path, mark), [])

    def have(self) -> int:
        expected = [part.content for part in self._row.parts]
        good = 0
        for data, content in zip(self._parts, expected, strict=False):
            if sha256(data).digest() != content:
                break
            good += 1
        del self._parts[good:]
        return good

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._disk.point()

    def finish(self, expected: LocalFile | None) -> LocalFile:
        if self.have() != len(self._row.parts):
            raise FileTrouble("the disk did not keep what was written")
        data = b"".join(self._parts)
        placed = self._disk.put_in_place(self._row.path, data, self._row.executable, expected)
        self._parts.clear()
        return placed

    def close(self) -> None:
        return


class SimBook(FileDatabase):
    """The real book, with a point on each side of every commit. What need not survive a power failure may be lost with it."""

    point: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Generator[None]:
        with super()._transaction(durable=durable):
            yield
            self.point()
        self.point()

    def serialized(self) -> bytes:
        return self._db.serialize("main")

    @classmethod
    def from_bytes(cls, data: bytes, point: Callable[[], None]) -> "SimBook":
        connection = apsw.Connection(":memory:")
        connection.deserialize("main", data)
        book = cls(connection)
        book.point = point
        return book

    @classmethod
    def in_memory(cls, point: Callable[[], None]) -> "SimBook":
        return cls.from_bytes(cls.open(":memory:")._db.serialize("main"), point)


def cut(data: bytes) -> Iterable[FilePart]:
    """Parts as this tree cuts them: of equal length."""
    for start in range(0, len(data), PART_BYTES):
        piece = data[start : start + PART_BYTES]
        yield FilePart(sha256(piece).digest(), len(piece))
