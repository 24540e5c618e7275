"""The state of a home's files, from this device's own databases: for ``crystal files status`` and ``crystal status``."""

import re
from collections import Counter
from dataclasses import dataclass

from crystal_mirror.files.tree import DeletionDirection
from crystal_node.base.file_rules import allow_command
from crystal_node.base.wording import iso
from crystal_node.device.device import Device
from crystal_node.sync.files.database import FileDatabase, StoredReport, stored_report
from crystal_node.sync.files.rules import rules_of
from crystal_node.sync.files.trash import Trash

_CONFLICT = re.compile(r" \(conflict [0-9a-f]{8}-[0-9]+\)")


@dataclass(frozen=True, slots=True)
class FilesStatus:
    """``tree``: files of the vault; ``synced``: those that are equal here; ``offered``: changes of this device that the Core
    has not ordered yet; ``aside``: files excluded here. ``held``: names that programs execute or obey, by the path up to them,
    with the number of the vault's files that are not applied here for it; ``without_bit``: files executable elsewhere only.
    """

    tree: int
    synced: int
    aside: int
    offered: int
    conflicts: tuple[str, ...]
    withheld: tuple[tuple[str, DeletionDirection], ...]
    rules: tuple[str, ...]
    allowed: tuple[str, ...]
    trash_files: int
    trash_bytes: int
    last: StoredReport
    held: dict[str, int]
    without_bit: tuple[str, ...]


def files_status(device: Device) -> FilesStatus:
    """Collects it; no network."""
    database = device.replica.database
    conflicts = [
        path
        for (path,) in database.rows(
            "SELECT path FROM files WHERE gone = 0 AND path LIKE '% (conflict %' ORDER BY path"
        )
        if _CONFLICT.search(path)
    ]
    rules = rules_of(device)
    paths = (path for (path,) in database.rows("SELECT path FROM files WHERE gone = 0 ORDER BY path"))
    held = Counter(part for path in paths if (part := rules.held(path)) is not None)
    files = FileDatabase.open(device.settings.home.files_database)
    try:
        waiting = tuple(files.waiting())  # agreed once, and now missing on one side
        trashed = [item.record.size for item in Trash(device.settings.home.root).items()]
        return FilesStatus(
            tree=int(database.value("SELECT count(*) FROM files WHERE gone = 0")),
            synced=files.agreed_count() - files.aside_count() - len(waiting),
            aside=files.aside_count(),
            offered=len(files.offers()),
            conflicts=tuple(conflicts),
            withheld=waiting,
            rules=rules.patterns,
            allowed=rules.allowed or (),
            trash_files=len(trashed),
            trash_bytes=sum(trashed),
            last=stored_report(files),
            held=dict(held),
            without_bit=tuple(sorted(files.bits_withheld())),
        )
    finally:
        files.close()


def files_document(found: FilesStatus) -> dict[str, object]:
    """For ``--json``."""
    last = found.last
    return {
        "halted": last.halted or None,
        "tree": found.tree,
        "synced": found.synced,
        "waiting": found.offered,
        "conflicts": list(found.conflicts),
        "withheld": [{"path": path, "direction": direction.value} for path, direction in found.withheld],
        "refused": [{"path": path, "why": why} for path, why in last.refused.items()],
        "refused_count": last.refused_count,
        "held": [
            {"path": part, "files": count, "allow": allow_command(part).strip("`")}
            for part, count in found.held.items()
        ],
        "allowed": list(found.allowed),
        "without_execute_bit": list(found.without_bit),
        "lacking": [{"path": path, "why": why} for path, why in last.lacking.items()],
        "busy": list(last.busy),
        "excluded": {"rules": list(found.rules), "set_aside": found.aside},
        "trash": {"files": found.trash_files, "bytes": found.trash_bytes},
        "looked_at": iso(last.at) if last.at else None,
    }
