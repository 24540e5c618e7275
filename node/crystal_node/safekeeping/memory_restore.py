"""``crystal restore``: replaces this machine's memory, from the relay or from a copy of another machine's database.

::

    from the relay: a round of sync, nothing unsent, the relay has the log --> database set aside --> a new one is filled
    from a copy:    copied beside, checked page by page, row by row and entry by entry, of this vault
                    --> database set aside --> the copy in its place --> a round brings it up to date

The outbox is in another database and is not touched. The former database stays beside the new one for a week. A crash leaves
the old database, the new one, or none, which the next sync fills from the relay.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from crystal_core.database import Database
from crystal_core.errors import ForeignSecret, VaultDamaged, VaultDataError
from crystal_core.replica import Replica
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.member import load_keys, load_log
from crystal_mirror.repair.inspection import Fault, inspect
from crystal_mirror.repair.recovery import first_damage
from crystal_mirror.types import EntryState
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, LocalStorage, NotSetUp, RelayLacks, UsageError
from crystal_node.base.given_paths import given_path
from crystal_node.base.home import Home, sync_directory
from crystal_node.base.locking import FileLock, is_held
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device, opened
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.keys.device_keys import open_keys
from crystal_node.safekeeping.recovery.source_home import DamagedHome, SourceHome, clear_scratch, copy_memory
from crystal_node.sync.leftovers import BEFORE
from crystal_node.sync.syncer import sync_now, syncing

_ENDINGS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class RestoredMemory:
    """The outcome. ``kept``: where the former database is now; None if there was none. ``place``: epoch and slot of the new
    one."""

    kept: Path | None
    place: tuple[int, int]
    digest: bytes
    seconds: float


def restore_memory(
    settings: Settings, source: Path | None, progress: Callable[[str], None] | None
) -> RestoredMemory:
    """Replaces this machine's memory.

    Raises:
        HomeBusy: a watcher runs on this home.
        RelayLacks: the relay lacks part of this machine's log; nothing was changed.
        DamagedHome: the copy is damaged, or of another vault; nothing was changed.
        StoreFailure, ProtocolError: the relay could not answer; run it again.
    """
    started = time.monotonic()
    home = settings.home
    if is_held(home.watch_lock):
        raise HomeBusy(
            "a watcher runs on this home",
            hint="Stop `crystal sync --watch` first, and start it again afterwards.",
        )
    if source is None:
        _check_relay(settings, progress)
    incoming = None if source is None else _checked_copy(settings, source)
    with FileLock(home.sync_lock, purpose="crystal restore", wait_seconds=60.0):
        kept = _set_aside(home)
        if incoming is not None:
            incoming.replace(home.database)
            sync_directory(home.database.parent)
    with opened(settings) as device:
        asyncio.run(sync_now(device, progress))
        position = device.replica.position()
        return RestoredMemory(
            kept, position[:2], device.replica.digest().to_bytes(), time.monotonic() - started
        )


def _check_relay(settings: Settings, progress: Callable[[str], None] | None) -> None:
    """Raises RelayLacks unless the relay has everything that this machine's memory is made of."""
    try:
        with opened(settings) as device:
            asyncio.run(_synced_and_compared(device, progress))
    except VaultDamaged:
        return  # an unreadable memory cannot be compared; it is set aside as it is


async def _synced_and_compared(device: Device, progress: Callable[[str], None] | None) -> None:
    async with syncing(device, "crystal restore", progress) as syncer:
        await syncer.round()
        if device.replica.kept(EntryState.UNSENT):
            raise RelayLacks("this machine has entries of the log that the relay has not")
        found = await syncer.run(inspect(device.member, fetch=False))
    lacking = [each for each in found.problems if each.fault in (Fault.LOG_LACKS, Fault.SNAPSHOT)]
    if lacking:
        raise RelayLacks(f"the relay lacks what this machine has: {lacking[0].what}")


def _checked_copy(settings: Settings, source: Path) -> Path:
    """Copies the database beside ours, and checks it. ``source``: the file, or a home that holds it."""
    home = settings.home
    found = _find(given_path(source), home)
    incoming = home.database.with_name(f"{home.database.name}.incoming")
    try:
        copy_memory(SourceHome(found.parent, found, found), incoming)
        _check(settings, incoming)
    except BaseException:
        _remove(incoming)
        raise
    finally:
        clear_scratch(home)
    return incoming


def _find(source: Path, home: Home) -> Path:
    path = Home(source).database if source.is_dir() else source
    if source.is_dir() and not path.is_file() and (source / path.name).is_file():
        path = source / path.name
    if not path.is_file():
        raise UsageError(
            f"there is no database {path}",
            hint="--from is a copy of another machine's crystal.db, or its home.",
        )
    if home.database.exists() and path.samefile(home.database):
        raise UsageError(f"{path} is this machine's own memory", hint="Give the copy of another machine's.")
    return path


def _check(settings: Settings, incoming: Path) -> None:
    """Raises DamagedHome unless it is this vault's and its rows and log are intact. Drops what another device had not sent:
    that is in its own outbox, and this one would offer it as well."""
    own, log, secret = _keys_and_log(settings)
    try:
        replica = Replica.open(incoming, secret)
    except ForeignSecret as error:
        raise DamagedHome("that memory is another vault's") from error
    try:
        if replica.recompute_digest() != replica.digest():
            raise DamagedHome("that memory is damaged: its rows are not what their digest says")
        place = first_damage(log, replica)
        if place is not None:
            raise DamagedHome(
                f"that memory is damaged: its log at epoch {place.epoch}, slot {place.sequence}"
            )
        for origin in replica.provisional_origins():
            if origin.device != own:
                replica.drop_provisional(origin)
    finally:
        replica.close()


def _keys_and_log(settings: Settings) -> tuple[bytes, DeviceLog, VaultSecret]:
    """Loads both without this machine's memory, which may be damaged."""
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    keys = open_keys(settings.home, settings.config.key_store, settings.config.keyring_backend)
    try:
        identity = keys.identity()
        if identity is None:
            raise LocalStorage(f"this device's keys are not in its key store ({keys.kind})")
        journal = SqliteJournal.open(settings.home.state_file())
        try:
            log = load_log(journal, settings.vault)
        finally:
            journal.close()
        return identity.id, log, load_keys(identity, log)[1]
    finally:
        keys.close()


def _set_aside(home: Home) -> Path | None:
    """Renames the database. Returns its new path."""
    if not home.database.exists():
        return None
    with suppress(VaultDataError), Database.open(home.database) as database:
        database.scrub()  # if it cannot be read, its write-ahead log is moved along
    moment = datetime.fromtimestamp(now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = home.database.with_name(f"{home.database.name}{BEFORE}{moment}")
    for ending in _ENDINGS:
        beside = Path(f"{home.database}{ending}")
        if beside.exists():
            beside.replace(f"{kept}{ending}")
    home.database.replace(kept)
    sync_directory(kept.parent)
    return kept


def _remove(path: Path) -> None:
    for ending in ("", *_ENDINGS):
        Path(f"{path}{ending}").unlink(missing_ok=True)
