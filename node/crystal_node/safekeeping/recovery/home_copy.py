"""Another device's databases copied into this home: whether that may be, the copy, its progress, and undoing it.

Only a home that holds nothing takes another one's databases: nothing in this home is lost for it. ``restore.json`` beside the
databases records the progress::

    (no file) --> COPYING, databases half in place --> COPIED, ours --> (no file)

In COPYING, the databases of this home came from the other one and are copied again. From COPIED on, everything else is found
out from the databases; the file notes only what later repairs would hide: that the relay had lost the vault, and that the
device whose home was copied was the Core.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

from crystal_core.errors import ForeignSecret
from crystal_core.replica import Replica
from crystal_crypto.errors import UNDECODABLE
from crystal_crypto.kit import Kit
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.member import load_log
from crystal_mirror.repair.recovery import first_damage
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import Home, write_private
from crystal_node.device.enrolment import META_VAULT, PendingEnrolment
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.recovery_kit import check_kit
from crystal_node.safekeeping.recovery.source_home import (
    DamagedHome,
    clear_scratch,
    copy_journal,
    copy_memory,
    find_source_home,
)


class Phase(StrEnum):
    """What this home's databases hold."""

    COPYING = "copying"
    COPIED = "copied"


class RestoreProgress(msgspec.Struct, frozen=True):
    """``source``: the other home's folder; ``led``: the claim by which its device was the Core, or ""; ``lost``: whether the
    relay had lost the vault."""

    phase: Phase
    source: str
    led: str = ""
    lost: bool = False


def read_progress(home: Home) -> RestoreProgress | None:
    """The progress of an interrupted restore; None if there is none. Raises LocalStorage if the file is damaged."""
    try:
        data = home.restore_file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return from_json(data, RestoreProgress)
    except UNDECODABLE as error:
        raise LocalStorage(
            f"{home.restore_file} is damaged",
            hint="Restore into another, empty home: CRYSTAL_HOME=~/.crystal-2.",
        ) from error


def write_progress(home: Home, progress: RestoreProgress) -> RestoreProgress:
    write_private(home.restore_file, msgspec.json.encode(progress))
    return progress


def end_progress(home: Home) -> None:
    home.restore_file.unlink(missing_ok=True)


META_RESTORED = "node.restored-from"
"""In the journal of a restored home: the folder that it came from, so that repeating the restore does nothing."""


def begins_anew(home: PendingEnrolment, progress: RestoreProgress, folder: Path) -> bool:
    """Whether the databases have to be copied (again). Raises UsageError if another copy is in use here."""
    if progress.source != str(folder) and not home.fresh:
        raise UsageError(
            f"this home is being restored from {progress.source}",
            hint="Run the same command without --from: it finishes that.",
        )
    return progress.phase is Phase.COPYING or progress.source != str(folder)


def check_done(home: PendingEnrolment, folder: Path) -> None:
    """Raises UsageError for a home that is set up, unless it was restored from this folder: then there is nothing to copy."""
    journal = home.journal()
    try:
        done = journal.meta_get(META_RESTORED) == str(folder).encode()
    finally:
        journal.close()
    if not done:
        raise UsageError(
            "this home is set up already: --from fills a fresh one",
            hint="Restore into another home: CRYSTAL_HOME=~/.crystal-2.",
        )


def copy_home(home: Home, kit: Kit, folder: Path, *, resumed: bool) -> RestoreProgress:
    """Copies both databases of the other home into this one."""
    old = find_source_home(folder, home)
    if not resumed:
        _refuse_to_lose(home)
    write_progress(home, RestoreProgress(Phase.COPYING, str(old.folder)))
    try:
        copy_memory(old, home.database)
        claim_there = copy_journal(old, home.state_database)
        led = _led_by(home, kit, claim_there)
    except BaseException:
        undo_copy(home)
        raise
    clear_scratch(home)
    return write_progress(home, RestoreProgress(Phase.COPIED, str(old.folder), led=led))


def check_memory(home: Home, kit: Kit, log: DeviceLog) -> None:
    """Checks the copied mirror against the signatures of its Cores, as far as ``log`` goes.

    Raises:
        DamagedHome: an entry is damaged or missing, or the memory is another vault's than the journal.
    """
    try:
        replica = Replica.open(home.database, KeyRing.of_root(kit.root, log).secret)
    except ForeignSecret as error:
        raise DamagedHome("the home's memory and its journal are of two vaults") from error
    try:
        place = first_damage(log, replica)
    finally:
        replica.close()
    if place is not None:
        raise DamagedHome(
            f"the home's memory is damaged: its log at epoch {place.epoch}, slot {place.sequence}"
        )


def undo_copy(home: Home) -> None:
    """Deletes the copied databases; the other home is untouched."""
    for path in (home.database, home.state_database):
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    clear_scratch(home)
    end_progress(home)


def _led_by(home: Home, kit: Kit, claim_there: bytes | None) -> str:
    """The claim by which the copied home's device is the Core, in hex; "" if it is not. Raises WrongKit if the copy is of
    another vault."""
    journal = SqliteJournal.open(home.state_database)
    try:
        log = load_log(journal, journal.meta_get(META_VAULT) or kit.vault)
        check_kit(kit, log, newer_may_be=True)
        leads = claim_there is not None and log.lead is not None and log.lead.claim == claim_there
        return claim_there.hex() if leads and claim_there is not None else ""
    finally:
        journal.close()


def _refuse_to_lose(home: Home) -> None:
    """Raises UsageError if the copy would overwrite anything."""
    held = home.database.exists()
    if not held and home.state_database.exists():
        journal = SqliteJournal.open(home.state_file())
        held = bool(journal.outbox_count())
        journal.close()
    if held:
        raise UsageError(
            "there is a memory here already: --from fills a fresh home",
            hint="Restore into another home: CRYSTAL_HOME=~/.crystal-2.",
        )
