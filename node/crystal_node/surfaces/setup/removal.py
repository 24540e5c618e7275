"""Removing the home: say what would be lost, then remove everything. It can be interrupted and repeated.

::

    home --mark made, renamed--> HOME.purging --keys deleted from the keyring--> --files deleted, then the mark--> nothing

After the renaming no command finds the home, and the next call continues. A folder of that name without the mark beside it
is not Crystal's, and stays. Nothing outside the home is removed, except the database that CRYSTAL_DATA_DIR has put
elsewhere.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import FILE_MODE, Home, sync_directory
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import KeyStoreKind, Settings, read_config
from crystal_node.device.device import Device, opened
from crystal_node.device.keys.device_keys import NAMES, keyring_store
from crystal_node.device.recovery_kit import KitState, kit_state
from crystal_node.sync.files.rounds import open_disk, open_file_database

_LOCK_SECONDS = 5.0
_SUFFIX = ".purging"
_DATABASE_PARTS = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class HomeLoss:
    """What would be lost with a home. ``why_unknown``: why it cannot be read; "" if it could.

    ``operations``: recorded here and not durable yet; ``entries``: of the Core's log, not on the relay yet; ``files``: of
    the home, changed here and not shared; ``only_root``: as far as is known nobody else has the root, and no kit was
    verified. ``holds_relay``: the vault's relay is in the home.
    """

    root: Path
    name: str = ""
    device: bytes = b""
    operations: int = 0
    entries: int = 0
    files: int = 0
    holds_root: bool = False
    only_root: bool = False
    is_core: bool = False
    holds_relay: bool = False
    others: int = 0
    why_unknown: str = ""

    @property
    def for_good(self) -> list[str]:
        """What no other device has, in words."""
        from crystal_node.base.wording import counted

        found = [
            (self.operations, f"{counted(self.operations, 'change')} that no other device has"),
            (
                self.entries,
                f"{counted(self.entries, 'change')} of the vault's log that the relay lacks",
            ),
            (self.files, f"{counted(self.files, 'file')} that was changed here and not shared"),
            (
                self.holds_relay,
                "the relay, which is in this home, and at which your other devices meet"
                if self.others
                else "the memory itself: it is on no other machine, and its relay is in this home",
            ),
            (self.only_root, "the vault's root, without a recovery kit that was verified here"),
            (self.why_unknown, f"whatever is in it, since it cannot be looked into: {self.why_unknown}"),
        ]
        return [text for there, text in found if there]


def left_over(home: Home) -> Path:
    """Where an interrupted removal leaves the home; it need not exist."""
    real = home.root.resolve()
    return real.with_name(real.name + _SUFFIX)


def mark_of(aside: Path) -> Path:
    """The file that marks such a folder as left by an interrupted removal."""
    return aside.with_name(aside.name + "-mark")


def loss_of(settings: Settings) -> HomeLoss:
    """What would be lost. Never raises for a damaged home."""
    try:
        with opened(settings) as device:
            return _loss(device)
    except (CrystalError, OSError) as error:
        if settings.vault is None and settings.home.config_file.exists():
            return HomeLoss(settings.home.root, settings.name.value)
        return HomeLoss(settings.home.root, settings.name.value, why_unknown=str(error))


def check_is_home(settings: Settings) -> None:
    """Refuse to remove what is not a Crystal home, or holds more than one. Raises UsageError."""
    root, person = settings.home.root.resolve(), settings.person_home.resolve()
    if root in (person, *person.parents):
        raise UsageError(f"{root} holds more than Crystal's", hint="Remove by hand what is to go.")
    if not settings.home.config_file.is_file() or not settings.home.state.is_dir():
        raise UsageError(
            f"{root} is no Crystal home", hint="CRYSTAL_HOME names the home, if it is not ~/.ldm."
        )


@contextmanager
def alone(settings: Settings) -> Generator[None]:
    """Hold all locks of the home, so that no other process works in it. Raises HomeBusy."""
    home = settings.home
    with ExitStack() as held:
        for path in (home.setup_lock, home.watch_lock, home.sync_lock, home.files_lock):
            held.enter_context(FileLock(path, purpose="crystal uninstall", wait_seconds=_LOCK_SECONDS))
        yield


def purge(settings: Settings) -> None:
    """Remove the home and this device's keys, or continue with that. Idempotent.

    Raises:
        LocalStorage: something cannot be removed; what is left is in ``left_over``.
        KeyStoreError: the keyring cannot be reached; the files are still there.
    """
    home, aside = settings.home, left_over(settings.home)
    mark = mark_of(aside)
    real = home.root.resolve()
    if real.is_dir():
        if mark.exists() and aside.exists():
            shutil.rmtree(aside)
        if os.path.lexists(aside):
            raise LocalStorage(
                f"{aside} is in the way, and is not Crystal's", hint="Move it elsewhere first."
            )
        mark.touch(FILE_MODE)
        sync_directory(aside.parent)
        real.rename(aside)
        sync_directory(aside.parent)
    if home.root.is_symlink():
        home.root.unlink()
    if not mark.exists():
        return
    if not aside.exists():
        mark.unlink()
        return
    config = read_config(aside / home.config_file.name)
    if KeyStoreKind.KEYRING in (config.key_store, config.key_store_left):
        store = keyring_store(home, config.keyring_backend)
        for name in NAMES:
            store.delete(name)
    if home.data is not None:
        for part in _DATABASE_PARTS:
            with suppress(FileNotFoundError):
                home.database.with_name(home.database.name + part).unlink()
    try:
        shutil.rmtree(aside)
        mark.unlink()
    except OSError as error:
        raise LocalStorage(
            f"{aside} cannot be removed: {error.strerror}",
            hint="Remove it by hand: nothing uses it any more.",
        ) from error


def _loss(device: Device) -> HomeLoss:
    from crystal_mirror.membership.status import status
    from crystal_node.sync.members.root_holders import holders

    member, settings = device.member, device.settings
    stream_status = status(member)
    kit = kit_state(settings.config, member.log.root) is KitState.VERIFIED
    return HomeLoss(
        settings.home.root,
        device.name,
        member.device_id,
        stream_status.pending + stream_status.stored,
        stream_status.unsent,
        _unshared(device),
        device.holds_root,
        device.holds_root and not kit and not holders(member),
        member.is_core,
        settings.relay_is_local,
        sum(info.device != member.device_id for info in member.log.active()),
    )


def _unshared(device: Device) -> int:
    """The number of files whose present version is not in the vault."""
    database = open_file_database(device)
    try:
        disk = open_disk(device, database)
        offered = {offer.path for offer in database.offers()}
        count = 0
        for local in disk.scan():
            agreed, seen = database.agreed_at(local.path), database.seen_at(local.path)
            same = agreed is not None and seen is not None and seen.local.stamp == local.stamp
            count += local.path in offered or not same or agreed.content != seen.content  # type: ignore[union-attr]
        return count + len(disk.refused())
    finally:
        database.close()
