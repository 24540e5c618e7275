"""Copying the databases of another home into this one, without ever writing there.

SQLite would create files beside a database even to read it, so the other home's files are copied as bytes into a scratch folder
of ours: each database with its write-ahead log, again if it was written meanwhile. There SQLite merges the two and checks every
page; values of the old device alone are removed; then the whole file is moved into its place.
"""

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_core.database import Database
from crystal_core.encryption import read_marker
from crystal_core.errors import ForeignFile, VaultDamaged
from crystal_core.inspection import strange_objects
from crystal_mirror.membership.member import META_CLAIM
from crystal_mirror.replication.pull import META_QUARANTINE
from crystal_mirror.streams.outbox import META_OWN
from crystal_mirror.streams.reoffers import META_HELD
from crystal_node.base.errors import HomeBusy, LocalStorage, UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, Home, sync_directory
from crystal_node.device.journal import JournalDamaged, SqliteJournal
from crystal_node.safekeeping.database_encryption import replace_in_form

TRIES = 3
"""How often a database that is being written is copied, before its home counts as in use."""
COPY_BYTES = 1024 * 1024

KEPT_VALUES = frozenset({"node.vault", "floor", "cursors.seen", "node.private", "node.pending-since"})
"""Named values of a journal that belong to the vault or to the person; all others belong to one device, one relay or one run.
``floor`` and ``cursors.seen`` tell what is known to be missing. Entries that wait for a decision (``META_HELD``) are kept as
well: they may be nowhere else."""
DROPPED_VALUES = (META_OWN, META_QUARANTINE)
"""Values of the memory that belong to one device."""

_SCRATCH = ".restoring"
_BESIDE = ("", "-wal", "-journal")
_LEFT_OVER = ("-wal", "-shm", "-journal")


class DamagedHome(LocalStorage):
    """The other home's databases are damaged."""

    hint = "Take the home of another device, or bring the vault back from its relay: leave --from out."


@dataclass(frozen=True, slots=True)
class SourceHome:
    """The databases of another device's home."""

    folder: Path
    journal: Path
    memory: Path


def find_source_home(folder: Path, own: Home) -> SourceHome:
    """The databases in ``folder``.

    Raises:
        UsageError: there is no such folder, it is this device's own home, or no device's.
    """
    folder = given_path(folder)
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder}",
            hint="--from is the home of a device: the folder with state and memory.",
        )
    if own.root.exists() and folder.samefile(own.root):
        raise UsageError(
            f"{folder} is this machine's own home: a restore is made into a fresh one",
            hint="Move it away first, or restore into another home: CRYSTAL_HOME=~/.crystal-2.",
        )
    there = Home(folder)
    for path in (there.state_database, there.database):
        if not path.is_file():
            raise UsageError(
                f"{folder} is no whole home of a device: {path.relative_to(folder)} is not there",
                hint="If CRYSTAL_DATA_DIR had moved its memory elsewhere, put a copy of crystal.db into its folder memory.",
            )
    return SourceHome(folder, there.state_database, there.database)


def copy_memory(old: SourceHome, target: Path) -> None:
    """Puts a checked copy of the memory at ``target``, durably.

    Raises:
        HomeBusy: it is being written.
        DamagedHome: it is damaged, or no database of ours.
    """
    copy = _copied(old.memory, target)
    try:
        with Database.open(copy) as database:
            faults = database.check()
            if faults:
                raise VaultDamaged(faults[0])
            strange = strange_objects(database)
            if strange:
                raise VaultDamaged(f"its schema is not Crystal's: {strange[0][:80]!r}")
            with database.transaction():
                for name in DROPPED_VALUES:
                    database.run("DELETE FROM meta WHERE name = ?", (name,))
            database.scrub()
    except (VaultDamaged, ForeignFile) as error:
        raise DamagedHome(f"{old.memory} is damaged: {error}") from error
    _move(copy, target)


def copy_journal(old: SourceHome, target: Path) -> bytes | None:
    """Puts a checked copy of the journal at ``target``, durably, without the values of the old device alone.

    Returns the claim by which that device was the Core; None if it never was.

    Raises:
        HomeBusy: it is being written.
        DamagedHome: it is damaged, or no database of ours.
    """
    copy = _copied(old.journal, target)
    try:
        journal = SqliteJournal.open(copy)
        try:
            faults = [str(row[0]) for row in journal.connection.execute("PRAGMA integrity_check(1)")]
            if faults != ["ok"]:
                raise JournalDamaged(faults[0])
            with journal.transaction():
                claim = journal.meta_get(META_CLAIM)
                journal.become_anothers(KEPT_VALUES, beginning=META_HELD)
            journal.scrub()
        finally:
            journal.close()
    except (JournalDamaged, apsw.CorruptError) as error:
        raise DamagedHome(f"{old.journal} is damaged: {error}") from error
    _move(copy, target)
    return claim


def copy_file_database(source: Path, target: Path) -> None:
    """Puts a copy of ``files.db`` at ``target``; a damaged one is skipped, since it can be found out again.

    Raises HomeBusy: it is being written.
    """
    copy = _copied(source, target)
    try:
        database = apsw.Connection(str(copy))
        try:
            whole = [str(row[0]) for row in database.execute("PRAGMA integrity_check(1)")] == ["ok"]
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            database.close()
    except (apsw.NotADBError, apsw.CorruptError):
        whole = False
    if whole:
        _move(copy, target)
    shutil.rmtree(copy.parent, ignore_errors=True)


def clear_scratch(home: Home) -> None:
    """Removes what copying has left beside this home's databases."""
    for target in (home.database, home.state_database):
        shutil.rmtree(target.parent / _SCRATCH, ignore_errors=True)


def _copied(source: Path, target: Path) -> Path:
    """Copies the database and its log into a new folder beside ``target``."""
    if read_marker(source.parent) is not None:
        raise UsageError(
            f"{source} is encrypted with the key of its own device",
            hint=f"Decrypt that home first, where its keys are: `CRYSTAL_HOME={shlex.quote(str(source.parent.parent))} "
            "crystal keys decrypt`. Without its keys leave --from out: the relay has all that was synced.",
        )
    scratch = target.parent / _SCRATCH
    for _ in range(TRIES):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=DIRECTORY_MODE)
        before = _state(source)
        for ending in before:
            _copy_bytes(Path(f"{source}{ending}"), scratch / f"{source.name}{ending}")
        if _state(source) == before:
            return scratch / source.name
    raise HomeBusy(
        f"{source} is being written while it is copied",
        hint="Stop the crystal processes of that home, then run the command again; nothing was changed there.",
    )


def _state(source: Path) -> dict[str, tuple[int, int, int]]:
    """Identifies the state of a database's files, to notice writes."""
    found: dict[str, tuple[int, int, int]] = {}
    for ending in _BESIDE:
        try:
            info = Path(f"{source}{ending}").stat()
        except FileNotFoundError:
            continue
        found[ending] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


def _copy_bytes(source: Path, target: Path) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as written:
        try:
            with source.open("rb") as read:
                shutil.copyfileobj(read, written, COPY_BYTES)
        except FileNotFoundError:
            return  # a log that was emptied meanwhile: the comparison notices
        written.flush()
        os.fsync(written.fileno())


def _move(copy: Path, target: Path) -> None:
    """Moves a closed plain database into its place, encrypted where the home is, and deletes logs of a former one."""
    for ending in _LEFT_OVER:
        Path(f"{target}{ending}").unlink(missing_ok=True)
    descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    copy.chmod(FILE_MODE)
    replace_in_form(copy, target)
    sync_directory(target.parent)
