"""A copy of a store's directory while a relay works in it: of one moment, and a directory that a relay can serve.

    <target>.partial --rows of one moment, then the files that they name, all durable--> renamed to <target>

The rows are copied first, by SQLite. A row whose file is gone by then is taken out of the copy: its object was deleted
meanwhile, or it was lost before, if the store still names the file. Files never change and their names are never used twice,
so a copy that broke off goes on with the files that it has. Blocks.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec

from crystal_relay.errors import BadRequest, StoreDamaged, Unusable
from crystal_relay.local.database import error_of_sqlite, error_of_system, lock, open_for_reading
from crystal_relay.local.files import ObjectFiles, sync_directory, sync_file

PARTIAL = ".partial"
_COPIED = ".tmp"


class BackupReport(msgspec.Struct, frozen=True):
    """What a copy holds. `files_kept`: files that an earlier try had copied. Objects left out: `deleted_meanwhile`, and `lost`,
    which the store names and does not have."""

    target: str
    objects: int
    bytes: int
    files: int
    files_kept: int
    deleted_meanwhile: int
    lost: int


def back_up(
    directory: Path, target: Path, *, also: Sequence[str] = (), without: Sequence[str] = ()
) -> BackupReport:
    """Copy a store's directory to `target`, which does not exist yet or is empty. `also`: names of further files, if they are
    there. `without`: prefixes of keys that are left out.

    Raises BadRequest, InUse (another copy to this place is being made), StoreDamaged, StoreFull, StoreUnavailable, Unusable.
    """
    if not (directory / "objects.db").exists():
        raise Unusable(f"{directory}: there is no store", hint="Name another one by --store.")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadRequest(
            f"{target}: there is something already", hint="Name a folder that does not exist yet."
        )
    partial = target.with_name(target.name + PARTIAL)
    try:
        partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = lock(partial / "lock")
        try:
            report = _copy(directory, partial, target, also, without)
            sync_directory(partial)
            partial.rename(target)  # before another try may begin in it
        finally:
            held.close()
        sync_directory(target.parent)
    except apsw.Error as error:
        raise error_of_sqlite(error) from None
    except OSError as error:
        raise error_of_system(error) from None
    return report


def _copy(
    directory: Path, partial: Path, target: Path, also: Sequence[str], without: Sequence[str]
) -> BackupReport:
    database = partial / "objects.db"
    for name in ("objects.db", "objects.db-wal", "objects.db-shm"):
        (partial / name).unlink(missing_ok=True)
    _copy_rows(directory / "objects.db", database)
    source, files = ObjectFiles(directory / "files"), ObjectFiles(partial / "files")
    files.prepare()
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.pragma("secure_delete", 1)
        for prefix in without:
            connection.execute("DELETE FROM object WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
        named = dict(connection.execute("SELECT file, size FROM object WHERE file IS NOT NULL"))
        kept, gone = 0, set[str]()
        for name, size in named.items():
            if files.path(name).exists():
                kept += 1
            elif not _copy_file(source.path(name), files.path(name), size):
                connection.execute("DELETE FROM object WHERE file = ?", (name,))
                gone.add(name)
        objects, size = connection.execute("SELECT count(*), coalesce(sum(size), 0) FROM object").get
        if connection.pragma("quick_check") != "ok":
            raise StoreDamaged("the copy of the relay's database is damaged", hint="Check both disks.")
    finally:
        connection.close()
    files.sweep(named.__contains__)  # of objects that were deleted since an earlier try
    lost = _still_named(directory / "objects.db", gone)
    for name in also:
        _copy_file(directory / name, partial / name, None)
    for path in (partial / "files").iterdir():
        sync_directory(path)
    _sync(database)
    return BackupReport(str(target), objects, size, len(named) - len(gone), kept, len(gone) - lost, lost)


def _copy_rows(source: Path, target: Path) -> None:
    """All rows of one moment. Writers go on meanwhile."""
    reading = open_for_reading(source)
    try:
        writing = apsw.Connection(str(target))
        try:
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)
        finally:
            writing.close()
    finally:
        reading.close()


def _still_named(database: Path, files: set[str]) -> int:
    """How many of these files the store names now."""
    if not files:
        return 0
    reading = open_for_reading(database)
    try:
        named = reading.execute("SELECT file FROM object WHERE file IS NOT NULL")
        return sum(file in files for (file,) in named)
    finally:
        reading.close()


def _copy_file(source: Path, target: Path, size: int | None) -> bool:
    """Copy a file durably; False if there is none. Raises StoreDamaged for another size than its row says."""
    temporary = target.with_name(target.name + _COPIED)
    try:
        with source.open("rb") as read, open(temporary, "wb", opener=_open_private) as written:
            shutil.copyfileobj(read, written)
            if size is not None and written.tell() != size:
                raise StoreDamaged(
                    f"{source}: a file of the relay's store has another size than its row says"
                )
            written.flush()
            sync_file(written.fileno())
    except FileNotFoundError:
        return False
    temporary.replace(target)
    return True


def _sync(path: Path) -> None:
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
