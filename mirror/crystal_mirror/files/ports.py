"""Ports of file sync: this device's disk, and the database of what it knows about its files.

What implementers must hold:

- ``Disk`` never follows a link, never writes or removes outside of the home, and only touches what ``fault`` lets pass.
- Each change on ``Disk`` is whole and durable: after a crash a path holds its old content or its new one. A file is
  replaced, renamed or removed only if it is still what was looked at.
- ``FileDatabase`` may be lost as a whole at any time without loss of a file. Its transactions are all or nothing; agreed
  versions and offers are durable when they return.

Both raise ``FileTrouble`` and its subclasses for what concerns one file, and let everything else through.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crystal_crypto.errors import CrystalError
from crystal_mirror.files.tree import AgreedFile, DeletionDirection, FileContent
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.types import Origin


class FileTrouble(CrystalError):
    """A file cannot be synced now. The message is for a person and names no path."""

    exit_code = 8
    hint = "`crystal files status` lists what is not synced, and why."


class FileMoved(FileTrouble):
    """The file is no longer what was looked at: somebody works on it. The next round looks again."""


class DiskFull(FileTrouble):
    """The disk is full. Nothing more is fetched in this round."""

    hint = "Make room on this disk; the next sync goes on where this one stopped."


class TooLargeHere(DiskFull):
    """The disk has no room for this file, but may have for others. Nothing of it was fetched."""


class FileStamp(NamedTuple):
    """How a file is recognised as unchanged without being read."""

    size: int
    modified_ns: int
    inode: int
    changed_ns: int


class LocalFile(NamedTuple):
    """A regular file of this device when it was looked at. ``quiet``: it had not been changed just before, so that its
    stamp reliably shows a later change."""

    path: str
    stamp: FileStamp
    executable: bool
    quiet: bool

    @property
    def modified_at(self) -> int:
        return max(self.stamp.modified_ns // 1_000_000, 0)


class SeenFile(NamedTuple):
    """What a file held when it was read, and the look at it before."""

    local: LocalFile
    digest: bytes

    @property
    def content(self) -> FileContent:
        return FileContent(self.digest, self.local.executable)

    def holds_for(self, now: LocalFile) -> bool:
        """Whether that is still so, by its stamp."""
        before = self.local
        return before.quiet and before.stamp == now.stamp and before.executable == now.executable


@dataclass(frozen=True, slots=True)
class FileOffer:
    """A file that this device offered to the Core: the origin of the operation, and the blobs that it names."""

    path: str
    origin: Origin
    content: FileContent | None
    """None: its deletion."""
    names: tuple[bytes, ...] = ()


class PartPlace(NamedTuple):
    """Where on this disk a part was seen."""

    path: str
    offset: int
    length: int


class Incoming(Protocol):
    """A file that is being put together beside its place. ``close`` before ``Disk.place`` leaves it for the next try."""

    def have(self) -> int:
        """How many verified parts are there already, from an earlier try."""
        ...

    def add(self, data: bytes) -> None:
        """Appends the next part. Raises DiskFull."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The files of this device's home."""

    def halted(self) -> str:
        """Why nothing may be synced in this home; "" if it may."""
        ...

    def fault(self, path: str) -> str | None:
        """Why a file of that path may not travel; None if it may."""
        ...

    def excluded(self, path: str) -> bool:
        """Whether the person has excluded it on this device."""
        ...

    def derived(self, path: str) -> bool:
        """Whether a file of that name is made from the memory: its deletion loses nothing, and needs no confirmation."""
        ...

    def rules(self) -> bytes:
        """A mark of what is excluded, which changes with it."""
        ...

    def scan(self) -> Iterator[LocalFile]:
        """All regular files that may travel and are not excluded, in the order of their paths."""
        ...

    def refused(self) -> dict[str, str]:
        """What the last scan left out, and why: for the report."""
        ...

    def look(self, path: str) -> LocalFile | None:
        """One of them. Raises FileTrouble if something other than a regular file is in its place."""
        ...

    def cut(self, local: LocalFile, seed: int) -> Iterator[FilePart]:
        """Reads it part by part, cut at places that depend on its content and on ``seed`` (63 bits). Raises FileTrouble when it
        changes meanwhile or cannot be read."""
        ...

    def pieces(self, local: LocalFile, lengths: Sequence[int]) -> Iterator[bytes]:
        """A file in pieces of these lengths, shorter at its end. Raises FileTrouble, or FileMoved if the file is not as it was
        when it was looked at, or changes meanwhile."""
        ...

    def read(self, place: PartPlace) -> bytes:
        """Some bytes of a file, as they are now; perhaps fewer. Raises FileTrouble."""
        ...

    def incoming(self, row: FileRow) -> Incoming:
        """Begins to put the row's file together, or goes on with it. Raises FileTrouble."""
        ...

    def place(self, arrived: Sequence[tuple[Incoming, LocalFile | None]]) -> list[LocalFile | FileTrouble]:
        """Makes complete files durable, reads them back, and puts each in its place, which must still hold the file stated, or
        none. What is returned for a file is durable, or why it is not in its place. Together they cost little more than one."""
        ...

    def set_executable(self, local: LocalFile, executable: bool) -> LocalFile:
        """Changes only the executable bit. Raises FileTrouble."""
        ...

    def rename(self, local: LocalFile, path: str) -> LocalFile:
        """Within its folder, to a name that is free (or is this very file's already). Raises FileTrouble."""
        ...

    def remove(self, local: LocalFile, version: Origin) -> None:
        """Into the trash, and the folders with it that it leaves empty. Raises FileTrouble."""
        ...

    def tidy(self) -> None:
        """Drops incoming files that no try continues, and what has been in the trash long enough."""
        ...


