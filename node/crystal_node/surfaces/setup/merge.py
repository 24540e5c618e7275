"""Joining a vault with a home that has a vault of its own: its memory goes along, and its own vault ends.

::

    HOME                           HOME.joining                          HOME.former
    own vault, in use  --prepare-> a new home
    own vault, in use  --join----> a device of the other vault
    own vault, in use  --bring---> has the memory, all on the relay
    --change: the service stops; the rest is recorded; files and positions in transcripts go along; two renames, and between
      them the files that were written meanwhile-->
    the other vault                                                      own vault, as it was
    --finish: what was written to it meanwhile is recorded; all is on the relay; it is removed, with its keys-->
    the other vault

What is there says how far it came, so `crystal up` goes on after a kill: ``MergeState``. Up to the first rename the home is in
use, and giving up costs nothing. Entries in the keyring are named after the home's path, so they are copied before each rename.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from crystal_core.messages import forgotten
from crystal_crypto.errors import UNDECODABLE, CrystalError
from crystal_mirror.membership.status import devices, status
from crystal_node.agent.service import manager_for
from crystal_node.agent.service.control import stop_agent
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import ExitCode, LocalStorage, UsageError
from crystal_node.base.file_rules import MARKER_NAME, TEMPORARY_PREFIX
from crystal_node.base.home import DIRECTORY_MODE, Home, sync_directory, write_private
from crystal_node.base.locking import FileLock, is_held
from crystal_node.base.settings import Config, KeyStoreKind, Settings, SettingSource, read_config
from crystal_node.base.settings.api_keys import ENV_FILE
from crystal_node.base.settings.settings import Setting
from crystal_node.base.wording import counted, one_line
from crystal_node.capture.history import carry_on
from crystal_node.derive.catalog.database import Catalog
from crystal_node.derive.sources.database import SourceDatabase
from crystal_node.device.agent_name import META_JOINED
from crystal_node.device.bridge import read_bridge
from crystal_node.device.device import Device, opened
from crystal_node.device.keys.device_keys import copy_keyring_entries, delete_keyring_entries
from crystal_node.device.keys.report import PassphraseState, encryption_state, key_report
from crystal_node.safekeeping.portable.device_import import forget_too, import_device
from crystal_node.safekeeping.portable.export import piece_count
from crystal_node.surfaces.setup.removal import alone
from crystal_node.sync.syncer import sync_now

_JOINING, _FORMER = ".joining", ".former"
_OWN = frozenset({"config.json", "logs", "memory", "staging", "state", MARKER_NAME})
"""What each home has of its own, and does not go along."""
_ROUNDS_MAX = 10

Progress = Callable[[str, int, int], None]


class MergeState(StrEnum):
    """How far it came. See the drawing."""

    NONE = "none"
    JOINED = "joined"
    BETWEEN = "between the renames"
    CHANGED = "changed"


class NotMerged(CrystalError):
    """The memory was not taken along yet."""

    exit_code = ExitCode.NO_ANSWER
    hint = "Nothing is lost. Run `crystal up` again: it goes on."


class _Note(msgspec.Struct, frozen=True):
    """``merge.json``: the vault that ends, and where its keys are. ``forgotten``: keyed hashes of what was forgotten in it
    before. ``over``: all of it has been taken along."""

    vault: str
    key_store: str
    keyring_backend: str
    forgotten: tuple[bytes, ...] = ()
    over: bool = False


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What goes along, and in words what does not."""

    messages: int
    left: list[str]


