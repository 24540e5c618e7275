"""Report on forgets: what may still hold a forgotten text and until when, as far as this device knows. No network.

The relay and the devices are free of it after seven days. What Crystal cannot reach is named: devices that stay away, files of
the person, copies of databases.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

import msgspec

from crystal_mirror.entries.control_state import Place, floor_slot, newest_snapshot, published_floor
from crystal_mirror.membership.cursors import Cursor, seen_cursors
from crystal_mirror.membership.status import device_name
from crystal_mirror.operations import Capture, Forget, Replace, decode_operation
from crystal_mirror.retention.forgets import FORGOTTEN_MS, PendingForget, pending_forgets
from crystal_mirror.retention.gc import read_state
from crystal_mirror.streams.reoffers import META_HELD
from crystal_node.base.clock import now_ms
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.sync.leftovers import leftovers

META_FILES = "node.forget-files"
"""Journal value: files that held a text when it was forgotten here."""
FILES_KEPT_MS = 30 * 24 * 3600 * 1000
FILES_MAX = 1000
CONVERSATIONS_MS = 2 * 24 * 3600 * 1000
"""After this long a device's entry that the Core applied is gone from the relay."""


class RemnantPlace(StrEnum):
    """What may hold a text, by names for programs."""

    LOG = "relay-log"
    SNAPSHOTS = "snapshots"
    CONVERSATIONS = "conversations"
    DEVICE = "device"
    AWAY = "device-away"
    OWN_LOG = "own-log"
    WAITING = "forget-waits"
    OUTBOX = "own-outbox"
    ROWS = "own-rows"
    BACKUP = "database-copy"
    FILE = "file"
    HELD = "held-entries"


@dataclass(frozen=True, slots=True)
class Remnant:
    """A place that may hold a forgotten text. ``until``: when it is free of it, in milliseconds; None if never by itself or
    unknown."""

    where: RemnantPlace
    what: str
    until: int | None = None
    device: bytes = b""


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """``texts``: how many are forgotten in all. ``pending``: forgets with remnants, oldest first."""

    texts: int
    pending: tuple[PendingForget, ...]
    holders: tuple[Remnant, ...]


class _Found(msgspec.Struct, frozen=True, array_like=True):
    path: str
    at: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Found])


def forget_report(device: Device) -> ForgetReport:
    member = device.member
    pending = tuple(each for each in pending_forgets(member) if not each.assumed)
    holders: list[Remnant] = []
    if pending:
        holders += _on_the_relay(device, pending)
        holders += _on_devices(device, pending)
        holders += _in_backups(device, pending)
    holders += _here(device)
    texts = device.replica.database.value("SELECT count(*) FROM suppressed")
    return ForgetReport(int(texts or 0), pending, tuple(holders))


def note_files(device: Device, paths: list[str]) -> None:
    """Stores which files held a text when it was forgotten, for later reports."""
    now = now_ms()
    with device.journal.transaction() as transaction:
        kept = {each.path: each for each in _files(device) if now - each.at < FILES_KEPT_MS}
        kept |= {path: _Found(path, now) for path in paths}
        transaction.meta_set(META_FILES, _encoder.encode(list(kept.values())[-FILES_MAX:]) if kept else None)


def _hides(device: Device, text: str) -> bool:
    return device.replica.hides(sha256(text.encode()).digest())


def _on_the_relay(device: Device, pending: tuple[PendingForget, ...]) -> list[Remnant]:
    member = device.member
    floor, newest = published_floor(member.replica), newest_snapshot(member.replica)
    until = max(each.since for each in pending) + FORGOTTEN_MS
    last = pending[-1].place
    found: list[Remnant] = []
    if floor <= last:
        found.append(
            Remnant(
                RemnantPlace.LOG,
                f"the relay's log, kept from epoch {floor[0]}, slot {floor[1]:,} on: sealed",
                until,
            )
        )
    state = read_state(member)
    old = [kept for kept in state.snapshots if kept.announced.position[:2] <= last]
    if old or (not member.is_core and newest is not None and floor <= last):
        found.append(Remnant(RemnantPlace.SNAPSHOTS, "a snapshot that was made before: sealed", until))
    streams = member.replica.acks()
    left = [
        device_id
        for device_id, run, ack in streams
        if (seen := state.acked.get(f"{device_id.hex()}.{run.hex()}")) is None or seen.gone < ack
    ]
    if left and (member.is_core or now_ms() < pending[-1].since + CONVERSATIONS_MS):
        found.append(
            Remnant(
                RemnantPlace.CONVERSATIONS,
                "what devices sent lately, on the relay: sealed",
                pending[-1].since + CONVERSATIONS_MS,
            )
        )
    return found


