"""Channels of a device, as it knows them: what waits to go out or to come in, and for how long.

    conversations  out: changes that are not sent, or sent and not durable yet
    mirror         in: entries that another device has applied, and this one has not
    files          out: changes of the home's files that the Core has not ordered
    commands       both ways: requests to other devices, or of them, that have not ended

Ages are upper bounds. None means that nothing waits, or that it is not known since when.
"""

import os
from dataclasses import dataclass

from crystal_mirror.membership.status import MemberStatus
from crystal_node.base.clock import now_ms
from crystal_node.device.device import Device
from crystal_node.sync.files.database import FileDatabase
from crystal_node.sync.files.status import FilesStatus
from crystal_node.sync.members.device_list import MemberRow

_LOOKED_AT_MAX = 200
"""Files checked for the oldest change that waits."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """``unsent`` changes wait here, ``stored`` ones are on the relay until the Core has ordered them."""

    unsent: int
    stored: int
    oldest_seconds: float | None

    @property
    def waiting(self) -> int:
        return self.unsent + self.stored


@dataclass(frozen=True, slots=True)
class MirrorIn:
    """``behind``: None where it cannot be counted. ``ahead``: the device that tells of more, None if none does. Whatever lacks
    here was written after the last entry that came, so it is no older than that."""

    behind: int | None
    ahead: str | None
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FilesOut:
    waiting: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class CommandsOpen:
    """``asked``: requests to others that have not ended. ``running`` and ``waiting``: requests of others here."""

    asked: int
    running: int
    waiting: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Channels:
    """``commands``: None while this device has had none."""

    conversations: Conversations
    mirror: MirrorIn
    files: FilesOut
    commands: CommandsOpen | None


def channels(
    device: Device,
    member: MemberStatus,
    rows: list[MemberRow],
    files: FilesStatus,
    commands: CommandsOpen | None,
    last_pull: int,
) -> Channels:
    """The channels now. ``last_pull``: when mirror entries came last, in milliseconds, 0 if unknown."""
    own = next((row for row in rows if row.entry.is_this), None)
    behind = own.behind if own is not None else None
    return Channels(
        conversations=Conversations(member.pending, member.stored, device.pending_seconds()),
        mirror=MirrorIn(
            behind, _furthest(rows) if behind else None, _since(last_pull) if behind and last_pull else None
        ),
        files=FilesOut(files.offered, _oldest_file(device) if files.offered else None),
        commands=commands,
    )


def _since(moment: int) -> float:
    return max(now_ms() - moment, 0) / 1000


def _furthest(rows: list[MemberRow]) -> str | None:
    told = [row for row in rows if not row.entry.is_this and row.entry.cursor is not None and not row.revoked]
    if not told:
        return None
    first = min(told, key=lambda row: (row.behind is None, row.behind or 0))
    return first.entry.details.name if first.entry.details is not None else None


def _oldest_file(device: Device) -> float | None:
    """How long the oldest change waits: since the file changed, by this machine's clock. Deletions have no time."""
    home = device.settings.home
    database, root = FileDatabase.open(home.files_database), home.root
    try:
        paths = [offer.path for offer in database.offers() if offer.content is not None][:_LOOKED_AT_MAX]
    finally:
        database.close()
    changed: list[float] = []
    for path in paths:
        try:
            changed.append(os.lstat(root / path).st_ctime)
        except (OSError, ValueError):
            continue  # gone, or replaced: the next scan of the files handles it
    return max(now_ms() / 1000 - min(changed), 0.0) if changed else None
