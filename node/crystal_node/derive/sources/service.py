"""Adding, syncing and removing the sources of an open device, and their status.

A source is a row of the vault that belongs to one device; only that device knows where its folder is. If the vault has it as
another device's, this device drops it at the next sync. If the vault no longer has it, the rows may just be rebuilt from a
snapshot or the log: then nothing is done, and its folder stays known for a while.
"""

import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from crystal_core.documents import Source, count_pieces, documents, sources
from crystal_mirror.membership.status import device_name
from crystal_mirror.operations import PATTERNS_MAX, SOURCE_NAME_CHARS_MAX, DropSource, PutSource
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.snapshots.restore import restore_pending
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, NoSuchEntry, UsageError
from crystal_node.base.file_rules import MARKER_NAME
from crystal_node.base.given_paths import given_path
from crystal_node.base.ignore_patterns import pattern_fault
from crystal_node.base.locking import FileLock
from crystal_node.base.project import project_name
from crystal_node.base.wording import iso
from crystal_node.derive.sources.database import KeptSource, LastScan, SourceDatabase
from crystal_node.derive.sources.filetypes import Skipped, skipped_folder
from crystal_node.derive.sources.results import (
    SourceAdded,
    SourceLetGo,
    SourceRemoved,
    SourcesStatus,
    SourcesSynced,
    SourceStatus,
    SourceSynced,
)
from crystal_node.derive.sources.scan import SourceScan
from crystal_node.derive.sources.syncer import Progress, SourceSyncResult, look_at_source, sync_source
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy
from crystal_node.sync.files.scan import shown

SOURCES_MAX = 200
"""Of one device."""
LOCK_WAIT_SECONDS = 60.0
KEPT_MILLISECONDS = 30 * 86_400_000
"""How long after its last sync the folder of a source that the vault no longer has stays known."""


