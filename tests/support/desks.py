"""Devices with real homes and real databases at one vault, on a store in a folder: everything that a crash leaves is on disk.

Flows are driven in this process, request by request, so that a test can count, stop or change what is asked for.
"""

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from crystal_core.replica import Replica
from crystal_mirror.files.round import files_round
from crystal_mirror.files.shared import FilesReport
from crystal_mirror.membership.founding import found, join
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.requests import (
    Condemn,
    Embed,
    Get,
    GetBlob,
    GetBlobs,
    GetMany,
    GetPart,
    Has,
    List,
    Listing,
    Poll,
    Progress,
    Put,
    PutBlob,
    PutBlobs,
    PutNew,
    Request,
)
from crystal_mirror.round import sync_round
from crystal_node.base.clock import now_ms
from crystal_node.base.file_rules import TreeRules
from crystal_node.device.journal import SqliteJournal
from crystal_node.sync.files.database import FileDatabase
from crystal_node.sync.files.disk import HomeDisk
from crystal_node.sync.files.marker import Marker
from tests.mirror.support import DETAILS, driven, new_device, new_root, vector

T = TypeVar("T")
Answer = Callable[[Request], Any]
MODEL = "test/1"


class FolderStore:
    """Objects as files of one folder. Counts blobs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.blobs_put = 0
        self.blobs_got = 0
        self.bytes_put = 0
        self.requests = 0
        self.before: Answer | None = None
        """Called with each request before it is answered."""

    def answer(self, request: Request) -> Any:
        self.requests += not isinstance(request, Progress)
        if self.before is not None:
            self.before(request)
        match request:
            case Get(key):
                return self.get(key)
            case GetBlob(key):
                self.blobs_got += 1
                return self.get(key)
            case GetBlobs(keys):
                self.blobs_got += len(keys)
                return [self.get(key) for key in keys]
            case PutBlobs(blobs):
                self.blobs_put += len(blobs)
                self.bytes_put += sum(len(body) for _, body in blobs)
                return [self._put_new(key, body) for key, body in blobs]
            case GetMany(keys):
                return [self.get(key) for key in keys]
            case Has(keys):
                return [self._path(key).exists() for key in keys]
            case PutBlob(key, body):
                self.blobs_put += 1
                self.bytes_put += len(body)
                return self._put_new(key, body)
            case PutNew(key, body):
                return self._put_new(key, body)
            case Condemn(keys):
                for key in keys:
                    self._path(key).unlink(missing_ok=True)
                return None
            case Progress():
                return None
            case Put(key, body):
                self._path(key).write_bytes(body)
                return None
            case List(prefix, after, limit):
                found = [key for key in self.keys() if key.startswith(prefix) and key > after]
                return Listing(tuple(found[:limit]), len(found) > limit)
            case Embed(texts):
                return [[vector(text)] for text in texts]
            case GetPart() | Poll():
                return None

    def run(self, flow: Generator[Request, Any, T]) -> T:
        return driven(flow, self.answer)

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        return path.read_bytes() if path.exists() else None

    def keys(self) -> list[str]:
        return sorted(bytes.fromhex(path.name).decode() for path in self._folder.iterdir())

    def lose(self, part: str) -> int:
        """Loses every object whose key holds ``part``."""
        lost = [key for key in self.keys() if part in key]
        for key in lost:
            self._path(key).unlink()
        return len(lost)

    def _put_new(self, key: str, body: bytes) -> bool:
        path = self._path(key)
        if path.exists():
            return False
        path.write_bytes(body)
        return True

    def _path(self, key: str) -> Path:
        return self._folder / key.encode().hex()


class Desk:
    """One device, opened."""

    def __init__(self, desks: "Desks", name: str, patterns: tuple[str, ...] = ()) -> None:
        self.store = desks.store
        self.root = desks.folder / name
        identity = new_device(name)
        self.journal = SqliteJournal.open(self.root / "state" / "state.db")
        vault = desks.root.vault
        secret = load_keys(identity, load_log(self.journal, vault))[1]
        self.replica = Replica.open(self.root / "memory" / "crystal.db", secret)
        kept = desks.root if name == "core" else None
        self.member = Member.open(identity, vault, self.journal, self.replica, os.urandom, kept)
        self.book = FileDatabase.open(self.root / "state" / "files.db")
        self.disk = HomeDisk(
            self.root,
            self.book,
            Marker(vault.hex(), identity.id.hex()),
            TreeRules(patterns, allowed=()),
        )
        self.now = now_ms

    def close(self) -> None:
        self.book.close()
        self.replica.close()
        self.journal.close()

    def memory(self) -> None:
        """One round of the memory."""
        self.store.run(sync_round(self.member, MODEL))

    def files(self, *, scan: bool = True) -> FilesReport:
        """One round of the files."""
        return self.store.run(files_round(self.member, self.disk, self.book, now_ms=self.now(), scan=scan))

    def sync(self) -> FilesReport:
        """As ``crystal sync`` does it."""
        self.memory()
        report = self.files()
        if report.offered:
            self.memory()
            self.files(scan=False)
        return report

    def write(self, path: str, content: str | bytes, mode: int = 0o600) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        if file.exists() and file.stat().st_size == len(data):
            file.unlink()  # a new inode: no test waits until the clock has ticked
        file.write_bytes(data)
        file.chmod(mode)
        return file

    def tree(self) -> dict[str, bytes]:
        """All files of the tree, by path, without what is Crystal's own."""
        found: dict[str, bytes] = {}
        for path in sorted(self.root.rglob("*")):
            relative = path.relative_to(self.root).as_posix()
            if path.is_file() and not path.is_symlink() and not self.disk.tree.is_own(relative):
                found[relative] = path.read_bytes()
        return found


class Desks:
    """A vault of a Core and others. ``open`` opens a device as a new process does."""

    def __init__(self, folder: Path, *others: str) -> None:
        self.folder = folder
        self.root = new_root()
        self.store = FolderStore(folder / "relay")
        for name in ("core", *others):
            home = folder / name
            if home.exists():
                continue
            (home / "state").mkdir(parents=True)
            (home / "memory").mkdir()
            journal = SqliteJournal.open(home / "state" / "state.db")
            identity = new_device(name)
            if name == "core":
                self.store.run(found(identity, self.root, journal, os.urandom, DETAILS))
            else:
                self.store.run(join(identity, self.root, journal, os.urandom, DETAILS, self.root.vault))
            journal.close()

    def open(self, name: str, patterns: tuple[str, ...] = ()) -> Desk:
        return Desk(self, name, patterns)


def settle(*desks: Desk, rounds: int = 4) -> None:
    """Syncs everybody until nothing moves."""
    for _ in range(rounds):
        for desk in desks:
            desk.sync()