class FileDatabase(Protocol):
    """What this device knows about its files."""

    def seen(self) -> Iterator[SeenFile]:
        """By path."""
        ...

    def seen_at(self, path: str) -> SeenFile | None: ...

    def parts_of(self, path: str) -> list[FilePart]:
        """The parts of what ``seen_at`` tells of."""
        ...

    def note_seen(self, *read: tuple[SeenFile, Sequence[FilePart]]) -> None:
        """Records what was read of files, in place of what was known of them."""
        ...

    def forget_seen(self, paths: Iterable[str]) -> None: ...

    def places(self, content: bytes) -> list[PartPlace]:
        """Where a part of that content was seen; a few."""
        ...

    def spelled_otherwise(self, path: str) -> str | None:
        """Another path, agreed or seen, that would be the same file where case does not count."""
        ...

    def agreed(self) -> Iterator[AgreedFile]:
        """By path."""
        ...

    def agreed_at(self, path: str) -> AgreedFile | None: ...

    def agreed_count(self) -> int: ...

    def set_agreed(self, *agreed: AgreedFile) -> None:
        """The versions that stand; offers for their paths, if there are any, are over."""
        ...

    def drop_agreed(self, path: str) -> None:
        """Nothing is there any more; an offer for the path, if there is one, is over."""
        ...

    def offers(self) -> list[FileOffer]: ...

    def add_offers(self, offers: Sequence[FileOffer]) -> None: ...

    def end_offer(self, path: str) -> None: ...

    def confirmed(self) -> frozenset[tuple[str, DeletionDirection]]:
        """Deletions that a person has confirmed."""
        ...

    def withhold(
        self,
        asked: Sequence[tuple[str, DeletionDirection]],
        confirmed: Sequence[tuple[str, DeletionDirection]],
    ) -> None:
        """Replaces the lists of deletions that wait for a person, and of those that a person has confirmed."""
        ...

    def deleted_lately(self, now_ms: int) -> dict[DeletionDirection, int]: ...

    def note_deleted(self, path: str, direction: DeletionDirection, now_ms: int) -> None:
        """Counts it for the fuse; its confirmation, if there was one, is used up."""
        ...

    def meta_get(self, name: str) -> bytes | None: ...

    def meta_set(self, name: str, value: bytes | None) -> None: ...