def add_source(
    device: Device, path: Path, *, name: str = "", include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> SourceAdded:
    """Makes a folder or a file a source of this device, or changes its patterns. Opens no file; tells what will be left out.

    A source of a revoked device is taken over; files that did not change are not sent again.

    Raises:
        Usage: there is no such folder or file, the name is taken, or the name or a pattern is invalid.
    """
    root = root_of(device, path)
    name = _name_of(name or root.name)
    _check_patterns((*include, *exclude))
    patterns = tuple(include), tuple(exclude)
    _check_public(device)
    scan = SourceScan(root, *patterns, kept_out=device.settings.home.root)
    try:
        files = sum(1 for _ in scan.files())
    except OSError as error:
        raise UsageError(f"{root} cannot be read: {error.strerror}") from error
    with _database(device) as database:
        kept, there = database.source(name), _in_vault(device, name)
        mine = there is not None and there.device == device.member.device_id
        if there is not None and not mine and device.member.log.is_active(there.device):
            raise UsageError(
                f"{name} is a source of {_device(device, there.device)} already",
                hint="Take another name, or `crystal sources remove` that one first.",
            )
        if kept is not None and mine and kept.root != root:
            raise UsageError(
                f"{name} is {kept.root} already",
                hint="Take another name, or `crystal sources remove` that one first.",
            )
        own = sum(each.device == device.member.device_id for each in _all(device))
        if kept is None and own >= SOURCES_MAX:
            raise UsageError(f"this device has {SOURCES_MAX} sources already", hint="Remove one first.")
        if there is None or not mine or (there.include, there.exclude) != patterns:
            shown = project_name(str(root), device.settings.person_home)
            device.accept([PutSource(name, shown, *patterns, now_ms())])
        if kept is None:
            kept = KeptSource(name, root, *patterns, 0, 0, now_ms(), LastScan())
        # The database comes last: a source that only it has would be dropped as removed elsewhere.
        database.put(replace(kept, root=root, include=patterns[0], exclude=patterns[1]))
    return SourceAdded(
        name=name,
        path=str(root),
        include=patterns[0],
        exclude=patterns[1],
        changed=mine,
        files=files,
        skipped={why.value: count for why, count in sorted(scan.skips.counts.items())},
        secrets=tuple(scan.skips.secrets),
    )


async def sync_sources(
    device: Device,
    name: str | None = None,
    *,
    confirmed: bool = False,
    progress: Progress | None = None,
    seconds: float | None = None,
    wait_seconds: float = LOCK_WAIT_SECONDS,
) -> SourcesSynced:
    """Brings the memory up to what is in one source of this device, or in all.

    Raises:
        NoSuchEntry: no source has that name. Usage: it is another device's.
        HomeBusy: another process syncs sources, or the memory is being rebuilt. PrivateNow: private mode is on.
    """
    _check_public(device)
    if rebuild_pending(device.member) or restore_pending(device.member):
        raise HomeBusy(
            "the memory is being rebuilt: what is in it is not known yet",
            hint="`crystal sync` goes on with it; sync the sources again after that.",
        )
    async with _locked(device, wait_seconds):
        with _database(device) as database:
            mine, let_go = _let_go(device, database)
            wanted = [
                source for source in database.sources() if source.name in mine and name in (None, source.name)
            ]
            if name is not None and not wanted:
                raise _unknown(device, name)
            done: list[SourceSynced] = []
            looks = [await look_at_source(device, database, source) for source in wanted]
            whole, before = sum(look.to_read for look in looks), 0
            for look in looks:
                told = None if progress is None else _over_all(progress, before, whole)
                synced = await sync_source(
                    device, database, look, confirmed=confirmed, progress=told, seconds=seconds
                )
                done.append(_told(synced))
                before += look.to_read
    elsewhere = [each.name for each in _all(device) if each.device != device.member.device_id]
    return SourcesSynced(
        sources=tuple(done), elsewhere=tuple(elsewhere) if name is None else (), let_go=tuple(let_go)
    )


def _over_all(progress: Progress, before: int, whole: int) -> Progress:
    """Progress of one source as a part of all."""
    return lambda name, done, _total: progress(name, before + done, whole)


def sources_status(device: Device) -> SourcesStatus:
    """All sources of the vault, with what this device knows of its own."""
    path = device.settings.home.sources_database
    kept: dict[str, tuple[KeptSource, int, int]] = {}
    if path.exists():
        with SourceDatabase.open(path) as database:
            for source in database.sources():
                totals = database.totals(source.name)
                kept[source.name] = source, totals.bytes, totals.redacted
    return SourcesStatus(sources=tuple(_status(device, each, kept.get(each.name)) for each in _all(device)))


def remove_source(device: Device, name: str) -> SourceRemoved:
    """Removes a source of any device with all its documents, on every device. Files stay as they are.

    Raises NoSuchEntry if there is none of that name.
    """
    there = _in_vault(device, name)
    path = device.settings.home.sources_database
    if there is None:
        raise NoSuchEntry(f"there is no source called {name}", hint="`crystal sources status` lists them.")
    count = len(documents(device.replica.database, name))
    device.accept([DropSource(name)])
    here = there.device == device.member.device_id
    if path.exists():
        with SourceDatabase.open(path) as database:
            database.remove(name)
    return SourceRemoved(name=name, device=_device(device, there.device), here=here, documents=count)


def root_of(device: Device, path: Path) -> Path:
    """The folder or file that a path leads to, links resolved.

    Raises Usage if there is none, or if it is the memory home or a folder of keys.
    """
    try:
        root = given_path(path).resolve(strict=True)
        info = root.stat()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} is not there", hint="Name a folder, or a file.") from error
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is no folder and no file")
    if shown(str(root)) != str(root):
        raise UsageError(f"the name of {shown(str(root))} is no text", hint="Rename the folder.")
    home = device.settings.home.root.resolve()
    if root == home or root.is_relative_to(home):
        raise UsageError(
            "the memory home cannot be a source of itself", hint="Its files are synced as they are."
        )
    if root == Path(root.anchor):
        raise UsageError(
            f"{root} is this machine's whole disk, and no folder of yours",
            hint="Name the folders that you mean.",
        )
    if any(skipped_folder(part) is Skipped.SECRET for part in root.parts):
        raise UsageError(f"{shown(str(root))} holds keys and passwords: it is never read")
    if any((folder / MARKER_NAME).exists() for folder in (root, *root.parents)):
        raise UsageError(f"{shown(str(root))} is in a home of Crystal, with its keys: it is never read")
    return root


def source_owner(device: Device, name: str) -> str | None:
    """The name of the other device that a source belongs to; None if it is this device's or there is none."""
    there = _in_vault(device, name)
    if there is None or there.device == device.member.device_id:
        return None
    return _device(device, there.device)


