"""``crystal takeover``: converts the home of the published prototype, in place, to one in which Crystal can be set up.

::

    look --the prototype's?--> close its database to others --> copy the folder beside it --compared, unchanged--> take out
           no: refuses         open elsewhere: refuses          killed: starts over       changed: refuses         killed:
           something starts its programs: refuses, and says what                                                   goes on

The database is closed to other processes by SQLite's exclusive lock from before it is copied until it is taken out, so that no
write is acknowledged that the copy does not have. Agents' files (``agents/`` and all others) stay where they are. The
prototype's settings, database and state are removed; they are in the copy, from which `crystal migrate-db` imports messages and
memories once the vault is set up.
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import apsw
from msgspec import Struct, json

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.errors import HomeBusy, LocalStorage, UsageError
from crystal_node.base.home import sync_directory
from crystal_node.base.settings.settings import Places
from crystal_prototype.home.database import NotPublished
from crystal_prototype.home.database import opened as published
from crystal_prototype.home.staged import as_counts
from crystal_prototype.home.writers import holders, registrations

OWN = (
    "config.json",
    "memory/crystal.db",
    "memory/crystal.db-wal",
    "memory/crystal.db-shm",
    "memory/lance",
    "state",
    "bin",
)
"""The prototype's own files, relative to its home."""
_DATABASE = Path("memory", "crystal.db")
_LOG = Path("memory", "crystal.db-wal")
_SHARED = Path("memory", "crystal.db-shm")
"""SQLite's index of the log, made again by any program that opens it."""
_BLOCK = 1024 * 1024

Progress = Callable[[str], None]


class _PrototypeConfig(Struct, frozen=True):
    """Its ``config.json``: a version as a text, and the agents."""

    version: str
    agents: list[str]


@dataclass(frozen=True, slots=True)
class Prototype:
    """A home of the prototype. ``database``: None if it never recorded. ``writers``: what still writes into the home."""

    root: Path
    agents: tuple[str, ...]
    database: Path | None
    bytes: int
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """A database of the prototype's, and what it holds; None if it cannot be read."""

    database: Path
    messages: int | None = None
    memories: int | None = None

    @property
    def weight(self) -> int:
        return (self.messages or 0) + (self.memories or 0)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The copy of the home. ``database``: the one to migrate from, that with the most in it. ``copies``: of all takeovers, the
    newest first; ``databases``: theirs, and those at places of earlier versions. ``staged``: conversations by agent that the
    prototype had received from other machines and not taken in; they are in the copy and still in the home."""

    copy: Path
    database: Path | None
    files: int
    bytes: int
    copies: tuple[Path, ...] = ()
    databases: tuple[Contents, ...] = ()
    staged: dict[str, int] = field(default_factory=dict[str, int])


def look(places: Places) -> Prototype | None:
    """The prototype in that home; None if it is not a home of the prototype. Changes nothing. Raises LocalStorage."""
    root = places.home
    try:
        config = json.decode((root / "config.json").read_bytes(), type=_PrototypeConfig)
    except (OSError, *UNDECODABLE):
        return None
    database = root / _DATABASE
    try:
        total = sum(path.lstat().st_size for path in _files(root))
    except OSError as error:
        raise LocalStorage(f"{root} cannot be read: {error.strerror or error}") from error
    return Prototype(
        root,
        tuple(config.agents),
        database if database.is_file() else None,
        total,
        tuple(registrations(places)),
    )


def known_databases(places: Places) -> tuple[Contents, ...]:
    """The prototype's databases outside of its home: in copies of earlier takeovers, and where earlier versions kept it."""
    root = places.home
    former = [places.openclaw / "memory-crystal" / "crystal.db"]
    copies = [copy / _DATABASE for copy in _beside(root)]
    inside = root.resolve()
    return tuple(
        _contents(path)
        for path in (*copies, *former)
        # The prototype leaves links to its home at the earlier place.
        if path.is_file() and inside not in path.resolve().parents
    )


def known_staging(places: Places) -> tuple[Path, ...]:
    """The folders of conversations that the prototype never took in, in the copies of its home."""
    found = (copy / "staging" for copy in _beside(places.home))
    return tuple(folder for folder in found if as_counts(folder))


