"""The one thread that writes rows. Writes that arrive while a commit runs share the next one.

A commit costs a flush of the disk whatever is in it, so the rate grows with the number of concurrent writers. Adjacent
creations are one statement: each statement releases the interpreter's lock and has to get it back from the event loop, which
costs more than the row. Each write is reported after its commit. If a shared commit fails, each of its writes is retried
alone, so that one that does not fit does not affect the others.

When nothing is written for a moment after a deletion, the log is checkpointed and emptied, so that deleted bytes are nowhere
in the directory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

import apsw

from crystal_relay.errors import AlreadyExists, Busy, Closed, RelayError, StoreFull, StoreUnavailable
from crystal_relay.limits import KIB, MIB
from crystal_relay.local.database import BUSY_MS, SCHEMA_VERSION, error_of_sqlite
from crystal_relay.local.disk_space import DiskSpace

GROUP_WRITES_MAX = 256
GROUP_BYTES_MAX = 8 * MIB
PENDING_WRITES_MAX = 4096
PENDING_BYTES_MAX = 64 * MIB
"""Bytes accepted and not yet committed. Beyond that the store is Busy."""
ROW_OVERHEAD_BYTES = 1 * KIB
"""Upper bound of a row's size beside its bytes: its key, also in the index."""
QUIET_SECONDS = 0.5
"""The log is emptied after this time without a write after a deletion."""
ROWS_AT_ONCE_MAX = 64
"""Rows in one statement. Each number of them is prepared once, and SQLite keeps as many statements."""


class RowChange(Enum):
    """Kind of a write."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How a write ended. `unused`: the file that no row names any more (the old one, or the new one of a failed write)."""

    error: RelayError | None
    unused: str | None


@dataclass(slots=True, eq=False)
class Write:
    """A row to write with its bytes or the name of a placed file, or to delete."""

    change: RowChange
    key: str
    size: int
    body: bytes | None
    file: str | None
    weight: int = field(init=False)
    """Bytes in memory, and in the row."""

    def __post_init__(self) -> None:
        self.weight = len(self.body) if self.body is not None else 0


Results: TypeAlias = list[tuple[Write, WriteOutcome]]

_DONE = WriteOutcome(None, None)