def _let_go(device: Device, database: SourceDatabase) -> tuple[set[str], list[SourceLetGo]]:
    """Drops sources that another device took over, or that are gone for long. Returns the names of this device's sources, and
    those taken over: of two devices that take a name at the same time, the later in the log has it."""
    owners = {each.name: each.device for each in _all(device)}
    mine = {name for name, owner in owners.items() if owner == device.member.device_id}
    let_go: list[SourceLetGo] = []
    for source in database.sources():
        gone = now_ms() - max(source.last.at, source.added) > KEPT_MILLISECONDS
        if source.name not in mine and (source.name in owners or gone):
            database.remove(source.name)
            if source.name in owners:
                owner = _device(device, owners[source.name])
                let_go.append(SourceLetGo(name=source.name, path=str(source.root), device=owner))
    return mine, let_go


def _unknown(device: Device, name: str) -> Exception:
    owner = source_owner(device, name)
    if owner is not None:
        return UsageError(
            f"{name} is a source of {owner}: its files are there", hint=f"Run the command on {owner}."
        )
    if _in_vault(device, name) is not None:
        return UsageError(
            f"this device no longer knows where {name} is",
            hint=f"Say it again: crystal sources add FOLDER --name {name}",
        )
    return NoSuchEntry(f"there is no source called {name}", hint="`crystal sources status` lists them.")


def _status(device: Device, each: Source, kept: tuple[KeptSource, int, int] | None) -> SourceStatus:
    here = each.device == device.member.device_id
    found = documents(device.replica.database, each.name)
    status = SourceStatus(
        name=each.name,
        device=_device(device, each.device),
        here=here,
        folder=each.root,
        include=each.include,
        exclude=each.exclude,
        documents=len(found),
        pieces=count_pieces(device.replica.database, each.name),
        pending=sum(document.pending for document in found),
    )
    if not here:
        return status
    if kept is None:
        return _with(status, problem="this device no longer knows where its folder is")
    source, size, redacted = kept
    last = source.last
    return _with(
        status,
        path=str(source.root),
        last_sync=iso(last.at),
        last_change=iso(last.worked),
        complete=last.complete,
        bytes=size,
        redacted=redacted,
        waiting=last.waiting,
        waiting_paths=last.waiting_named,
        skipped=last.skipped,
        skipped_paths=last.named,
        problem=last.problem,
    )


def _with(status: SourceStatus, **values: object) -> SourceStatus:
    import msgspec

    return msgspec.structs.replace(status, **values)


def _told(synced: SourceSyncResult) -> SourceSynced:
    return SourceSynced(
        name=synced.name,
        files=synced.files,
        new=synced.new,
        changed=synced.changed,
        removed=synced.removed,
        pieces=synced.pieces,
        redacted=synced.redacted,
        waiting=synced.waiting,
        waiting_paths=tuple(synced.waiting_named),
        skipped=synced.skipped,
        skipped_paths=synced.named,
        complete=synced.complete,
        problem=synced.problem,
    )


def _name_of(name: str) -> str:
    name = name.strip()
    if not name or len(name) > SOURCE_NAME_CHARS_MAX or not name.isprintable() or "/" in name:
        raise UsageError(
            f"a source's name has at most {SOURCE_NAME_CHARS_MAX} characters, and no slash",
            hint="Give it one: --name notes",
        )
    return name


def _check_patterns(patterns: Sequence[str]) -> None:
    if len(patterns) > PATTERNS_MAX:
        raise UsageError(f"a source has at most {PATTERNS_MAX} patterns")
    for pattern in patterns:
        fault = pattern_fault(pattern)
        if fault is not None:
            raise UsageError(f"{pattern[:80]!r} is no pattern: {fault}")


def _check_public(device: Device) -> None:
    if read_privacy(device.journal).on:
        raise PrivateNow("private mode is on: nothing is recorded")


def _all(device: Device) -> list[Source]:
    return sources(device.replica.database)


def _in_vault(device: Device, name: str) -> Source | None:
    return next((each for each in _all(device) if each.name == name), None)


def _device(device: Device, identity: bytes) -> str:
    return device_name(device.member, identity) or f"device {identity.hex()[:8]}"


def _database(device: Device) -> SourceDatabase:
    return SourceDatabase.open(device.settings.home.sources_database)


@asynccontextmanager
async def _locked(device: Device, wait_seconds: float) -> AsyncGenerator[None]:
    lock = FileLock(device.settings.home.sources_lock, purpose="crystal sources", wait_seconds=wait_seconds)
    await lock.acquire_async()
    try:
        yield
    finally:
        lock.release()
