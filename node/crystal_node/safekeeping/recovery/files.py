"""The files of the other home, in a recovery from one.

::

    a device of the vault again --its files.db copied, then each file--> files here, no marker: halted
      --adopted--> this device's, synced from the next round on

``files.db`` comes first: a round that begins in between finds no marker, and touches nothing. A file that is here already
stays as it is, so a repeated run goes on where it stopped. Files that the other device excluded from sync are left where they
are.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crystal_mirror.files.ports import DiskFull, FileTrouble
from crystal_node.base.errors import BadConfig
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import Home
from crystal_node.base.settings import read_config
from crystal_node.device.device import Device
from crystal_node.safekeeping.file_copy import Meter, copy_file
from crystal_node.safekeeping.recovery.source_home import copy_file_database
from crystal_node.sync.files.folders import folder_of, troubles
from crystal_node.sync.files.rounds import adopt_files
from crystal_node.sync.files.rules import own_places
from crystal_node.sync.files.scan import Scan, look

_SCRATCH = "restored-file"


@dataclass(frozen=True, slots=True)
class FilesBack:
    """How many files were copied, and which could not be, with the reason. ``gone``: the other home is not there any more."""

    count: int = 0
    unread: tuple[tuple[str, str], ...] = ()
    gone: bool = False


def bring_files(device: Device, folder: Path, *, relay_lost: bool) -> FilesBack:
    """Copies missing files of the home in ``folder`` to this one, and makes them this device's.

    Raises:
        HomeBusy: its ``files.db`` is being written.
        NoRoom, OSError: it cannot be written here.
    """
    home = device.settings.home
    found = _copied(home, Home(folder)) if folder.is_dir() else FilesBack(gone=True)
    adopt_files(device, _here(home), relay_lost=relay_lost)
    return found


def _copied(home: Home, old: Home) -> FilesBack:
    if not home.files_database.exists() and old.files_database.is_file():
        copy_file_database(old.files_database, home.files_database)
    scan = Scan(old.root, _rules_of(old))
    count, unread = 0, list[tuple[str, str]]()
    for local in scan:
        try:
            count += _brought(old.root, local.path, home)
        except DiskFull:
            raise
        except FileTrouble as error:
            unread.append((local.path, str(error)))
    _clear(home)
    return FilesBack(count, (*unread, *sorted(scan.refused.items())))


def _here(home: Home) -> set[str]:
    databases, secrets = own_places(home)
    return {local.path for local in Scan(home.root, TreeRules((), databases, secrets))}


def _rules_of(old: Home) -> TreeRules:
    databases, secrets = own_places(old)
    try:
        patterns = read_config(old.config_file).files_rules
    except BadConfig:  # the files matter more than the exclusions
        patterns = ()
    return TreeRules(patterns, databases, secrets)


def _brought(folder: Path, path: str, home: Home) -> bool:
    """Copies one file, whole or not at all. Returns False if it is here already, or gone there."""
    if look(home.root, path) is not None:
        return False
    _clear(home)
    scratch = home.state / _SCRATCH
    if copy_file(folder, path, scratch, Meter(None, "", 0)) is None:
        return False
    with folder_of(home.root, path, create=True) as found, troubles():
        if found is None:
            raise FileTrouble("its folder is gone")
        with scratch.open("rb") as copy:
            os.fsync(copy.fileno())
        os.link(scratch, found[1], dst_dir_fd=found[0], follow_symlinks=False)
        os.fsync(found[0])
    return True


def _clear(home: Home) -> None:
    with suppress(FileNotFoundError):
        (home.state / _SCRATCH).unlink()
