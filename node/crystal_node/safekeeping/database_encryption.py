"""Encrypting this device's databases at rest, decrypting them, and replacing their key: ``crystal keys encrypt``,
``decrypt`` and ``rekey``.

::

    key stored, read back --markers written--> ENCRYPTING --each file in turn--> every file is encrypted --markers--> ENCRYPTED

    a file: locked against every other connection --copied by SQLite into <name>.rewriting--> read back: every page, and
      the rows of every table --flushed--> renamed into its place --lock given up--> the former file is gone

Decrypting is the same in the other direction, and the markers go last. A process that is killed anywhere leaves each file whole
in one of the two forms, and the markers say that both are read; the same command goes on from there, the other one goes back.
The key stays in the key store: backups from before may need it. Replacing the key is the same from one key to another::

    new key stored beside the old one --markers--> REKEYING --each file in turn--> the new key is stored as the present one, the
      old one as a former one --markers--> ENCRYPTED --> the new key's first name is deleted

Both keys are in the key store from before the first file until after the last one. Only the same command goes on from there.

What is covered are the databases in ``state/`` and ``crystal.db``, with what earlier versions and `crystal restore` left beside
them. Nothing else in the home is: see the threat model.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from crystal_core import key_finder
from crystal_core.encryption import (
    MARKER_NAME,
    PLAIN_BEGINNING,
    EncryptionState,
    Marker,
    check_ciphers,
    copy_uri,
    find_key,
    give_key,
    has_key,
    key_id,
    read_marker,
)
from crystal_core.errors import DatabaseKeyMissing
from crystal_node.base.errors import HomeBusy, LocalStorage, NotSetUp, UsageError
from crystal_node.base.home import FILE_MODE, Home, sync_directory, write_private
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings, read_config
from crystal_node.base.wording import size
from crystal_node.device.keys.device_keys import DeviceKeys, open_keys
from crystal_node.device.keys.report import DATABASE_WORDS, key_report
from crystal_node.sync.leftovers import REWRITING

WAIT_SECONDS = 10.0
BUSY_MS = 10_000
_RETRY_SECONDS = 0.02
SPARE_BYTES = 16 * 1024 * 1024
"""Disk space that is left free beside the copy of a file."""
_PURPOSE = "crystal keys"
_DATABASE = ".db"
_BESIDE = ("-wal", "-shm", "-journal")
_NO_MODULE = "no such module"
"""What SQLite's check says of vectors in an older memory, which need sqlite-vec; their rows are in tables that are checked."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The outcome. ``files``: those that this call rewrote, by their path in the home; ``bytes``: their size now; ``left``:
    copies of damaged databases, which stay as they were; ``key_beside``: the key is in a plain file in the same home."""

    state: EncryptionState | None
    files: tuple[str, ...]
    bytes: int
    left: tuple[str, ...]
    key_beside: bool


def encrypt_databases(settings: Settings, tell: Tell | None = None) -> Rewritten:
    """Encrypts all databases, or finishes an interrupted encryption.

    Raises:
        NoCiphers: the installed apsw cannot encrypt.
        NotSetUp: this home has no keys yet.
        HomeBusy: the background service, or another process, uses the home. Nothing has changed.
        LocalStorage: a database is damaged, or there is no room for its copy.
        KeyStoreError: the key cannot be stored or read.
    """
    check_ciphers()
    with _alone(settings) as home:
        marker = _not_rekeying(_marker(home))
        with _keys(home) as keys:
            key = keys.made_database_key()
        if marker is not None and marker.key != key_id(key):
            raise DatabaseKeyMissing(
                f"the key store of {home.root} holds another key than its databases need"
            )
        done = marker is not None and marker.state is EncryptionState.ENCRYPTED and _both(home)
        if not done:
            _mark(home, Marker(EncryptionState.ENCRYPTING, key_id(key)))
        files, left = _rewrite_all(home, key, key, tell)
        if not done:
            _mark(home, Marker(EncryptionState.ENCRYPTED, key_id(key)))
        beside = key_report(settings).key_beside
        return Rewritten(EncryptionState.ENCRYPTED, *_named(home, files), left, beside)


def decrypt_databases(settings: Settings, tell: Tell | None = None) -> Rewritten:
    """Makes all databases plain again, or finishes an interrupted decryption. Does nothing where they are plain.

    Raises as ``encrypt_databases``; DatabaseKeyMissing where the key is not here.
    """
    with _alone(settings) as home:
        marker = _not_rekeying(_marker(home))
        if marker is None:
            return Rewritten(None, (), 0, (), key_beside=False)
        key = find_key(home.state, marker)
        _mark(home, Marker(EncryptionState.DECRYPTING, marker.key))
        files, left = _rewrite_all(home, key, None, tell)
        for folder in (home.database.parent, home.state):
            (folder / MARKER_NAME).unlink(missing_ok=True)
            sync_directory(folder)
        return Rewritten(None, *_named(home, files), left, key_beside=False)


def rekey_databases(settings: Settings, tell: Tell | None = None) -> Rewritten:
    """Replaces the key of encrypted databases by a new one, or finishes an interrupted replacement.

    Raises as ``encrypt_databases``; UsageError where the databases are not encrypted, DatabaseKeyMissing where the key is not
    here.
    """
    check_ciphers()
    with _alone(settings) as home, _keys(home) as keys:
        marker = _marker(home)
        if marker is None:
            raise UsageError(
                "this machine's databases are not encrypted",
                hint="Encrypt them: `crystal keys encrypt`. It uses the key that was there before, if there was one; "
                "replace it then with this command.",
            )
        if marker.state in (EncryptionState.ENCRYPTING, EncryptionState.DECRYPTING):
            raise UsageError(
                DATABASE_WORDS[marker.state], hint="Their key can be replaced when that is done."
            )
        files: list[Path] = []
        left: tuple[str, ...] = ()
        if marker.state is EncryptionState.ENCRYPTED:
            find_key(home.state, marker)
            wanted = key_id(keys.made_next_database_key())
            if wanted != marker.key:  # else all is done but the last step
                marker = Marker(EncryptionState.REKEYING, wanted, former=marker.key)
        if marker.state is EncryptionState.REKEYING:
            before, after = (key_finder.find(home.state, each) for each in (marker.former, marker.key))
            _mark(home, marker)
            files, left = _rewrite_all(home, before, after, tell)
            keys.replace_database_key(after)
            _mark(home, Marker(EncryptionState.ENCRYPTED, marker.key))
        keys.drop_next_database_key()
        beside = key_report(settings).key_beside
        return Rewritten(EncryptionState.ENCRYPTED, *_named(home, files), left, beside)


def plain_copies(home: Home) -> list[Path]:
    """Copies that were put aside beside encrypted databases, and are plain. The databases themselves are never so."""
    copies = (path for path in _files(home) if path.suffix != _DATABASE)
    return [path for path in copies if _beginning(path) == PLAIN_BEGINNING]


def replace_in_form(copy: Path, target: Path) -> None:
    """Moves a closed plain database into its place, encrypted where the folder's databases are. The caller syncs the folder.

    Raises DatabaseKeyMissing, LocalStorage, OSError, and apsw's errors; ``copy`` is then still there.
    """
    marker = read_marker(target.parent)
    if marker is None or marker.state is EncryptionState.DECRYPTING:
        copy.replace(target)
        return
    draft = _draft(target)
    _remove(draft)
    with _exclusive(copy, None) as source:
        _copy(source, copy, draft, find_key(target.parent, marker))
        draft.replace(target)
    copy.unlink()


@contextmanager
def _alone(settings: Settings) -> Generator[Home]:
    """Nothing else syncs, watches, backs up or serves this home meanwhile."""
    home = settings.home
    if not home.state.is_dir() or not read_config(home.config_file).key_store:
        raise NotSetUp(f"{home.root} has no keys yet")
    home.check_private()
    with ExitStack() as held:
        held.enter_context(FileLock(home.watch_lock, purpose=_PURPOSE))  # its holder runs for weeks
        held.enter_context(FileLock(home.gateway_lock, purpose=_PURPOSE))
        for lock in (home.setup_lock, home.backup_lock, home.sync_lock, home.sources_lock):
            held.enter_context(FileLock(lock, purpose=_PURPOSE, wait_seconds=WAIT_SECONDS))
        yield home


@contextmanager
def _keys(home: Home) -> Generator[DeviceKeys]:
    config = read_config(home.config_file)
    keys = open_keys(home, config.key_store, config.keyring_backend)
    try:
        yield keys
    finally:
        keys.close()


def _marker(home: Home) -> Marker | None:
    """That of both folders; if a process was killed between the two, the one that says what was going on."""
    markers = [read_marker(folder) for folder in (home.state, home.database.parent)]
    there = [marker for marker in markers if marker is not None]
    rekeying = [marker for marker in there if marker.state is EncryptionState.REKEYING]
    return next(iter(rekeying or there), None)


def _not_rekeying(marker: Marker | None) -> Marker | None:
    if marker is not None and marker.state is EncryptionState.REKEYING:
        raise UsageError(
            "replacing the key of this machine's databases was interrupted",
            hint="Finish it first: `crystal keys rekey`.",
        )
    return marker


def _both(home: Home) -> bool:
    return read_marker(home.state) == read_marker(home.database.parent)


def _mark(home: Home, marker: Marker) -> None:
    for folder in (home.state, home.database.parent):
        write_private(folder / MARKER_NAME, marker.to_bytes())


def _files(home: Home) -> Iterator[Path]:
    """All databases of a home that exist, and their copies from earlier; the memory comes last, as it takes longest."""
    found = {*home.state.glob("*.db*"), *home.database.parent.glob(f"{home.database.name}*")}
    for path in sorted(found, key=lambda path: (path.name == home.database.name, path.name)):
        other = path.name == MARKER_NAME or path.name.endswith((*_BESIDE, REWRITING))
        if not other and path.is_file() and not path.is_symlink():
            yield path


def _named(home: Home, files: list[Path]) -> tuple[tuple[str, ...], int]:
    names = tuple(os.path.relpath(path, home.root) for path in files)
    return names, sum(path.stat().st_size for path in files)


def _rewrite_all(
    home: Home, key: bytes, target: bytes | None, tell: Tell | None
) -> tuple[list[Path], tuple[str, ...]]:
    """Rewrites every file that has not the form of ``target`` yet. Those that are encrypted have ``key``, or ``target``."""
    verb = "decrypting" if target is None else "encrypting" if key == target else "replacing the key of"
    rewritten: list[Path] = []
    left: list[str] = []
    for path in list(_files(home)):
        _remove(_draft(path))
        beginning = _beginning(path)
        plain = beginning == PLAIN_BEGINNING
        if not beginning or _has_form(path, target, plain=plain, others=key != target):
            continue
        if tell is not None:
            tell(f"{verb} {os.path.relpath(path, home.root)} ({size(path.stat().st_size)})")
        try:
            _rewrite(path, None if plain else key, target)
        except (apsw.NotADBError, apsw.CorruptError) as error:
            if path in (home.state_database, home.database):
                raise LocalStorage(
                    f"{path} is damaged, and was left as it is: {error}",
                    hint="`crystal doctor` and `crystal repair` look after it; run this command again afterwards.",
                ) from error
            left.append(os.path.relpath(path, home.root))
            continue
        rewritten.append(path)
    return rewritten, tuple(left)


def _has_form(path: Path, target: bytes | None, *, plain: bool, others: bool) -> bool:
    """``others``: an encrypted file may have another key."""
    if target is None or plain:
        return plain and target is None
    return not others or has_key(path, target)


def _rewrite(path: Path, before: bytes | None, after: bytes | None) -> None:
    """Gives one file its other form. Raises HomeBusy, LocalStorage, OSError and apsw's errors; the file is then as it was."""
    draft, about = _draft(path), path.stat()
    with _exclusive(path, before) as source:
        # Until the lock is given up nobody reads the former file, and who waited for it opens the new one instead.
        _copy(source, path, draft, after)
        os.utime(draft, ns=(about.st_atime_ns, about.st_mtime_ns))  # copies are deleted by their age
        draft.replace(path)
        sync_directory(path.parent)


