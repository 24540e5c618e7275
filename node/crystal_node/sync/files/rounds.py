"""Rounds of file sync on a real device, beside the memory's, and what they leave for ``crystal files status``.

One process of a home at a time syncs files, under a lock of its own: a large file on its way keeps nobody's memory waiting.
"""

from collections.abc import Container
from pathlib import Path

import msgspec

from crystal_mirror.files.round import files_round
from crystal_mirror.files.transfers import FilesReport, reput_parts
from crystal_node.base.clock import now_ms
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import read_config
from crystal_node.base.wording import counted, size
from crystal_node.device.device import Device
from crystal_node.device.runner import Runner
from crystal_node.sync.files.database import META_REPORT, FileDatabase, StoredReport, stored_report
from crystal_node.sync.files.disk import HomeDisk
from crystal_node.sync.files.marker import Marker, write_marker
from crystal_node.sync.files.parts import cut_seed

LOCK_WAIT_SECONDS = 60.0
LISTED_MAX = 1000
"""Paths of one kind that a report keeps."""

_META_REPUT = "reput"


def open_file_database(device: Device) -> FileDatabase:
    return FileDatabase.open(device.settings.home.files_database)


def open_disk(device: Device, book: FileDatabase) -> HomeDisk:
    home, member = device.settings.home, device.member
    marker = Marker(member.vault.hex(), member.device_id.hex())
    return HomeDisk(home.root, book, marker, rules_of(device), cut_seed(member.secret))


def rules_of(device: Device) -> TreeRules:
    """As they stand in ``config.json`` now: a command may have changed them while a watcher runs."""
    home = device.settings.home
    databases, secrets = own_places(home)
    return TreeRules(read_config(home.config_file).files_rules, databases, secrets)


def own_places(home: Home) -> tuple[frozenset[str], frozenset[str]]:
    """The folders of the home that hold databases, and its files that hold secrets, by whatever path they were named."""
    databases = {"memory"} | _inside(home.root, home.database.parent)
    secrets = _inside(home.root, home.passphrase_file) if home.passphrase_file is not None else set[str]()
    return frozenset(databases), frozenset(secrets)


class FileRounds:
    """Runs rounds for one device. The book is opened when the first one begins."""

    def __init__(self, device: Device, purpose: str) -> None:
        self._device = device
        self._purpose = purpose
        self._book: FileDatabase | None = None
        self._disk: HomeDisk | None = None

    async def run(self, runner: Runner, *, scan: bool = True, relay_lost: bool = False) -> FilesReport:
        """One round. ``relay_lost``: the relay forgot things; what it lacks of the files here is put back.

        Raises:
            HomeBusy: another process of this home was at it all that time.
            whatever the round raises, and what the disk does that concerns no single file.
        """
        lock = FileLock(
            self._device.settings.home.files_lock, purpose=self._purpose, wait_seconds=LOCK_WAIT_SECONDS
        )
        await lock.acquire_async()
        try:
            disk, book = self._opened()
            disk.tree = rules_of(self._device)
            if relay_lost:
                put_parts_back(book)
            member = self._device.member
            report = await runner.run(files_round(member, disk, book, now_ms=now_ms(), scan=scan))
            if book.meta_get(_META_REPUT) is not None and not report.halted:
                report.parts_put += await runner.run(reput_parts(member, disk, book))
                book.meta_set(_META_REPUT, None)
            _keep(book, report, scanned=scan)
            return report
        finally:
            lock.release()

    def close(self) -> None:
        if self._book is not None:
            self._book.close()
            self._book = self._disk = None

    def _opened(self) -> tuple[HomeDisk, FileDatabase]:
        if self._book is None or self._disk is None:
            self._book = open_file_database(self._device)
            self._disk = open_disk(self._device, self._book)
        return self._disk, self._book


def put_parts_back(book: FileDatabase) -> None:
    """Has the next round put back what the relay lacks of the files that are here."""
    book.meta_set(_META_REPUT, b"1")


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


def _keep(book: FileDatabase, report: FilesReport, *, scanned: bool) -> None:
    refused = dict(report.refused)
    if not scanned:
        refused = dict(stored_report(book).refused) | refused
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
    book.meta_set(META_REPORT, msgspec.msgpack.encode(kept))


def _inside(root: Path, path: Path) -> set[str]:
    """The path within the home as it is written, and where it leads to through links; "" is the home itself."""
    from crystal_mirror.file_paths import folded

    found: set[str] = set()
    for base, each in ((root, path), (root.resolve(), path.resolve())):
        if each.is_relative_to(base):
            found.add("/".join(folded(part) for part in each.relative_to(base).parts))
    return found


def adopt_files(device: Device, there: Container[str], *, relay_lost: bool = False) -> None:
    """Makes the files that came back this device's, and gives up what is known of files that did not. ``there``: the paths of
    those that did; ``relay_lost``: the relay has no file of the vault, and gets those that are here.

    What did not come back was in nobody's way to be deleted: it comes again from the vault, and is not taken for deleted here.
    """
    home, member = device.settings.home, device.member
    book = FileDatabase.open(home.files_database)
    try:
        book.forget_seen([seen.local.path for seen in book.seen()])
        for agreed in [each for each in book.agreed() if not each.aside and each.path not in there]:
            book.drop_agreed(agreed.path)
        if relay_lost:
            put_parts_back(book)
    finally:
        book.close()
    write_marker(home.root, Marker(member.vault.hex(), member.device_id.hex()))
