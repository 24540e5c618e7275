"""Inspection of the relay: whether it still has what this device relies on, to the last byte. Reads much, changes nothing.

    device log    every slot that was verified here, compared with what the relay shows
    the log       every kept slot of the mirror, compared likewise
    the snapshot  every part of the newest one, fetched, opened and counted: together they must give the state that it states
    the files     every part of the tree, fetched and opened

``repair/repairs.py`` repairs what this finds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.damage import compare_log, damage_words
from crystal_mirror.devicelog.sync import log_is_whole
from crystal_mirror.entries.control_state import Place, newest_snapshot
from crystal_mirror.errors import LogForked
from crystal_mirror.membership.member import Member
from crystal_mirror.repair.recovery import first_damage
from crystal_mirror.requests import Flow, GetMany, Progress
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_blob, lacking
from crystal_mirror.snapshots.creation import read_manifest
from crystal_mirror.types import EntryState, KeptEntry

PAGE = 64
LOG, SNAPSHOT, FILES = "comparing the log", "reading the snapshot", "reading the files"


class Fault(StrEnum):
    """What can be wrong. The names are for programs."""

    OWN_LOG = "own-log-damaged"
    DEVICE_LOG_LACKS = "device-log-lacks"
    DEVICE_LOG_DIFFERS = "device-log-differs"
    DEVICE_LOG_FORKED = "device-log-forked"
    LOG_LACKS = "relay-log-lacks"
    LOG_DIFFERS = "relay-log-differs"
    SNAPSHOT = "snapshot"
    FILE_LACKS = "file-part-lacks"
    FILE_DIFFERS = "file-part-differs"


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault; ``what`` is for a person. ``path``: of the file that it concerns."""

    fault: Fault
    what: str
    path: str = ""


@dataclass
class Inspection:
    """What was inspected, and what is wrong. ``damage``: where this device's own copy of the log is damaged; ``spoiled``: the
    slots of the mirror that the relay lacks or shows with other bytes."""

    slots: int = 0
    snapshot: Place | None = None
    snapshot_parts: int = 0
    file_parts: int = 0
    bytes: int = 0
    damage: Place | None = None
    spoiled: list[Place] = field(default_factory=list[Place])
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, fault: Fault, what: str, path: str = "") -> None:
        self.problems.append(Problem(fault, what, path))


def inspect(member: Member, *, fetch: bool = True) -> Flow[Inspection]:
    """Inspects everything. Without ``fetch``, checks of blobs only whether the relay has them.

    Raises:
        StoreFailure: the store could not answer.
    """
    found = Inspection()
    damage = first_damage(member.log, member.replica)
    if damage is not None:
        found.damage = damage[:2]
        found.add(
            Fault.OWN_LOG, f"this machine's copy of the log at epoch {damage.epoch}, slot {damage.sequence}"
        )
    yield from _compare_device_log(member, found)
    yield from _compare_log(member, found)
    yield from _read_snapshot(member, found, fetch=fetch)
    yield from _read_files(member, found, fetch=fetch)
    return found


def _compare_device_log(member: Member, found: Inspection) -> Flow[None]:
    if not (yield from log_is_whole(member.log, member.keys)):
        found.add(Fault.DEVICE_LOG_LACKS, "the relay does not list all of the device log")
    try:
        damaged = yield from compare_log(member.log, member.journal, member.keys)
    except LogForked as error:
        found.add(Fault.DEVICE_LOG_FORKED, str(error))
        return
    if damaged:
        found.add(Fault.DEVICE_LOG_DIFFERS, damage_words(damaged))


def _compare_log(member: Member, found: Inspection) -> Flow[None]:
    lacks: list[Place] = []
    differs: list[Place] = []
    total = member.replica.kept_bytes(0, 0)
    done = 0
    for page in _kept_pages(member):
        there = yield GetMany(tuple(member.keys.mirror(kept.epoch, kept.sequence) for kept in page))
        for kept, data in zip(page, there, strict=True):
            place = (kept.epoch, kept.sequence)
            if data is None and kept.state is EntryState.SENT:
                lacks.append(place)
            elif data is not None and data != kept.data and kept.state is not EntryState.UNSENT:
                differs.append(place)
            done += len(kept.data)
        found.slots += len(page)
        yield Progress(LOG, done, max(total, done))
    found.spoiled = [*lacks, *differs]
    for fault, places in ((Fault.LOG_LACKS, lacks), (Fault.LOG_DIFFERS, differs)):
        if places:
            epoch, sequence = places[0]
            found.add(fault, f"{len(places)} slots of the log, from epoch {epoch}, slot {sequence} on")


def _read_snapshot(member: Member, found: Inspection, *, fetch: bool) -> Flow[None]:
    newest = newest_snapshot(member.replica)
    if newest is None:
        return
    found.snapshot = newest.position[:2]
    try:
        manifest = yield from read_manifest(member, newest)
        found.snapshot_parts = len(manifest.parts)
        if not fetch:
            missing = yield from lacking(member, manifest.parts)
            if missing:
                found.add(Fault.SNAPSHOT, f"{len(missing)} parts of the newest snapshot are not there")
            return
        sums = member.replica.part_sums()
        done = 0
        for part in manifest.parts:
            sums.add((yield from get_blob(member, part)))
            done += part.length
            found.bytes += part.length
            yield Progress(SNAPSHOT, done, manifest.length)
    except CryptoError as error:
        found.add(Fault.SNAPSHOT, f"the newest snapshot: {error}")
        return
    except BlobDamaged as error:
        found.add(Fault.SNAPSHOT, f"the newest snapshot: {error}")
        return
    if sums.digest().to_bytes() != newest.digest:
        found.add(Fault.SNAPSHOT, "the newest snapshot does not hold the state that it states")


def _read_files(member: Member, found: Inspection, *, fetch: bool) -> Flow[None]:
    seen: dict[BlobRef, str] = {}
    total = 0
    for row in member.replica.files():
        for part in () if row.gone else row.parts:
            ref = BlobRef.of(part)
            if ref not in seen:
                seen[ref] = row.path
                total += ref.length
    refs = list(seen)
    found.file_parts = len(refs)
    missing = set((yield from lacking(member, refs)))
    done = 0
    for ref in refs:
        if ref in missing:
            found.add(Fault.FILE_LACKS, f"a part of {seen[ref]}", seen[ref])
        elif fetch:
            try:
                yield from get_blob(member, ref)
            except (BlobDamaged, CryptoError) as error:
                found.add(Fault.FILE_DIFFERS, f"a part of {seen[ref]}: {error}", seen[ref])
            found.bytes += ref.length
        done += ref.length
        if fetch:
            yield Progress(FILES, done, total)


def _kept_pages(member: Member) -> Iterator[list[KeptEntry]]:
    first = member.replica.oldest_kept()
    if first is None:
        return
    for epoch in range(first[0], member.replica.position().epoch + 1):
        sequence = 0
        while page := member.replica.entries(epoch, sequence, PAGE):
            yield page
            sequence = page[-1].sequence + 1