def take_over(
    places: Places, now: datetime, *, even_so: bool, progress: Progress = lambda _: None
) -> TakenOver:
    """Copies the home, compares the copy, and removes the prototype's own files.

    Raises:
        UsageError: it is no home of the prototype's.
        HomeBusy: something of the prototype still writes there. A process that has its files open is not passed over, even so.
        LocalStorage: it cannot be read, copied, or is not the same in the copy. Nothing was taken out.
    """
    root = places.home
    found = look(places)
    if found is None:
        known = ", ".join(str(each.database) for each in known_databases(places))
        hint = "There is nothing to take over: `crystal up` sets this machine up."
        if known:
            hint += f" What was recorded is in {known}: `crystal migrate-db PATH` brings it in."
        raise UsageError(f"{root} is no home of the prototype's", hint=hint)
    if found.writers and not even_so:
        raise HomeBusy(
            f"the prototype still writes there: {'; '.join(found.writers)}",
            hint="Remove these first, or two programs write one database. --even-so goes on although they are there.",
        )
    folder = root / "memory"
    if folder.is_symlink():  # the copy would have the link alone, and what is behind it would be taken out
        raise LocalStorage(
            f"{folder} is a link to {folder.readlink()}",
            hint="Put the folder itself in its place, then run this again. Nothing was changed.",
        )
    _nobody_inside(root)
    for left in _beside(root, drafts=True):  # by one that was killed while it copied
        shutil.rmtree(left, ignore_errors=True)
    target = root.with_name(f"{root.name}-prototype-{now:%Y%m%d-%H%M%S}")
    draft = root.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with _closed_to_others(root / _DATABASE) as kept_open:
        try:
            copied = _copied(root, draft, progress, kept_open)
            _nobody_inside(root)
            _unchanged(root, copied)
            draft.rename(target)
            sync_directory(target.parent)
        except OSError as error:
            raise LocalStorage(
                f"the home cannot be copied: {error.strerror or error}: {error.filename}"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _take_out(root)
    _stayed_out(root, target)
    # If an earlier takeover was killed while it removed the database, or the prototype began a new one after it, that
    # takeover's copy has what was recorded.
    databases = known_databases(places)
    fullest = max(databases, key=lambda each: each.weight, default=None)
    return TakenOver(
        target,
        None if fullest is None else fullest.database,
        len(copied),
        found.bytes,
        tuple(_beside(root)),
        databases,
        as_counts(target / "staging"),
    )


def _contents(database: Path) -> Contents:
    try:
        with published(database, "") as memory:
            inventory = memory.inventory()
    except (NotPublished, LocalStorage):
        return Contents(database)
    return Contents(database, inventory.pieces, inventory.memories)


def _beside(root: Path, *, drafts: bool = False) -> list[Path]:
    """The existing copies of the home, the newest first; with ``drafts`` the unfinished ones."""
    name = re.escape(root.name) + r"-prototype-\d{8}-\d{6}"
    wanted = re.compile(rf"\.{name}\.[0-9a-f]{{8}}" if drafts else name)
    return sorted((path for path in root.parent.iterdir() if wanted.fullmatch(path.name)), reverse=True)


def _files(root: Path) -> list[Path]:
    """All files and links below; links are not followed."""
    return sorted(path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())


def _nobody_inside(root: Path) -> None:
    """Raises HomeBusy if another process has a file open that would be taken out."""
    found = [each for name in ("memory", "state") for each in holders(root / name)]
    if found:
        raise HomeBusy(
            f"the prototype's files are open in {', '.join(dict.fromkeys(found))}",
            hint="Stop these programs, then run this again: what they write would be lost. Nothing was changed.",
        )


@contextmanager
def _closed_to_others(database: Path) -> Generator[ExitStack]:
    """Keeps other processes out of the database. Yields what has to keep its open files: the lock is POSIX's, which a process
    loses for all its files when it closes one of them. Raises HomeBusy, LocalStorage."""
    if not database.is_file():
        with ExitStack() as none:
            yield none
        return
    had_log = database.with_name(f"{database.name}-wal").exists()
    try:
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise LocalStorage(f"{database} cannot be opened: {error}") from error
    with ExitStack() as kept_open:
        taken_out = False
        try:
            _lock(connection, database)
            yield kept_open
            taken_out = True
        finally:
            if taken_out or had_log:  # without a checkpoint the file stays as it is, and no name is deleted
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close(True)


def _lock(connection: apsw.Connection, database: Path) -> None:
    try:
        # Set before the first read, so that also a connection that only has the file open in WAL mode is in the way.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
    except (apsw.BusyError, apsw.LockedError) as error:
        raise HomeBusy(
            f"{database} is open in another program",
            hint="Stop what uses the prototype (an AI tool, an MCP server, OpenClaw, its poller), then run this again.",
        ) from error
    except (apsw.NotADBError, apsw.CorruptError):
        return  # no program can write into it
    except apsw.Error as error:
        raise LocalStorage(f"{database} cannot be closed to other programs: {error}") from error


def _copied(root: Path, draft: Path, progress: Progress, kept_open: ExitStack) -> dict[Path, tuple[int, int]]:
    """Copies the tree, each file synced to disk and compared with what was read. Returns size and time of change of each file
    and link when it was copied."""
    draft.mkdir(mode=0o700)
    copied: dict[Path, tuple[int, int]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        target = draft / name
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
            continue
        elif not path.is_file() or _is_empty(path, name):
            continue  # a socket or a pipe holds nothing
        else:
            state = _state(path)
            _copy(path, target, kept_open if name.parent == _DATABASE.parent else None)
            copied[path] = state
            continue
        copied[path] = _state(path)
        if len(copied) % 500 == 0:
            progress(f"{len(copied):,} files copied")
    return copied


def _is_empty(path: Path, name: Path) -> bool:
    """Whether it is one of SQLite's files beside the database that hold nothing of it."""
    return name == _SHARED or (name == _LOG and not path.stat().st_size)


def _state(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_size, found.st_mtime_ns


def _unchanged(root: Path, copied: dict[Path, tuple[int, int]]) -> None:
    """Raises LocalStorage if one of the prototype's own files has changed since it was copied, or is new."""
    for path in _files(root):
        name = path.relative_to(root)
        own = any(name.is_relative_to(each) for each in OWN)
        if own and path.is_file() and not _is_empty(path, name) and copied.get(path) != _state(path):
            raise _changed(path)


def _changed(path: Path) -> LocalStorage:
    return LocalStorage(
        f"{path} changed while it was copied",
        hint="Something still writes there: stop it, then run this again.",
    )


def _copy(path: Path, target: Path, kept_open: ExitStack | None = None) -> None:
    """Copies a file. It arrives readable by its owner alone, and executable if it was."""
    digest = hashlib.sha256()
    with ExitStack() as own:
        reading = (kept_open or own).enter_context(path.open("rb"))
        with target.open("xb") as writing:
            while block := reading.read(_BLOCK):
                digest.update(block)
                writing.write(block)
            writing.flush()
            os.fsync(writing.fileno())
        target.chmod(0o700 if os.fstat(reading.fileno()).st_mode & 0o100 else 0o600)
        reading.seek(0)
        with target.open("rb") as written:
            if not digest.digest() == _digest(written) == _digest(reading):
                raise _changed(path)


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.digest()


def _take_out(root: Path) -> None:
    """Removes the prototype's files. Idempotent; ``config.json``, which marks the home as the prototype's, is last."""
    for name in (*OWN[1:], OWN[0]):
        path = root / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise LocalStorage(
                f"{path} cannot be removed: {error.strerror or error}",
                hint="Everything is in the copy. Make it removable, then run this again.",
            ) from error
    sync_directory(root)


def _stayed_out(root: Path, copy: Path) -> None:
    """Raises HomeBusy if the prototype has started over in the home."""
    back = [str(root / name) for name in OWN if (root / name).exists()]
    if back:
        raise HomeBusy(
            f"the prototype has started over: {', '.join(back)}",
            hint=f"What it had is in {copy}. Stop it, then run this again: what it has written since is copied, too.",
        )