@contextmanager
def _exclusive(path: Path, key: bytes | None) -> Generator[apsw.Connection]:
    """A connection that has merged the write-ahead log, and lets no other one read or write."""
    connection = apsw.Connection(
        f"file:{quote(os.fsencode(path.absolute()))}",
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI,
    )
    try:
        connection.set_busy_timeout(BUSY_MS)
        if key is not None:
            give_key(connection, key)
        try:
            _lock(connection)
        except apsw.BusyError as error:
            raise HomeBusy(
                f"{path} is open in another process",
                hint="End what uses this memory: sessions of AI agents (their MCP servers), `crystal serve`, "
                "`crystal status --watch`. Then run the command again; it goes on where it was.",
            ) from error
        yield connection
    finally:
        connection.close()


def _lock(connection: apsw.Connection) -> None:
    """Raises BusyError if another connection has the file open all the time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            list(connection.execute("PRAGMA journal_mode = DELETE"))  # waits for nobody by itself
            break
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
    list(connection.execute("PRAGMA locking_mode = EXCLUSIVE"))
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")  # the lock stays


def _copy(source: apsw.Connection, path: Path, draft: Path, key: bytes | None) -> None:
    """Writes the content to ``draft`` in the other form, durably, and reads it back whole."""
    disk, needed = os.statvfs(path.parent), path.stat().st_size
    if disk.f_bavail * disk.f_frsize < needed + SPARE_BYTES:
        raise LocalStorage(
            f"{path.name} needs {size(needed + SPARE_BYTES)} for its copy, and "
            f"{size(disk.f_bavail * disk.f_frsize)} are free",
            hint="Make room on that disk, then run the command again; it goes on where it was.",
        )
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        source.execute("VACUUM INTO ?", (copy_uri(draft, key),))
        _compare(source, draft, key)
        descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove(draft)
        raise


def _compare(source: apsw.Connection, draft: Path, key: bytes | None) -> None:
    """Raises LocalStorage unless the copy has the same tables with as many rows, and SQLite finds every page of it sound."""
    copy = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if key is not None:
            give_key(copy, key)
        faults = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(20)")]
        faults = [each for each in faults if each != "ok" and _NO_MODULE not in each]
        if faults:
            raise LocalStorage(f"the copy of {draft.name.removesuffix(REWRITING)} is not sound: {faults[0]}")
        if _content(copy) != _content(source):
            raise LocalStorage(
                f"the copy of {draft.name.removesuffix(REWRITING)} lacks rows; the file was not replaced"
            )
    finally:
        copy.close()


def _content(connection: apsw.Connection) -> list[object]:
    """The schema, the rows of each table, and the two numbers by which a file is known."""
    schema = list(
        connection.execute("SELECT type, name, sql, rootpage > 0 FROM sqlite_schema ORDER BY type, name")
    )
    counts = [
        connection.execute(f'SELECT count(*) FROM "{name}"').get  # noqa: S608  a name from the schema
        for kind, name, _, stored in schema
        if kind == "table" and stored
    ]
    numbers = [connection.execute(f"PRAGMA {each}").get for each in ("application_id", "user_version")]
    return [schema, counts, numbers]


def _beginning(path: Path) -> bytes:
    """The first bytes; b"" of an empty file. SQLite's locks on it are lost if this process has it open."""
    with path.open("rb") as file:
        return file.read(len(PLAIN_BEGINNING))


def _draft(path: Path) -> Path:
    return path.with_name(path.name + REWRITING)


def _remove(path: Path) -> None:
    for ending in ("", *_BESIDE):
        Path(f"{path}{ending}").unlink(missing_ok=True)