class Merge:
    """The merge of one home. ``settings`` are those of the home as it is at the start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = settings.home
        real = settings.home.root.resolve()
        self._real = real
        self._joining = self._beside(_JOINING)
        self._former = self._beside(_FORMER)

    def _beside(self, suffix: str) -> Home:
        real = self._real
        return replace(self._home, root=real.with_name(real.name + suffix), data=None)

    def state(self) -> MergeState:
        """How far it came, by what is there. Raises BadConfig."""
        if self._home.merge_file.exists():
            return MergeState.CHANGED
        if _note(self._joining) is None or not read_config(self._joining.config_file).vault:
            return MergeState.NONE
        return MergeState.JOINED if self._home.config_file.exists() else MergeState.BETWEEN

    def check(self) -> None:
        """Refuses what cannot be merged. Raises UsageError, and what opening the device raises."""
        if self._home.data is not None or self._real.is_mount():
            why = "its database is in a folder of its own" if self._home.data else "it is a disk of its own"
            raise UsageError(f"this home cannot be joined with another vault in one step: {why}", hint=_STEPS)
        foreign = not self._joining.merge_file.exists() and any(self._joining.root.rglob("*.*"))
        if foreign or os.path.lexists(self._former.root):
            raise UsageError(
                f"{(self._joining if foreign else self._former).root} is in the way",
                hint="It is left from an earlier change of vaults, or is not Crystal's: look at it, and move it away.",
            )
        with opened(self._settings) as device:
            others = [
                entry.details.name if entry.details else entry.info.device.hex()[:8]
                for entry in devices(device.member)
                if not entry.is_this and entry.info.revoked is None
            ]
        if others:
            raise UsageError(
                f"this machine's own vault has other devices, so it cannot end: {one_line(', '.join(others), 200)}",
                hint="Take them out with `crystal devices revoke`, or have the other machines join this vault instead.",
            )

    def plan(self) -> MergePlan:
        """What goes along. Raises what opening the device raises."""
        left: list[str] = []
        with opened(self._settings) as device:
            database = device.replica.database
            messages = piece_count(database)
            lost = len(forgotten(database))
            bridge = read_bridge(device.journal)
        if lost:
            left.append(
                f"what you forgot ({counted(lost, 'text')}): another device that has such a text may record it again"
            )
        if bridge is not None:
            left.append(
                f"the bridge from {one_line(bridge.url, 200)}: set it up again with `crystal bridge add`"
            )
        if key_report(self._settings).passphrase not in (PassphraseState.NONE, PassphraseState.KEYRING):
            left.append("the passphrase of this device's keys: set one again with `crystal keys passphrase`")
        if encryption_state(self._home) is not None:
            left.append("the encryption of databases: `crystal keys encrypt` encrypts them again")
        return MergePlan(messages, left)

    def prepare(self) -> Settings:
        """Makes the new home, or finds it. Returns the settings with which it joins."""
        home, config = self._joining, self._settings.config
        home.create()
        with opened(self._settings) as device:
            before = tuple(sorted(forgotten(device.replica.database)))
        note = _Note(config.vault, config.key_store, config.keyring_backend, before)
        write_private(home.merge_file, msgspec.json.encode(note))
        if not home.config_file.exists():
            kept = msgspec.structs.replace(
                config,
                vault="",
                relay_url="",
                key_store="",
                key_store_left="",
                keyring_backend="",
                kit_verified="",
                own_relay_port=None,
                own_relay_host=None,
            )
            replace(self._settings, home=home, config=Config()).save(kept)
        return self._at(home)

    def give_up(self) -> None:
        """Removes a new home that has not joined. Does nothing else."""
        if self.state() is not MergeState.NONE or not self._joining.merge_file.exists():
            return
        config = read_config(self._joining.config_file)
        if config.key_store == KeyStoreKind.KEYRING:
            delete_keyring_entries(self._joining, config.keyring_backend)
        shutil.rmtree(self._joining.root)

    def bring(self, progress: Progress) -> None:
        """Records the memory in the joined home, and has the relay take all of it. The home is in use meanwhile.

        Raises:
            NotMerged, StoreFailure, RelayRefused, LocalStorage: run it again.
        """
        with self._at_work(self._joining), opened(self._at(self._joining)) as target:
            _sync(target, lambda: target.journal.meta_get(META_JOINED) is None, _MEMORY_FIRST)
            self._take(self._settings, target, progress)
            _send(target)

    def change(self) -> None:
        """Puts the joined home in the place of this one, with what was recorded here meanwhile.

        Raises:
            HomeBusy: something else works in the home. LocalStorage, KeyStoreError. Run it again.
        """
        if self.state() is MergeState.BETWEEN:
            self._rename_joining()
        if self.state() is not MergeState.JOINED:
            return
        stopped = ""
        if is_held(self._home.watch_lock):
            stopped = stop_agent(self._settings, manager_for(self._settings)).by
        try:
            with alone(self._settings), self._at_work(self._joining):
                with opened(self._at(self._joining)) as target:
                    self._take(self._settings, target, lambda _what, _done, _total: None)
                    with opened(self._settings) as source:
                        carry_on(source.journal, target.journal)
                _copy_files(self._home, self._joining)
                self._rename_former()
                self._rename_joining()
        finally:
            if stopped:
                manager_for(self._settings).start()

    def finish(self) -> None:
        """Has the vault take what was still written to the former home, and removes that. Does nothing if it is over.

        Raises:
            NotMerged, StoreFailure, RelayRefused, LocalStorage: the former home is still there. Run it again.
        """
        note = _note(self._home)
        if note is None:
            return
        config = self._settings.reread().config
        if _uses_keyring(config.key_store):
            delete_keyring_entries(self._joining, config.keyring_backend)
        elif _uses_keyring(note.key_store):
            delete_keyring_entries(self._home, note.keyring_backend)
        there = self._former.config_file.exists()
        if there and not note.over and read_config(self._former.config_file).vault == note.vault:
            with opened(self._at(self._home)) as target:
                self._take(self._at(self._former), target, lambda _what, _done, _total: None)
                _send(target)
            note = msgspec.structs.replace(note, over=True)
            write_private(self._home.merge_file, msgspec.json.encode(note))
        if note.over:
            if _uses_keyring(note.key_store):
                delete_keyring_entries(self._former, note.keyring_backend)
            if self._former.root.exists():
                shutil.rmtree(self._former.root)
        self._home.merge_file.unlink()

    def _take(self, settings: Settings, target: Device, progress: Progress) -> None:
        with opened(settings) as source:
            done = import_device(source, target, lambda count, total: progress("messages", count, total))
            note = _note(self._joining) or _note(self._home)
            forget_too(source, target, () if note is None else note.forgotten)
        if not settings.home.sources_database.exists():
            return
        with (
            SourceDatabase.open(settings.home.sources_database) as read,
            SourceDatabase.open(target.settings.home.sources_database) as kept,
        ):
            for each in read.sources():
                name = done.sources.get(each.name, each.name)
                if kept.source(name) is None:
                    kept.put(replace(each, name=name))

    def _at_work(self, home: Home) -> FileLock:
        return FileLock(home.state / "merge.lock", purpose="crystal up")

    def _at(self, home: Home) -> Settings:
        """The settings of one of the three homes, with what flags and environment say."""
        settings, config = self._settings, read_config(home.config_file)
        options = dict(settings.options)
        options["home"] = replace(options["home"], value=str(home.root))
        options["data_dir"] = replace(options["data_dir"], value=str(home.database.parent))
        if settings.relay.source not in (SettingSource.FLAG, SettingSource.ENVIRONMENT):
            options["relay_url"] = Setting("relay_url", config.relay_url, SettingSource.CONFIG)
        return replace(settings, home=home, config=config, options=options)

    def _rename_former(self) -> None:
        config = self._settings.config
        if _uses_keyring(config.key_store):
            copy_keyring_entries(self._home, self._former, config.keyring_backend)
        _rename(self._real, self._former.root)

    def _rename_joining(self) -> None:
        if self._real.exists():
            raise LocalStorage(
                f"{self._real} is in the way of the home that joined the vault",
                hint="Move it elsewhere, and run `crystal up` again.",
            )
        config = read_config(self._joining.config_file)
        if _uses_keyring(config.key_store):
            copy_keyring_entries(self._joining, self._home, config.keyring_backend)
        _copy_files(self._former, self._joining)  # what was written while they were copied before
        _rename(self._joining.root, self._real)


_STEPS = (
    "Do it in four: `crystal export DIR`, `crystal uninstall --purge --yes-lose-it`, `crystal up --code -`, "
    "`crystal import DIR`. "
    "Or use another home for the other vault: CRYSTAL_HOME=~/.crystal-2."
)
_MEMORY_FIRST = "the vault's memory has not come to this machine yet"


def _uses_keyring(key_store: str) -> bool:
    return key_store == KeyStoreKind.KEYRING


def _note(home: Home) -> _Note | None:
    try:
        return from_json(home.merge_file.read_bytes(), _Note)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        raise LocalStorage(
            f"{home.merge_file} is damaged: {error}", hint="Restore it from a backup."
        ) from error


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise LocalStorage(f"{source} cannot be renamed to {target.name}: {error.strerror}") from error
    sync_directory(target.parent)


def _sync(device: Device, done: Callable[[], bool], why_not: str) -> None:
    import asyncio

    for _ in range(_ROUNDS_MAX):
        asyncio.run(sync_now(device))
        if done():
            return
    raise NotMerged(why_not)


def _send(device: Device) -> None:
    """Has the relay take everything that was recorded."""
    if status(device.member).pending:
        _sync(
            device,
            lambda: not status(device.member).pending,
            "the relay has not taken all of this machine's memory",
        )


def _copy_files(source: Home, target: Home) -> None:
    """Copies what a person and agents have in the home, except what Crystal makes of the memory. Idempotent.

    A file that differs from the one that is there is put beside it, as an import does. Links are copied as links.
    """
    made: set[str] = set()
    catalog = Catalog.open_readonly(source.works_database)
    if catalog is not None:
        with catalog:
            made = {path for (path,) in catalog.rows("SELECT path FROM work WHERE kept = 0")}
    for path in _files(source.root):
        if path not in made:
            _copy_file(source.root / path, target.root / path)
    if (source.database.parent / ENV_FILE).exists():
        _copy_file(source.database.parent / ENV_FILE, target.database.parent / ENV_FILE)


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        own = _OWN if Path(folder) == root else frozenset[str]()
        folders[:] = [name for name in folders if name not in own]
        for name in (*files, *folders):
            path = Path(folder) / name
            if (
                name not in own
                and not name.startswith(TEMPORARY_PREFIX)
                and (path.is_symlink() or path.is_file())
            ):
                yield path.relative_to(root).as_posix()


def _copy_file(source: Path, target: Path) -> None:
    if os.path.lexists(target):
        if _same(source, target):
            return
        target = target.with_name(f"{target.stem} (imported {_digest(source)[:8]}){target.suffix}")
        if os.path.lexists(target):
            return
    target.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    draft = target.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}")
    try:
        shutil.copy2(source, draft, follow_symlinks=False)
        if not draft.is_symlink():
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        draft.rename(target)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    sync_directory(target.parent)


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() != other.is_symlink():
        return False
    first, second = one.lstat(), other.lstat()
    if (first.st_size, first.st_mtime_ns) == (second.st_size, second.st_mtime_ns):
        return True  # a copy has its original's time
    return _digest(one) == _digest(other)


def _digest(path: Path) -> str:
    if path.is_symlink():
        return sha256(os.fsencode(path.readlink())).hexdigest()
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            digest.update(block)
    return digest.hexdigest()