def _on_devices(device: Device, pending: tuple[PendingForget, ...]) -> list[Remnant]:
    member = device.member
    until = max(each.since for each in pending) + FORGOTTEN_MS
    last, floor, floor_at = pending[-1].place, published_floor(member.replica), floor_slot(member.replica)
    cursors = {cursor.device: cursor for cursor in seen_cursors(member)}
    found: list[Remnant] = []
    for info in member.log.active():
        if info.device == member.device_id:
            continue
        name = device_name(member, info.device) or "a device"
        cursor = cursors.get(info.device)
        if cursor is None or _place(cursor) <= last:
            what = f"{name} has not taken the forget in, as far as is known here"
            found.append(Remnant(RemnantPlace.AWAY, what, None, info.device))
        elif floor <= last or floor_at is None or _place(cursor) <= floor_at:
            found.append(
                Remnant(
                    RemnantPlace.DEVICE, f"{name} keeps it in its copy of the log: sealed", until, info.device
                )
            )
    oldest = member.replica.oldest_kept()
    if oldest is not None and oldest <= last:
        found.append(Remnant(RemnantPlace.OWN_LOG, "this machine's copy of the log: sealed", until))
    return found


def _in_backups(device: Device, pending: tuple[PendingForget, ...]) -> list[Remnant]:
    """Backups in the configured folder, if its disk is here."""
    folder = device.settings.backup.folder
    if folder is None or not folder.is_dir():
        return []
    from crystal_node.safekeeping.backup.folder import backups

    vault, last = device.member.vault.hex(), pending[-1].place
    return [
        Remnant(RemnantPlace.BACKUP, f"{each.folder.name}, a backup in {folder} that was made before")
        for each in backups(folder)
        if each.manifest is not None
        and each.manifest.vault == vault
        and (each.manifest.epoch, each.manifest.sequence) <= last
    ]


def _here(device: Device) -> list[Remnant]:
    found: list[Remnant] = []
    forgets, waiting = _in_outbox(device)
    if forgets:
        found.append(
            Remnant(RemnantPlace.WAITING, "everything: a forget waits here for the Core (`crystal sync`)")
        )
    if waiting:
        found.append(
            Remnant(
                RemnantPlace.OUTBOX,
                f"{counted(waiting, 'change')} that wait here to be sent: gone once they are",
            )
        )
    rows = device.replica.database.value(
        "SELECT count(*) FROM chunks WHERE forget_hash IN (SELECT forget_hash FROM suppressed)"
    )
    if rows:
        found.append(
            Remnant(RemnantPlace.ROWS, f"{counted(int(rows), 'text')} that a pending operation brings back")
        )
    for leftover in leftovers(device.settings.home):
        what = f"{leftover.path.name}, a copy of the memory from before"
        found.append(Remnant(RemnantPlace.BACKUP, what, leftover.until))
    held = sum(
        1
        for (name,) in device.journal.connection.execute("SELECT name FROM meta")
        if name.startswith(META_HELD)
    )
    if held:
        found.append(
            Remnant(
                RemnantPlace.HELD,
                "entries of revoked devices that wait for a decision: `crystal devices held DEVICE`",
            )
        )
    now = now_ms()
    for each in _files(device):
        path = device.settings.home.root / each.path
        if now - each.at < FILES_KEPT_MS and path.exists():
            found.append(Remnant(RemnantPlace.FILE, each.path))
    return found


def _in_outbox(device: Device) -> tuple[int, int]:
    """How many forgets wait in the outbox, and how many operations with a forgotten text."""
    forgets = count = 0
    for name in device.journal.names():
        row = device.journal.row(name.incarnation, name.sequence)
        operation = decode_operation(row.operation) if row is not None else None
        if isinstance(operation, Capture) and any(_hides(device, piece.text) for piece in operation.pieces):
            count += 1
        forgets += isinstance(operation, Forget | Replace)
    return forgets, count


def _files(device: Device) -> list[_Found]:
    data = device.journal.meta_get(META_FILES)
    return _decoder.decode(data) if data else []


def _place(cursor: Cursor) -> Place:
    return (cursor.epoch, cursor.sequence)
