"""Copying all sessions of this device: as they grow, when they are quiet, and after something was forgotten.

One process of a home at a time does it, under ``sessions.lock``. Files are read and written in a thread; what the memory says
of forgotten texts is asked in the event loop, which its database belongs to.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from crystal_node.base.backoff import Backoff
from crystal_node.base.changes import ChangeTimes, changes
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe, passes
from crystal_node.base.events import Report, WatchEvent
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.capture.adapter import Adapter
from crystal_node.capture.database_file import DatabaseStamp, stamp_of
from crystal_node.capture.line_adapter import QUIET_MS, LineAdapter
from crystal_node.capture.openclaw_database import STORE_NAME, last_places, session_path, store_of
from crystal_node.capture.tools import all_adapters
from crystal_node.derive.sessions.compressed import (
    CompressedTranscripts,
    NotUnpacked,
    compressed_in,
    is_compressed,
    plain,
)
from crystal_node.derive.sessions.copies import CopyDamaged, CopyIncomplete, SessionCopies
from crystal_node.derive.sessions.database import SessionDatabase
from crystal_node.derive.sessions.facts import UncommittedFiles
from crystal_node.derive.sessions.forgetting import Candidates, forget_in, texts_in
from crystal_node.derive.sessions.heads import HeadCache, arrivals, head_cache
from crystal_node.derive.sessions.layout import TOOLS, CopyPlace
from crystal_node.derive.sessions.retention import Removal, remove, to_remove
from crystal_node.derive.sessions.tools import session_of, transcript_beside
from crystal_node.derive.sessions.writer import SessionWriter
from crystal_node.device.device import Device
from crystal_node.device.privacy import read_privacy

FOREIGN_MS = 15 * 60 * 1000
"""How long the Core waits for a device to take what was forgotten out of its own copies."""
FAILED_MS = 10 * 60 * 1000
"""How soon a copy that could not be read is tried again, if its head does not change."""
_LOCK_SECONDS = 30.0
_ANSWER_SECONDS = 120.0
STOP_SECONDS_MAX = 4.0
"""How long a thread that was told to stop is waited for."""
_SUPPRESSED = "SELECT sum, count FROM digests WHERE name = 'suppressed'"
_FORGETS_BYTES = 6
_META_FORGOTTEN = "forgotten"
_META_FORGOTTEN_AT = "forgotten-at"

_log = logging.getLogger("crystal_node.derive.sessions")
T = TypeVar("T")
Unread = OSError | NotUnpacked | CopyDamaged
"""Why a transcript was not copied: it cannot be read, or the copy that it grew from cannot."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A session's transcript on this device. Without ``session`` it is a database of many."""

    tool: str
    session: str
    path: Path


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many copies were rewritten without forgotten texts, and which could not be read, in words. ``behind``: how many had
    not been looked through."""

    changed: int = 0
    problems: list[str] = field(default_factory=list[str])
    behind: int = 0


class SessionService:
    """The copies of one device. Used from one event loop."""

    def __init__(self, device: Device, latest: Callable[[], Settings]) -> None:
        self._device = device
        self._latest = latest
        self._root = device.settings.home.root
        self._id = device.member.device_id.hex()
        self._copies = SessionCopies(self._root)
        self._database: SessionDatabase | None = None
        self._adapters: tuple[Settings, dict[str, Adapter]] | None = None
        self._stopped = threading.Event()
        self._uncommitted = UncommittedFiles()
        self._left = False
        self._unpacked: dict[Path, tuple[int, int]] = {}
        self._read_stores: dict[Path, DatabaseStamp] = {}
        self._copied: dict[Path, bytes] = {}

    def close(self) -> None:
        """Closes the database, unless a thread still uses it that did not stop in time."""
        if self._database is not None and not self._left:
            self._database.close()
            self._database = None

    @property
    def on(self) -> bool:
        settings = self._latest()
        return settings.sessions.on and settings.capture.on

    def adapters(self) -> dict[str, Adapter]:
        """The adapters of the tools whose sessions are copied now, by name."""
        settings = self._latest()
        # Each event of a file asks, and making them takes milliseconds.
        if self._adapters is None or self._adapters[0] != settings:
            made: dict[str, Adapter] = {
                one.name: one
                for one in all_adapters(settings, settings.person_home)
                if one.name in TOOLS
                and one.name not in settings.capture.without
                and isinstance(one, LineAdapter)
            }
            self._adapters = settings, made
        return self._adapters[1]

    def transcripts(self, paths: Iterable[str] | None) -> list[Transcript]:
        """The transcripts among these files, and those that they lie beside; all, those first that changed last, for None."""
        adapters = self.adapters()
        if paths is None:
            found = [
                Transcript(name, session, each.path)
                for name, one in adapters.items()
                for each in one.discover()
                if each.problem is None and (session := _session_or_store(name, one, each.path)) is not None
            ]
            found += [
                Transcript(name, session, path)
                for name, one in adapters.items()
                if name == "codex"
                for path in compressed_in(one.folders)
                if (session := session_of(name, one.root, path)) is not None
            ]
            return sorted(found, key=lambda each: -_changed(each.path))
        chosen: dict[Path, Transcript] = {}
        for given in map(Path, paths):
            for name, one in adapters.items():
                path = one.transcript(given) if one.concerns(str(given)) else given
                session = _session_or_store(name, one, path)
                if session is None and (beside := transcript_beside(name, one.root, path)) is not None:
                    path, session = beside, session_of(name, one.root, beside)
                if session is not None:
                    chosen[path] = Transcript(name, session, path)
        return list(chosen.values())

    async def copy(self, transcripts: Iterable[Transcript]) -> tuple[int, list[tuple[Path, Unread]]]:
        """Copies what is new in these. Returns by how many bytes copies grew, and what could not be read.

        Raises:
            HomeBusy: another process copies. LocalStorage, OSError without a transcript's path: the home cannot be written.
        """
        grown, problems = 0, list[tuple[Path, Unread]]()
        writers = self._writers()
        for each in await self._in_thread(partial(self._changed, list(transcripts), writers, problems)):
            writer = writers[each.tool]
            async with self._locked():
                privacy = read_privacy(self._device.journal)
                quiet = (now_ms() - QUIET_MS) * 1_000_000
                hides = self._hides()
                try:
                    copied = partial(
                        writer.copy, session=each.session, privacy=privacy, hides=hides, quiet_ns=quiet
                    )
                    if is_compressed(each.path):
                        if privacy.on:
                            continue
                        grown += await self._in_thread(partial(self._copy_compressed, each, copied))
                    else:
                        grown += await self._in_thread(partial(copied, each.path))
                except (OSError, NotUnpacked, CopyDamaged) as error:
                    if isinstance(error, OSError) and not self._of_transcript(each, error):
                        raise
                    problems.append((each.path, error))
        return grown, problems

    def _of_transcript(self, each: Transcript, error: OSError) -> bool:
        """Whether it is the transcript that cannot be read, rather than the home that cannot be written."""
        if store_of(each.path) is not None and error.filename == str(store_of(each.path)):
            return True
        if not isinstance(error, FileNotFoundError | PermissionError):
            return False
        return error.filename is None or not Path(str(error.filename)).is_relative_to(self._root)

    def _copy_compressed(self, each: Transcript, copied: Callable[..., int]) -> int:
        found = each.path.lstat()
        # Of an excluded project nothing is copied, and no cursor says so: it is unpacked once in the life of this process.
        self._unpacked[each.path] = (found.st_size, found.st_mtime_ns)
        compressed = CompressedTranscripts(self._device.settings.home.state / "unpacked", self._opened())
        former = self.adapters()[each.tool].former(plain(each.path))
        return compressed.copy(each.path, former, partial(copied, native=plain(each.path)))

    def _is_done(self, path: Path) -> bool:
        """Whether a compressed transcript need not be unpacked: it was, as it is now, or Codex is about to remove it."""
        if not is_compressed(path):
            return False
        found = path.lstat()
        return self._unpacked.get(path) == (found.st_size, found.st_mtime_ns) or plain(path).exists()

    def _changed(
        self,
        transcripts: list[Transcript],
        writers: dict[str, SessionWriter],
        problems: "list[tuple[Path, Unread]]",
    ) -> list[Transcript]:
        """Those in which something may be new. A look at all of them, once a minute, reads none that did not change."""
        quiet, found = (now_ms() - QUIET_MS) * 1_000_000, list[Transcript]()
        for each in transcripts:
            writer = writers.get(each.tool)
            if writer is not None and not each.session:
                found += self._changed_in_store(each, problems)
                continue
            if writer is None or not each.path.is_file() or each.path.is_symlink():
                continue
            try:
                same = self._is_done(each.path) or writer.unchanged(each.path, quiet)
            except (FileNotFoundError, PermissionError):
                same = False  # copying it tells what is wrong
            if not same:
                found.append(each)
        return found

    def _changed_in_store(self, store: Transcript, problems: "list[tuple[Path, Unread]]") -> list[Transcript]:
        """The sessions of a database in which something may be new."""
        try:
            stamp = stamp_of(store.path)
            if self._read_stores.get(store.path) == stamp:
                return []
            places = last_places(store.path)
        except OSError as error:
            problems.append((store.path, error))
            return []
        root = self.adapters()[store.tool].root
        found: list[Transcript] = []
        for session, place in places.items():
            path = session_path(store.path, session)
            # One of many sessions grows: the cursors of the others are not looked up again.
            if self._copied.get(path) == place or session_of(store.tool, root, path) != session:
                continue
            cursor = self._opened().cursor(path)
            if cursor is None or cursor.state.memo != place:
                found.append(Transcript(store.tool, session, path))
            else:
                self._copied[path] = place
        if not found:
            self._read_stores[store.path] = stamp
        return found

    async def settle(self) -> int:
        """Merges the segments of quiet sessions. Returns of how many."""
        settled = 0
        writers = self._writers()
        adapters = self.adapters()
        for path, cursor in self._opened().cursors():
            tool = next((name for name, one in adapters.items() if session_of(name, one.root, path)), "")
            changed = cursor.state.modified // 1_000_000 if store_of(path) else _changed(path)
            if tool not in writers or cursor.settled or changed > now_ms() - QUIET_MS:
                continue
            async with self._locked():
                try:
                    settled += await self._in_thread(partial(writers[tool].settle, path))
                except CopyDamaged as error:
                    _log.warning("copies of sessions: %s", describe(error).message)
        return settled

    def forget_mark(self) -> tuple[int, bytes]:
        """A mark that changes when a text was forgotten or a head may have arrived, and after each hour. While it is the same,
        ``forget`` has nothing to do if no copy was behind. Opens no database."""
        return self._forgets(), arrivals(self._device.settings.home, now_ms())

    async def forget(self) -> "Forgotten":
        """Blanks what was forgotten in this device's copies; on the Core also in those of devices that did not do so in time or
        are revoked. A copy that cannot be read holds up no other; it is tried again later. Reads no file if nothing was
        forgotten and no head arrived since."""
        database, cache = self._opened(), self._cache()
        await self._in_thread(lambda: cache.refresh(now_ms()))
        forgets = self._forgets()
        if not forgets:
            return Forgotten()
        known = database.meta(_META_FORGOTTEN)
        if known.partition(b" ")[0] != b"%d" % forgets:
            database.set_meta(_META_FORGOTTEN_AT, b"%d" % now_ms())
            database.set_meta(_META_FORGOTTEN, b"%d begun" % forgets)
        overdue = now_ms() - int(database.meta(_META_FORGOTTEN_AT) or b"0") > FOREIGN_MS
        member = self._device.member
        active = {info.device.hex() for info in member.log.active()}
        all_behind = cache.behind(forgets)
        behind = [
            row
            for row in all_behind
            if now_ms() - row.failed > FAILED_MS
            and (row.device == self._id or (member.is_core and (overdue or row.device not in active)))
        ]
        adapters = {one.name: one for one in all_adapters(self._latest(), self._latest().person_home)}
        changed, problems = 0, list[str]()
        for row in behind:
            adapter = adapters[row.tool]
            assert isinstance(adapter, LineAdapter)
            async with self._locked():
                try:
                    changed += await self._forget_in(row.place, adapter, forgets)
                except (CopyDamaged, CopyIncomplete) as error:
                    problems.append(describe(error).message)
                    cache.failed(row.place, now_ms())
        return Forgotten(changed, problems, len(all_behind))

    async def _forget_in(self, place: CopyPlace, adapter: LineAdapter, forgets: int) -> bool:
        head = await self._in_thread(partial(self._copies.head, place))
        if head is None or head.removed:
            return False
        candidates = await self._in_thread(partial(texts_in, self._copies, head, adapter))
        lost = self._lost(candidates)
        changed = await self._in_thread(partial(forget_in, self._copies, head, adapter, lost, forgets))
        await self._in_thread(partial(self._cache().note, place))
        return changed

    async def retain(self) -> list[Removal]:
        """Removes copies by the retention rules. Only the Core does; others get its settings' effect."""
        settings = self._latest().sessions
        if not self._device.member.is_core or not (settings.keep_days or settings.max_gb):
            return []
        async with self._locked():
            cache = self._cache()
            await self._in_thread(lambda: cache.refresh(now_ms()))
            usable = [row for row in cache.heads() if not row.problem]
            chosen = to_remove(usable, now_ms(), keep_days=settings.keep_days, max_gb=settings.max_gb)
            for each in chosen:
                await self._in_thread(partial(remove, self._copies, each, now_ms()))
                for place in each.places:
                    await self._in_thread(partial(cache.note, place))
        return chosen

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Runs this in a thread. Cancelled, it tells the thread to stop and waits for it, ``STOP_SECONDS_MAX`` at most: until
        then the lock is held and the database open."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stopped.set()
            await asyncio.wait({running}, timeout=STOP_SECONDS_MAX)
            if not running.done():
                self._left = True
            elif not running.cancelled() and (error := running.exception()) is not None:
                _log.warning("copies of sessions: %s", describe(error).message)
            raise

    def _lost(self, candidates: Candidates) -> set[bytes]:
        return self._device.replica.hidden(list(candidates))

    def _forgets(self) -> int:
        """Names the set of what is forgotten, 0 for the empty one. A text can be remembered again, so that a count would come
        to the same number twice."""
        digest, count = self._device.replica.database.row(_SUPPRESSED) or (b"", 0)
        return 1 + int.from_bytes(digest[:_FORGETS_BYTES]) if count else 0

    def _hides(self) -> Callable[[Collection[bytes]], set[bytes]]:
        loop = asyncio.get_running_loop()

        async def ask(marks: Collection[bytes]) -> set[bytes]:
            return self._device.replica.hidden(list(marks))

        def hides(marks: Collection[bytes]) -> set[bytes]:
            return (
                asyncio.run_coroutine_threadsafe(ask(marks), loop).result(_ANSWER_SECONDS) if marks else set()
            )

        return hides

    def _writers(self) -> dict[str, SessionWriter]:
        settings = self._latest()
        chosen = settings.sessions.exact

        def exact(cwd: str, repository: str) -> bool:
            return is_exact(chosen, cwd, repository, settings.person_home)

        return {
            name: SessionWriter(
                self._root,
                self._id,
                self._opened(),
                one,
                person_home=settings.person_home,
                exact=exact,
                stopped=self._stopped.is_set,
                uncommitted=self._uncommitted.of,
            )
            for name, one in self.adapters().items()
            if isinstance(one, LineAdapter)  # all of them are
        }

    def _cache(self) -> HeadCache:
        return head_cache(self._device.settings.home, self._opened())

    def _opened(self) -> SessionDatabase:
        if self._database is None:
            self._database = SessionDatabase.open(self._device.settings.home.sessions_database)
        return self._database

    def _locked(self) -> "_Locked":
        return _Locked(
            FileLock(
                self._device.settings.home.sessions_lock,
                purpose="copying sessions",
                wait_seconds=_LOCK_SECONDS,
            )
        )


