"""The memory home: where everything of one device lives, and who may read it.

Layout (directories 0700, files 0600):

    config.json           settings that are no secrets
    memory/crystal.db     the memory: one portable SQLite file (``CRYSTAL_DATA_DIR`` moves it)
    state/state.db        outbox with capture offsets, device log
    state/files.db        what is known of the home's own files (``sync.files``)
    state/commands.db     commands between this device and others
    state/jobs.db         when the background service's jobs ran last, and which are paused
    state/works.db        which files were made from the memory, and the agents in staging
    state/weaver.db       what the Dream Weaver has read and written
    state/search.db       answers of language models for searches, kept for a week
    state/embedding.db    vectors of the next model, during a migration
    state/sources.db      what was read from this device's source folders
    state/native-memory/  how AI tools' own memory files were when they were last looked at
    state/recall.db       what agents' sessions were given to remember, and the log of it
    state/relay/          this machine's own relay, until a vault has another one
    state/agent/          what the background service tells of itself, and the socket at which it answers searches
    state/gateway/        the token of `crystal serve`, and links to its page that nobody has opened yet
    state/restore.json    progress of a restore from another home, while it is under way
    state/backup-restore.json  which backup is being restored, while that is under way
    state/merge.json      the vault whose memory comes with a home that joined another one, until all of it has come
    state/secrets/        keys, when no keyring keeps them
    state/.db-encryption  there while databases in this folder are encrypted, and beside crystal.db as well
    state/*.lock          who syncs, who watches
    state/nudge/now       touched to make the background service sync, ``look`` to make it read all transcripts
    staging/              agents that are new to the Core
    logs/                 of the background service

Nothing here reads the environment (``base.settings`` does) or decides anything about the vault. Only the commands that set up a
home make one; every other command finds it or says how to make it.
"""