class RowWriter:
    """Owns the writing connection. `submit` and `flush` from one thread; `close` ends it."""

    def __init__(
        self, connection: apsw.Connection, room: DiskSpace, report: Callable[[Results], None]
    ) -> None:
        """`report` is called in the writer's thread, for each write once, for many at a time."""
        self._connection = connection
        self._room = room
        self._report = report
        self._queue: SimpleQueue[list[Write] | None] = SimpleQueue()
        self._gathered: list[Write] = []
        self._gathered_bytes = 0
        self._pending_writes = 0
        self._pending_bytes = 0
        self._closing = False
        self._may_return = False
        """A commit whose flush failed is in the log: it may reappear after a crash, until another overwrites it."""
        self._deleted = False
        """The log still contains deleted bytes."""
        self._thread = Thread(target=self._run, name="relay-writer", daemon=True)
        self._thread.start()

    def submit(self, write: Write) -> bool:
        """Queue a write for the next `flush`; True if it is the first one since the last.

        Raises Busy when too much is queued; `settled` is owed for each one that was taken.
        """
        if self._closing:
            raise Closed("the store is closed")
        weight = write.weight
        if self._pending_writes >= PENDING_WRITES_MAX or self._pending_bytes + weight > PENDING_BYTES_MAX:
            raise Busy("the relay has too many writes to do")
        self._pending_writes += 1
        self._pending_bytes += weight
        if len(self._gathered) >= GROUP_WRITES_MAX or self._gathered_bytes + weight > GROUP_BYTES_MAX:
            self.flush()  # one turn of the loop can bring 64 MiB
        self._gathered.append(write)
        self._gathered_bytes += weight
        return len(self._gathered) == 1

    def flush(self) -> None:
        """Pass the queued writes to the thread."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered:
            self._queue.put(gathered)

    def settled(self, results: Results) -> None:
        """Release the budget of finished writes. From the submitting thread."""
        self._pending_writes -= len(results)
        for write, _ in results:
            self._pending_bytes -= write.weight

    def close(self) -> None:
        """Commit what is queued, checkpoint the log, close the database. Blocks."""
        self._closing = True
        self.flush()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (first := self._next()) is not None:
                if not self._commit_group(first):
                    break
                del first  # or an idle thread would keep its last write in memory
        finally:
            self._connection.close()

    def _next(self) -> list[Write] | None:
        if self._deleted:
            try:
                return self._queue.get(timeout=QUIET_SECONDS)
            except Empty:
                self._empty_log()
        return self._queue.get()

    def _empty_log(self) -> None:
        """If a reader stands in the way, or the disk fails, the next deletion tries again; so does closing."""
        self._deleted = False
        try:
            self._connection.set_busy_timeout(0)
            self._connection.pragma("wal_checkpoint", "truncate")
        except apsw.Error:
            return
        finally:
            self._connection.set_busy_timeout(BUSY_MS)

    def _commit_group(self, first: list[Write]) -> bool:
        """Commit `first` with what else is there. False: the end was found in the queue."""
        group, more = first, True
        weight = _weight(first)
        while len(group) < GROUP_WRITES_MAX and weight < GROUP_BYTES_MAX:
            try:
                batch = self._queue.get_nowait()
            except Empty:
                break
            if batch is None:
                more = False
                break
            group += batch
            weight += _weight(batch)
        self._report(self._commit(group))
        return more

    def _commit(self, group: list[Write], *, one_by_one: bool = False) -> Results:
        failure: RelayError
        try:
            growth = sum(
                write.weight + ROW_OVERHEAD_BYTES for write in group if write.change is not RowChange.DELETE
            )
            if growth and not self._room.has_for_rows(self._connection, growth):
                raise StoreFull("the relay's disk is full")
            if self._is_one_statement(group) and not one_by_one and not self._may_return:
                self._create_all(group)
                results = [(write, _DONE) for write in group]
            else:
                results = self._transact(group, one_by_one=one_by_one)
        except _KeyTaken:
            self._roll_back()
            return self._commit(group, one_by_one=True)
        except StoreFull as error:
            failure = error
        except apsw.Error as error:
            failure = error_of_sqlite(error, self._connection)
        except Exception as error:  # noqa: BLE001  (the thread has to live on, and its callers have to be told)
            failure = StoreUnavailable(f"the relay's writer failed ({type(error).__name__})")
        else:
            self._may_return = False
            self._deleted = self._deleted or any(write.change is RowChange.DELETE for write in group)
            return results
        self._roll_back()
        self._may_return = self._may_return or not isinstance(failure, StoreFull)
        if len(group) > 1:
            return [result for write in group for result in self._commit([write])]
        # Only a write that did not fit is surely not there. After other failures the row could come back with the log
        # that a crash leaves, so its file is left to the next start's sweep, which knows.
        return [(group[0], WriteOutcome(failure, group[0].file if isinstance(failure, StoreFull) else None))]

    def _is_one_statement(self, group: list[Write]) -> bool:
        """Whether one statement, which is a transaction of its own, is enough."""
        return len(group) <= ROWS_AT_ONCE_MAX and all(write.change is RowChange.CREATE for write in group)

    def _transact(self, group: list[Write], *, one_by_one: bool) -> Results:
        self._connection.execute("BEGIN IMMEDIATE")
        if self._may_return:
            # A deletion that finds nothing writes nothing, and would leave the log as it is.
            self._connection.pragma("user_version", SCHEMA_VERSION)
        if one_by_one or len(group) == 1:
            results = [(write, self._apply(write)) for write in group]
        else:
            results = self._apply_together(group)
        self._connection.execute("COMMIT")
        return results

    def _apply_together(self, group: list[Write]) -> Results:
        """Raises _KeyTaken if a creation finds its key taken: which one it was is found out one by one."""
        results: Results = []
        for change, run in groupby(group, lambda write: write.change):
            writes = list(run)
            if change is not RowChange.CREATE:
                results += [(write, self._apply(write)) for write in writes]
                continue
            for at in range(0, len(writes), ROWS_AT_ONCE_MAX):
                self._create_all(writes[at : at + ROWS_AT_ONCE_MAX])
            results += [(write, _DONE) for write in writes]
        return results

    def _create_all(self, writes: list[Write]) -> None:
        values = [value for write in writes for value in (write.key, write.size, write.file, write.body)]
        try:
            self._connection.execute(_CREATE[len(writes)], values)  # stores all of them or none
        except apsw.ConstraintError:
            raise _KeyTaken from None

    def _apply(self, write: Write) -> WriteOutcome:
        match write.change:
            case RowChange.CREATE:
                return self._create(write)
            case RowChange.REPLACE:
                return self._replace(write)
            case RowChange.DELETE:
                gone = self._connection.execute(
                    "DELETE FROM object WHERE key = ? RETURNING file", (write.key,)
                )
                return WriteOutcome(None, gone.get)

    def _create(self, write: Write) -> WriteOutcome:
        self._connection.execute(
            f"{_CREATE[1]} ON CONFLICT (key) DO NOTHING", (write.key, write.size, write.file, write.body)
        )
        if self._connection.changes() == 0:
            return WriteOutcome(AlreadyExists("the key is taken"), write.file)
        return _DONE

    def _replace(self, write: Write) -> WriteOutcome:
        old = self._connection.execute("SELECT file FROM object WHERE key = ?", (write.key,)).get
        self._connection.execute(
            "INSERT INTO object (key, size, file, body) VALUES (?, ?, ?, ?) ON CONFLICT (key)"
            " DO UPDATE SET size = excluded.size, file = excluded.file, body = excluded.body",
            (write.key, write.size, write.file, write.body),
        )
        return WriteOutcome(None, old)

    def _roll_back(self) -> None:
        # SQLite may have rolled back by itself (a full disk); a rollback that fails leaves the next BEGIN to fail too.
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                return


def _weight(writes: list[Write]) -> int:
    return sum(write.weight for write in writes)


class _KeyTaken(Exception):
    """One of several creations found its key taken."""


_CREATE = {
    count: f"INSERT INTO object (key, size, file, body) VALUES {', '.join(['(?, ?, ?, ?)'] * count)}"  # noqa: S608 (no values in it)
    for count in range(1, ROWS_AT_ONCE_MAX + 1)
}
