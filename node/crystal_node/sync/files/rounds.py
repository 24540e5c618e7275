"""Rounds of file sync on a real device, and what they leave for ``crystal files status``.

One process of a home at a time syncs files, under a lock of its own: a large file on its way does not delay the memory.
"""

from collections.abc import Callable, Container

import msgspec

from crystal_mirror.files.round import files_round
from crystal_mirror.files.shared import FilesReport
from crystal_mirror.files.transfers import reput_parts
from crystal_node.base.clock import now_ms
from crystal_node.base.locking import FileLock
from crystal_node.base.wording import counted, size
from crystal_node.device.device import Device
from crystal_node.device.runner import Runner
from crystal_node.sync.files.database import META_REPORT, FileDatabase, StoredReport, stored_report
from crystal_node.sync.files.disk import HomeDisk
from crystal_node.sync.files.marker import Marker, write_marker
from crystal_node.sync.files.rules import rules_of

LOCK_WAIT_SECONDS = 60.0
LISTED_MAX = 1000
"""Paths of one kind that a report keeps."""

REPORTED_MS = 600_000
"""An unchanged report is written again only after so many milliseconds, so that a home at rest wakes no disk."""
_META_REPUT = "reput"


def open_file_database(device: Device) -> FileDatabase:
    return FileDatabase.open(device.settings.home.files_database)


def open_disk(device: Device, database: FileDatabase) -> HomeDisk:
    home, member = device.settings.home, device.member
    marker = Marker(member.vault.hex(), member.device_id.hex())
    return HomeDisk(home.root, database, marker, rules_of(device))


class FileRounds:
    """Runs rounds for one device. The database is opened by the first one."""

    def __init__(self, device: Device, purpose: str) -> None:
        self._device = device
        self._purpose = purpose
        self._database: FileDatabase | None = None
        self._disk: HomeDisk | None = None

    async def run(
        self,
        runner: Runner,
        *,
        scan: bool = True,
        relay_lost: bool = False,
        offered: Callable[[], None] = lambda: None,
    ) -> FilesReport:
        """One round. ``relay_lost``: the relay forgot things; what it lacks of the files here is put back. ``offered``: see
        ``files_round``.

        Raises:
            HomeBusy: another process of this home was syncing files all that time.
            OSError, FileTrouble: the disk fails for more than a single file.
        """
        lock = FileLock(
            self._device.settings.home.files_lock, purpose=self._purpose, wait_seconds=LOCK_WAIT_SECONDS
        )
        await lock.acquire_async()
        try:
            disk, database = self._opened()
            disk.tree = rules_of(self._device)
            if relay_lost:
                put_parts_back(database)
            member = self._device.member
            report = await runner.run(
                files_round(member, disk, database, now_ms=now_ms(), scan=scan, offered=offered)
            )
            if database.meta_get(_META_REPUT) is not None and not report.halted:
                report.parts_put += await runner.run(reput_parts(member, disk, database))
                database.meta_set(_META_REPUT, None)
            keep_report(database, report, scanned=scan)
            return report
        finally:
            lock.release()

    @property
    def scan_seconds(self) -> float:
        """How long the last scan took."""
        return self._disk.scan_seconds if self._disk is not None else 0.0

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = self._disk = None

    def _opened(self) -> tuple[HomeDisk, FileDatabase]:
        if self._database is None or self._disk is None:
            self._database = open_file_database(self._device)
            self._disk = open_disk(self._device, self._database)
        return self._disk, self._database


def put_parts_back(database: FileDatabase) -> None:
    """Has the next round upload again what the relay lacks of the files that are here."""
    database.meta_set(_META_REPUT, b"1")


def words(report: FilesReport) -> str:
    """One line for people, "" when nothing moved."""
    parts = [
        text
        for count, text in (
            (report.put, f"offered {counted(report.put, 'file')} ({size(report.bytes_put)} were new)"),
            (report.fetched, f"fetched {counted(report.fetched, 'file')} ({size(report.bytes_fetched)})"),
            (report.removed, f"moved {counted(report.removed, 'file')} to the trash"),
            (report.dropped, f"passed {counted(report.dropped, 'deletion')} on"),
            (
                len(report.conflicts),
                f"kept {counted(len(report.conflicts), 'conflict copy', 'conflict copies')}",
            ),
        )
        if count
    ]
    return ", ".join(parts)


def keep_report(database: FileDatabase, report: FilesReport, *, scanned: bool) -> None:
    """Stores a round's report, unless the stored one says the same and is newer than REPORTED_MS."""
    refused = dict(report.refused)
    if not scanned:
        refused = dict(stored_report(database).refused) | refused
    shown = dict(sorted(refused.items())[:LISTED_MAX])
    kept = StoredReport(
        now_ms(),
        report.halted,
        report.waiting,
        tuple(report.busy[:LISTED_MAX]),
        dict(sorted(report.lacking.items())[:LISTED_MAX]),
        shown,
        len(refused),
    )
    before = stored_report(database)
    if msgspec.structs.replace(before, at=kept.at) == kept and 0 <= kept.at - before.at < REPORTED_MS:
        return
    database.meta_set(META_REPORT, msgspec.msgpack.encode(kept))


def adopt_files(device: Device, there: Container[str], *, relay_lost: bool = False) -> None:
    """Makes restored files this device's, and forgets what is known of files that were not restored.

    ``there``: the paths of the restored files. ``relay_lost``: the relay has no file of the vault, and gets those here.
    A file that was not restored was not deleted by anybody: it is fetched from the vault again.
    """
    home, member = device.settings.home, device.member
    database = FileDatabase.open(home.files_database)
    try:
        database.forget_seen([seen.local.path for seen in database.seen()])
        for agreed in [each for each in database.agreed() if not each.aside and each.path not in there]:
            database.drop_agreed(agreed.path)
        if relay_lost:
            put_parts_back(database)
    finally:
        database.close()
    write_marker(home.root, Marker(member.vault.hex(), member.device_id.hex()))
