"""Reading a backup back: every byte against its hash, every database by SQLite's own check, the memory by its digest, the
journal by the signatures of its device log.

Nothing is written to it. Files are read from the disk, not from the system's cache, where the system allows it.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import apsw

from crystal_core.encryption import find_key, read_marker
from crystal_core.errors import DatabaseKeyMissing, NoCiphers, VaultDataError
from crystal_core.inspection import check_state, has_schema_of_now, open_unchanging
from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.member import load_log
from crystal_node.device.journal import SCHEMA_VERSION, SqliteJournal
from crystal_node.safekeeping.backup.databases import JOURNAL, MEMORY
from crystal_node.safekeeping.backup.manifest import (
    HOME_NAME,
    BackupDamaged,
    BackupManifest,
    read_manifest,
)
from crystal_node.safekeeping.file_copy import BackupStopped, CopiedFile, Meter, Tell
from crystal_node.sync.files.folders import READ, folder_of

READ_BYTES = 1024 * 1024
DATABASE_ENDING = ".db"

FindSecret = Callable[[DeviceLog], VaultSecret | None]
"""Returns the vault's secret, with which a digest is computed; None where this machine has no key for it."""


@dataclass
class Verified:
    """The outcome. ``problems``: what is wrong, by path in the backup. ``unsound``: those whose bytes are as written, and were
    wrong then. ``digest``: of the memory's rows, "" without the key or for an earlier version; ``position``: its epoch and
    slot. ``locked``: its databases are encrypted, and their key is not here: their bytes alone were compared."""

    manifest: BackupManifest
    problems: dict[str, str] = field(default_factory=dict[str, str])
    unsound: set[str] = field(default_factory=set[str])
    digest: str = ""
    position: tuple[int, int] = (0, 0)
    bytes: int = 0
    locked: bool = False

    def check(self) -> None:
        """Raises BackupDamaged if there is a problem, with the first file."""
        for path, what in self.problems.items():
            more = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
            raise BackupDamaged(f"{path} is damaged: {what}{more}")


def verify_backup(folder: Path, secret: FindSecret, tell: Tell | None = None) -> Verified:
    """Reads all of a backup.

    Raises:
        LocalStorage: it is no backup, or of a later version.
        BackupDamaged: its manifest is damaged; other damage is in the result.
    """
    manifest = read_manifest(folder)
    return verify_files(folder / HOME_NAME, manifest, secret, Meter(tell, "reading", manifest.bytes))


def verify_files(
    home: Path, manifest: BackupManifest, secret: FindSecret, meter: Meter, *, flush: bool = False
) -> Verified:
    """Verifies the files of a manifest. ``flush``: they were just written, and are flushed first."""
    found = Verified(manifest)
    for item in manifest.items:
        try:
            what = read_back(home, item, meter, flush=flush)
        except BackupStopped:
            raise
        except (OSError, CrystalError) as error:
            what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if what:
            found.problems[f"{HOME_NAME}/{item.path}"] = what
        found.bytes += item.size
    found.locked = _is_locked(home)
    for item in () if found.locked else manifest.items:
        path = f"{HOME_NAME}/{item.path}"
        if path not in found.problems and item.path.endswith(DATABASE_ENDING) and _is_ours(item.path):
            what = _integrity(home / item.path)
            if what:
                _note(found, item.path, what)
    _check_state(home, found, secret)
    return found


def read_back(home: Path, item: CopiedFile, meter: Meter, *, flush: bool) -> str:
    """What is wrong with a file; "" if nothing is."""
    with folder_of(home, item.path) as found:
        if found is None:
            return "it is not there"
        try:
            descriptor = os.open(found[1], READ, dir_fd=found[0])
        except FileNotFoundError:
            return "it is not there"
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return "it is no regular file"
        if info.st_size != item.size:
            return f"it has {info.st_size:,} bytes instead of {item.size:,}"
        if flush:
            os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        hashed = sha256()
        while data := file.read(READ_BYTES):
            hashed.update(data)
            meter.add(len(data))
    return "" if hashed.hexdigest() == item.sha256 else "its bytes are not those that were written"


def open_journal(path: Path) -> SqliteJournal:
    """Opens a backup's journal for reading. Raises apsw.Error."""
    return SqliteJournal(open_unchanging(path))


def _is_ours(path: str) -> bool:
    """Whether a database is Crystal's: files of the tree may end in .db, too."""
    return path == MEMORY or path.startswith("state/")


def _is_locked(home: Path) -> bool:
    """Whether the databases are encrypted with a key that is not here."""
    folder = (home / JOURNAL).parent
    try:
        marker = read_marker(folder)
        if marker is not None:
            find_key(folder, marker)
    except DatabaseKeyMissing:
        return True
    except NoCiphers:
        raise
    except VaultDataError:
        return False  # a damaged marker is reported with the databases
    return False


def _integrity(path: Path) -> str:
    try:
        connection = open_unchanging(path)
        try:
            faults = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
        finally:
            connection.close()
    except (apsw.Error, VaultDataError) as error:
        return f"SQLite cannot read it ({error})"
    return "" if faults == ["ok"] else f"SQLite finds that {faults[0]}"


def _check_state(home: Path, found: Verified, secret: FindSecret) -> None:
    """Checks journal and memory, if their files are intact."""
    places = {item.path for item in found.manifest.items}
    for place in (JOURNAL, MEMORY):
        if place not in places:
            found.problems.setdefault(f"{HOME_NAME}/{place}", "it is not there")
    if found.locked or any(f"{HOME_NAME}/{place}" in found.problems for place in (JOURNAL, MEMORY)):
        return
    vault = bytes.fromhex(found.manifest.vault)
    place = JOURNAL
    try:
        journal = open_journal(home / JOURNAL)
        try:
            version = journal.connection.execute("PRAGMA user_version").get
            log = load_log(journal, vault) if version == SCHEMA_VERSION else None
        finally:
            journal.close()
        place = MEMORY
        key = secret(log) if log is not None else None
        if key is not None and has_schema_of_now(home / MEMORY):
            position, digest = check_state(home / MEMORY, key)
            found.position, found.digest = position[:2], digest.hex()
            if found.manifest.digest not in ("", found.digest):
                _note(found, MEMORY, "its rows are not those of the manifest")
    except (CrystalError, VaultDataError, apsw.Error) as error:
        _note(found, place, str(error))


def _note(found: Verified, place: str, what: str) -> None:
    """Notes a file that is as written, but was wrong then."""
    found.problems[f"{HOME_NAME}/{place}"] = what
    found.unsound.add(f"{HOME_NAME}/{place}")