class SessionFollower:
    """Copies sessions as they grow, until cancelled."""

    def __init__(
        self, service: SessionService, report: Report, uniform: Callable[[float, float], float]
    ) -> None:
        self._service = service
        self._report = report
        self._uniform = uniform
        self._told: dict[Path, str] = {}

    async def run(self) -> None:
        """Raises what does not pass by itself."""
        backoff = Backoff(self._uniform)
        try:
            while True:
                try:
                    async with aclosing(changes(self._folders, self._concerns, ChangeTimes())) as stream:
                        async for paths in stream:
                            await self._copy(paths)
                            backoff.succeeded()
                except Exception as error:
                    if not passes(error):
                        raise
                    pause = backoff.failed()
                    told = describe(error)
                    self._report(
                        WatchEvent.FAILED,
                        f"copies of sessions: {told.message}; trying again in {pause:.0f} s. {told.hint}",
                    )
                    await asyncio.sleep(pause)
        finally:
            self._service.close()

    async def _copy(self, paths: frozenset[str] | None) -> None:
        if not self._service.on:
            return
        chosen = await asyncio.to_thread(self._service.transcripts, paths)
        _, problems = await self._service.copy(chosen)
        for path, error in problems:
            text = describe(error).message
            if self._told.get(path) != text:
                self._told[path] = text
                self._report(WatchEvent.PROGRESS, f"copies of sessions: {path} cannot be read: {text}")

    def _folders(self) -> list[Path]:
        return [folder for one in self._service.adapters().values() for folder in one.folders]

    def _concerns(self, path: str) -> bool:
        return bool(self._service.transcripts([path]))


def is_exact(chosen: Collection[str], cwd: str, repository: str, person_home: Path) -> bool:
    """Whether a project is among those whose sessions are copied without redaction: by its folder, or its repository."""
    for name in chosen:
        if name == repository and repository:
            return True
        folder = str(person_home) + name[1:] if name == "~" or name.startswith("~/") else name
        if folder.startswith("/") and cwd and (cwd == folder or cwd.startswith(folder.rstrip("/") + "/")):
            return True
    return False


class _Locked:
    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.acquire_async()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def _session_or_store(tool: str, adapter: Adapter, path: Path) -> str | None:
    """The id of the session of this file; "" if it is a database of many, None if it is neither."""
    if tool == "openclaw" and path.name == STORE_NAME and adapter.concerns(str(path)):
        return ""
    return session_of(tool, adapter.root, path)


def _changed(path: Path) -> int:
    """When a file last changed, in milliseconds; 0 if it is gone."""
    try:
        return path.lstat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
