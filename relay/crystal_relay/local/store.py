"""The store in a local directory.

    <directory>/lock            held while a process uses the directory
    <directory>/objects.db      SQLite: one row for each object, small objects inside it
    <directory>/files/<2 hex>/  large objects, one file each; `.tmp` while they arrive

One process at a time, because `wait` knows the writes of its own process only. The directory is made with mode 0700.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import BinaryIO, TypeVar

import apsw

from crystal_relay.errors import (
    AlreadyExists,
    Closed,
    RelayError,
    StoreDamaged,
    StoreFull,
    Unusable,
)
from crystal_relay.keys import check_key, check_prefix
from crystal_relay.limits import KIB, LIST_LIMIT_MAX, PIECE_BYTES
from crystal_relay.local.database import (
    error_of_sqlite,
    error_of_system,
    lock,
    open_for_writing,
)
from crystal_relay.local.disk_space import DiskSpace, Reservation
from crystal_relay.local.files import FileInProgress, ObjectFiles
from crystal_relay.local.lookups import Lookups
from crystal_relay.local.reader import RowReader
from crystal_relay.local.recent import Recent
from crystal_relay.local.writer import Results, RowChange, RowWriter, Write, WriteOutcome
from crystal_relay.notify import Notifier
from crystal_relay.spool import write_arriving
from crystal_relay.store import (
    Body,
    DiskStatus,
    Object,
    Page,
    body_of,
    body_size,
    check_limit,
    check_part,
    check_timeout,
    part_length,
    whole_body,
)
from crystal_relay.threads import Delivery, Lane

INLINE_BYTES_MAX = 256 * KIB
"""Up to this size an object stands in its row. Measured: docs/decisions/0123-parts-on-their-way.md."""
READER_THREADS = 2
FILE_THREADS = 4
PENDING_CALLS_MAX = 4096

Result = TypeVar("Result")


class LocalStore:
    """A `Store` (see the port). One event loop; one process for each directory."""

    def __init__(self, directory: Path, *, inline_bytes_max: int = INLINE_BYTES_MAX) -> None:
        """Open or create, and clear away what a crash has left. Blocks for some milliseconds.

        Raises InUse (another process has it), StoreDamaged, StoreFull, Unusable (no permission, not a directory).
        """
        self._inline_bytes_max = inline_bytes_max
        self._database = directory / "objects.db"
        self._files = ObjectFiles(directory / "files")
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = lock(directory / "lock")
            try:
                connection, self.swept = self._open()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise _unusable(directory, error_of_system(error)) from None
        except apsw.Error as error:
            raise _unusable(directory, error_of_sqlite(error)) from None
        self._room = DiskSpace(directory)
        self._writer = RowWriter(connection, self._room, self._written)
        self._recent = Recent()
        self._waiting: dict[Write, asyncio.Future[None]] = {}
        self._readers = Lane("relay-reader", threads=READER_THREADS, pending_max=PENDING_CALLS_MAX)
        self._file_lane = Lane("relay-files", threads=FILE_THREADS, pending_max=PENDING_CALLS_MAX)
        self._rows = RowReader(self._database, self._files)
        self._lookups = Lookups(self._rows, self._readers)
        self._notifier = Notifier()
        self._delivery: Delivery | None = None
        self._thread = 0
        self._removals: set[asyncio.Task[None]] = set()
        self._users = 0
        self._idle = asyncio.Event()
        self._closed = False

    # --- the port ---

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._put(RowChange.CREATE, key, body)  # §R3.1-4

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._put(RowChange.REPLACE, key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if (recent := self.recall(key, start=start, length=length)) is not None:
            return recent
        check_key(key)
        check_part(start, length)
        self._enter()
        try:
            size, held = await self._lookups.ask(self._deliver(), key)
        finally:
            self._leave()
        if isinstance(held, bytes):
            return Object.of(held, start=start, length=length)
        try:
            count = part_length(size, start, length)
        except BaseException:
            held.close()
            raise
        return Object(
            self._file_pieces(held, start, count), size=size, start=start, length=count, close=_closing(held)
        )

    def recall(self, key: str, *, start: int = 0, length: int | None = None) -> Object | None:
        """As `Recalling`."""
        recent = self._recent.get(key)
        if recent is None:
            return None
        self._check_usable()
        return Object.of(recent, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        check_prefix(prefix)
        check_prefix(after)
        check_limit(limit)
        rows = await self._read(lambda: self._rows.select(prefix, after, limit + 1))
        return Page(tuple(rows[:limit]), len(rows) > limit)

    async def list_json(
        self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX, cut: int = 0
    ) -> tuple[bytes, bool]:
        """As `ListingJson`."""
        check_prefix(prefix)
        check_prefix(after)
        check_limit(limit)
        return await self._read(lambda: self._rows.select_json(prefix, after, limit, cut))

    async def delete(self, key: str) -> None:
        check_key(key)
        self._enter()
        try:
            await self._write(RowChange.DELETE, key, 0, None, None)
        finally:
            self._leave()

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        check_prefix(prefix)
        check_timeout(timeout)
        self._enter()
        try:
            return await self._notifier.wait(prefix, token, timeout)
        finally:
            self._leave()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._notifier.wake_all()
        # A write whose caller was cancelled is finished too: it decides about files.
        while self._users or self._waiting:
            self._idle.clear()
            await self._idle.wait()
        while self._removals:
            await asyncio.wait(self._removals)
        await self._lookups.finish()
        await asyncio.to_thread(self._close)

    async def disk(self) -> DiskStatus:
        """As `OnDisk`."""
        return await self._read(self._room.status)

    # --- writing ---

    async def _put(self, change: RowChange, key: str, body: bytes | Body) -> None:
        check_key(key)
        size = body_size(body)
        self._enter()
        try:
            if size <= self._inline_bytes_max:
                whole = await whole_body(body) if isinstance(body, Body) else body
                await self._write(change, key, size, whole, None)
                return
            if change is RowChange.CREATE and await self._read(lambda: self._rows.exists(key)):
                raise AlreadyExists("the key is taken")  # before megabytes are received in vain
            await self._put_file(change, key, size, body)
        finally:
            self._leave()

    async def _put_file(self, change: RowChange, key: str, size: int, body: bytes | Body) -> None:
        claim = await self._use_files(partial(self._room.claim, size), unwanted=Reservation.release)
        file = self._files.new(claim)
        try:
            await self._use_files(file.begin)
            await self._receive(file, body if isinstance(body, Body) else body_of(body))
            await self._use_files(file.place)
        except BaseException:
            await self._file_lane.run(self._deliver(), file.discard, owed=True)
            raise
        # From here on the writer decides what becomes of the file, also when the caller is cancelled.
        await self._write(change, key, size, None, file.name)

    async def _receive(self, file: FileInProgress, body: Body) -> None:
        await write_arriving(body, lambda pieces: self._use_files(partial(file.write, pieces)))

    def _write(
        self, change: RowChange, key: str, size: int, body: bytes | None, file: str | None
    ) -> asyncio.Future[None]:
        """Begin a write. To be awaited where it is called: a frame that keeps the future would be kept by its error."""
        loop = self._deliver().loop
        write = Write(change, key, size, body, file)
        try:
            first = self._writer.submit(write)
        except RelayError:
            if file is not None:
                self._remove_file(file)
            raise
        if first:
            # What else arrives in this turn of the loop goes along.
            loop.call_soon(self._writer.flush)
        done: asyncio.Future[None] = loop.create_future()
        self._waiting[write] = done
        return done

    def _written(self, results: Results) -> None:
        """In the writer's thread: what was committed, and what was not."""
        assert self._delivery is not None, "created before the first write"
        self._delivery.call(partial(self._settle, results))

    def _settle(self, results: Results) -> None:
        self._writer.settled(results)
        for write, outcome in results:
            if outcome.unused is not None:
                self._remove_file(outcome.unused)
            self._remember(write, outcome)
            done = self._waiting.pop(write)
            if done.done():  # its caller was cancelled
                continue
            if outcome.error is None:
                done.set_result(None)
            else:
                done.set_exception(outcome.error)
        if self._closed:
            self._idle.set()

    def _remember(self, write: Write, outcome: WriteOutcome) -> None:
        error = outcome.error
        if isinstance(error, AlreadyExists):
            return
        if error is None and write.body is not None:
            self._recent.keep(write.key, write.body)
        else:
            self._recent.drop(write.key)
        if error is None and write.change is not RowChange.DELETE:
            self._notifier.written(write.key)

    def _remove_file(self, name: str) -> None:
        async def remove() -> None:
            # What cannot be removed now, the next start sweeps.
            with suppress(OSError, RelayError):
                await self._file_lane.run(self._deliver(), lambda: self._files.remove(name), owed=True)

        task = self._deliver().loop.create_task(remove())
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    # --- inside ---

    async def _read(self, call: Callable[[], Result]) -> Result:
        self._enter()
        try:
            # What it found is nobody's once its caller was cancelled; closing waits for the thread.
            return await self._readers.run(self._deliver(), call, leave=True)
        except apsw.Error as error:
            raise error_of_sqlite(error) from None
        except OSError as error:
            raise error_of_system(error) from None
        finally:
            self._leave()

    async def _use_files(
        self, call: Callable[[], Result], unwanted: Callable[[Result], None] | None = None
    ) -> Result:
        try:
            return await self._file_lane.run(self._deliver(), call, unwanted=unwanted)
        except OSError as error:
            raise error_of_system(error) from None

    async def _file_pieces(self, file: BinaryIO, start: int, count: int) -> AsyncIterator[bytes]:
        at, end = start, start + count
        while at < end:
            wanted = min(PIECE_BYTES, end - at)
            piece = await self._use_files(partial(os.pread, file.fileno(), wanted, at))
            if not piece:
                raise StoreDamaged("a file of the relay's directory has become shorter")
            at += len(piece)
            yield piece

    def _check_usable(self) -> None:
        if self._closed:
            raise Closed("the store is closed")
        # Asking which loop runs is a system call in some Pythons; which thread runs is none.
        if self._thread != get_ident() and self._delivery is not None:
            raise RuntimeError("a LocalStore belongs to one event loop")

    def _enter(self) -> None:
        self._check_usable()
        self._users += 1

    def _leave(self) -> None:
        self._users -= 1
        if self._closed:
            self._idle.set()

    def _deliver(self) -> Delivery:
        if self._delivery is None:
            self._delivery = Delivery(asyncio.get_running_loop())
            self._thread = get_ident()
        return self._delivery

    def _open(self) -> tuple[apsw.Connection, int]:
        """The writing connection, and how many files were swept."""
        # A database is only made once the directories are there for good. A copy may lack those in which nothing was.
        if not self._database.exists() or not self._files.is_prepared():
            self._files.prepare()
        connection = open_for_writing(self._database)

        def is_used(name: str) -> bool:
            return connection.execute("SELECT 1 FROM object WHERE file = ?", (name,)).fetchone() is not None

        try:
            return connection, self._files.sweep(is_used)
        except BaseException:
            connection.close()
            raise

    def _close(self) -> None:
        self._readers.close()
        self._file_lane.close()
        self._rows.close()
        self._writer.close()
        self._lock.close()


def _closing(file: BinaryIO) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        file.close()

    return close


def _unusable(directory: Path, error: RelayError) -> RelayError:
    """The same error with the directory in its message, which only the operator sees."""
    kind = type(error) if isinstance(error, StoreFull | StoreDamaged) else Unusable
    return kind(f"{directory}: {error}")