import fcntl
import os
import secrets
import shlex
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.errors import LocalStorage

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one device's home. ``data`` overrides the folder of the database; ``passphrase_file`` holds the key store's
    passphrase where no person can be asked."""

    root: Path
    data: Path | None = None
    passphrase_file: Path | None = None

    @property
    def config_file(self) -> Path:
        return self.root / "config.json"

    @property
    def database(self) -> Path:
        return (self.data or self.root / "memory") / "crystal.db"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def state_database(self) -> Path:
        return self.state / "state.db"

    @property
    def secrets(self) -> Path:
        return self.state / "secrets"

    @property
    def sync_lock(self) -> Path:
        return self.state / "sync.lock"

    @property
    def snapshot_lock(self) -> Path:
        return self.state / "snapshot.lock"

    @property
    def files_database(self) -> Path:
        return self.state / "files.db"

    @property
    def files_lock(self) -> Path:
        return self.state / "files.lock"

    @property
    def watch_lock(self) -> Path:
        return self.state / "watch.lock"

    @property
    def setup_lock(self) -> Path:
        return self.state / "setup.lock"

    @property
    def restore_file(self) -> Path:
        """Exists while a restore from another home is under way."""
        return self.state / "restore.json"

    @property
    def backup_restore_file(self) -> Path:
        """Exists while a backup is being restored."""
        return self.state / "backup-restore.json"

    @property
    def merge_file(self) -> Path:
        """Exists until the memory of the home that was here before has been taken along."""
        return self.state / "merge.json"

    @property
    def backup_lock(self) -> Path:
        return self.state / "backup.lock"

    @property
    def nudge_folder(self) -> Path:
        return self.state / "nudge"

    @property
    def nudge_file(self) -> Path:
        return self.nudge_folder / "now"

    @property
    def look_file(self) -> Path:
        return self.nudge_folder / "look"

    @property
    def agent_folder(self) -> Path:
        """What the background service tells commands about itself."""
        return self.state / "agent"

    @property
    def jobs_database(self) -> Path:
        return self.state / "jobs.db"

    @property
    def commands_database(self) -> Path:
        return self.state / "commands.db"

    @property
    def works_database(self) -> Path:
        return self.state / "works.db"

    @property
    def weaver_database(self) -> Path:
        return self.state / "weaver.db"

    @property
    def search_database(self) -> Path:
        return self.state / "search.db"

    @property
    def embedding_database(self) -> Path:
        """Vectors of the next model, during a migration."""
        return self.state / "embedding.db"

    @property
    def sources_database(self) -> Path:
        return self.state / "sources.db"

    @property
    def sources_lock(self) -> Path:
        return self.state / "sources.lock"

    @property
    def sessions_database(self) -> Path:
        return self.state / "sessions.db"

    @property
    def sessions_lock(self) -> Path:
        return self.state / "sessions.lock"

    @property
    def recall_database(self) -> Path:
        return self.state / "recall.db"

    @property
    def relay(self) -> Path:
        """This machine's own relay: a directory of sealed bytes (``crystal_relay.embedded``)."""
        return self.state / "relay"

    @property
    def gateway_folder(self) -> Path:
        return self.state / "gateway"

    @property
    def gateway_lock(self) -> Path:
        return self.state / "gateway.lock"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def log_file(self) -> Path:
        return self.logs / "agent.log"

    def create(self) -> None:
        """Makes the folders, readable by their owner only. Idempotent.

        Raises:
            LocalStorage: a folder cannot be made, belongs to another user, is no folder, or cannot be made private.
        """
        for folder in (
            self.root,
            self.state,
            self.secrets,
            self.nudge_folder,
            self.agent_folder,
            self.logs,
            self.database.parent,
        ):
            try:
                folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            except OSError as error:
                raise LocalStorage(
                    f"the home {self.root} cannot be made: {error.strerror}",
                    hint="Allow it there, or choose another folder: CRYSTAL_HOME=FOLDER.",
                ) from error
            _make_private(folder)

    def check_private(self) -> None:
        """Checks that only this user can use the home: a few ``stat`` calls, at every start.

        Raises:
            LocalStorage: others can, or another user owns it. The hint is the command that fixes it.
        """
        for path in self.private_paths():
            problem = exposure(path)
            if problem is not None:
                raise LocalStorage(problem.text, hint=problem.fix)

    def private_paths(self) -> list[Path]:
        """Paths that only this user may use: folders, settings, databases, keys. Some may not exist."""
        kept = [self.root, self.state, self.config_file, self.state_database, self.database, self.secrets]
        with suppress(OSError):
            kept += sorted(self.secrets.iterdir())
        return kept

    def state_file(self) -> Path:
        """The state database's path. Makes the file private, because SQLite follows the umask."""
        os.close(os.open(self.state_database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        return self.state_database

    def nudge(self) -> None:
        """Wakes a running ``crystal sync --watch`` on this home, if there is one."""
        with suppress(OSError):
            self.nudge_file.touch(FILE_MODE)

    def ask_to_look(self) -> None:
        """Makes a running background service read all transcripts, as ``crystal nudge`` does."""
        with suppress(OSError):
            self.look_file.touch(FILE_MODE)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Why a path is not private, and the command that fixes it."""

    path: Path
    text: str
    fix: str


def exposure(path: Path) -> Exposure | None:
    """Who else may use this path; None if nobody, or if it does not exist."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    if info.st_uid != os.geteuid():
        owner = f"sudo chown {os.geteuid()} {shlex.quote(str(path))}"
        return Exposure(path, f"{path} belongs to another user", f"Run as its owner, or: {owner}")
    if stat.S_IMODE(info.st_mode) & 0o077:
        mode = "700" if stat.S_ISDIR(info.st_mode) else "600"
        return Exposure(
            path, f"{path} can be used by others than its owner", f"chmod {mode} {shlex.quote(str(path))}"
        )
    return None


def _make_private(folder: Path) -> None:
    info = folder.stat()
    if not stat.S_ISDIR(info.st_mode):
        raise LocalStorage(f"{folder} is not a directory")
    if info.st_uid != os.geteuid():
        raise LocalStorage(
            f"{folder} belongs to another user",
            hint="Run as the owner of the home, or set CRYSTAL_HOME to a folder of your own.",
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        folder.chmod(DIRECTORY_MODE)


def write_private(path: Path, data: bytes) -> None:
    """Replaces a file atomically and durably, readable by its owner only."""
    write_private_blocks(path, (data,))


def write_private_blocks(path: Path, blocks: Iterable[bytes]) -> None:
    """``write_private`` from blocks. If ``blocks`` raises, nothing is replaced."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Makes a rename or creation in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_directory(folder: Path) -> Generator[None]:
    """Locks ``folder`` for one writer at a time; the kernel releases the lock if the holder dies."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
