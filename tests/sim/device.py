"""A simulated device: a disk that survives, and a process that may die at any point.

The disk is the two real databases, in memory. The process is a `Member` and a flow under way; a crash drops both. It dies
at *points*: before and after every request, and before and after the commit of every transaction of either database (before:
SQLite rolls back; after: what the program wanted to do next never happens). A death loses nothing that was committed. A power
cut does: of each database the commits that did not wait for the disk (`PRAGMA synchronous` below FULL) since the last that did.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import apsw

from crystal_core.database import Database
from crystal_core.replica import Replica, ReplicaTransaction
from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import NotAMember
from crystal_mirror.files.round import files_round
from crystal_mirror.files.transfers import reput_parts
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.founding import found, join
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.operations import Operation
from crystal_mirror.requests import Flow, Request, StoreFailure
from crystal_mirror.round import sync_round
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import Origin
from crystal_node.device.journal import SqliteJournal
from tests.sim.embedding import MODEL
from tests.sim.tree import Removed, SimBook, SimDisk

SYNCHRONOUS_FULL = 2
"""`PRAGMA synchronous` of a database whose commits wait for the disk."""


class SimCrash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it."""


@dataclass
class Crasher:
    """Counts the points at which a process can die, and kills at the one that is armed."""

    points: int = 0
    kill_at: int | None = None
    kills: int = 0

    def point(self) -> None:
        self.points += 1
        if self.kill_at is not None and self.points >= self.kill_at:
            self.kill_at = None
            self.kills += 1
            raise SimCrash


@dataclass
class Unsynced:
    """A database as a power cut would leave it; None: as it is."""

    before: bytes | None = None

    @contextmanager
    def committing(self, connection: apsw.Connection, *, waits: bool = True) -> Generator[None]:
        """A commit that waits for the disk takes all before it there."""
        level = cast("int", connection.execute("PRAGMA synchronous").fetchall()[0][0])
        synced = waits and level >= SYNCHRONOUS_FULL
        before = None if synced or connection.in_transaction else connection.serialize("main")
        yield
        self.before = None if synced else self.before or before


class SimJournal(SqliteJournal):
    """The real journal with a point on each side of every commit."""

    crasher: Crasher
    unsynced: Unsynced

    @contextmanager
    def transaction(self) -> Generator[Self]:
        with self.unsynced.committing(self.connection), super().transaction() as transaction:
            yield transaction
            self.crasher.point()
        self.crasher.point()


class SimDatabase(Database):
    """The real database of the memory. Knows what a power cut would leave of it."""

    def __init__(self, *values: Any) -> None:
        self.unsynced = Unsynced()
        super().__init__(*values)

    @classmethod
    def kept(cls, image: bytes | None = None) -> "SimDatabase":
        """A new one, or one from an image."""
        made = cls.from_bytes(image) if image else cls.open(":memory:")
        assert isinstance(made, SimDatabase), "made by its own class"
        return made

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[None]:
        with self.unsynced.committing(self.connection, waits=durable), super().transaction(durable=durable):
            yield


class SimReplica(Replica):
    """The real replica with a point on each side of every commit. Tells when it is wiped."""

    crasher: Crasher
    on_wipe: Callable[[], None]

    @contextmanager
    def transaction(self) -> Generator[ReplicaTransaction]:
        with super().transaction() as transaction:
            before = transaction.position()
            yield transaction
            wiped = transaction.position() < before
            self.crasher.point()
        if wiped:
            self.on_wipe()
        self.crasher.point()

    def index_provisional(self, origin: Origin, operation: Operation, encoded: bytes | None = None) -> None:
        self.crasher.point()
        super().index_provisional(origin, operation, encoded)
        self.crasher.point()

    def drop_provisional(self, origin: Origin) -> None:
        self.crasher.point()
        super().drop_provisional(origin)
        self.crasher.point()


@dataclass(frozen=True)
class Backup:
    """Both databases of a home as they stood at one moment."""

    journal: bytes
    replica: bytes | None
    disk: SimDisk | None = None
    book: bytes | None = None


def spoken(name: str) -> str:
    """What a person calls the device: long enough to be looked for in what the relay is sent."""
    return f"{name} of Ada"


@dataclass
class Clock:
    """The world's time, which no device knows for sure. It goes on by ``tick_ms`` with each step."""

    now_ms: int = 1_800_000_000_000
    tick_ms: int = 0


@dataclass
class Lane:
    """A flow under way, and what it asks for now. A process may have two: rounds of sync, and a snapshot being made beside."""

    flow: Flow[Any]
    request: Request | None = None
    generation: int = 0
    """The one in force, as far as the device knew when it asked."""


@dataclass
class Home:
    """One installation: identity and databases. `restores` counts how often its disk was put back to an earlier state."""

    name: str
    identity: DeviceIdentity
    vault: bytes
    root: Root | None
    """With what it founds or joins; None: it waits until another device has taken it in."""
    crasher: Crasher
    random: Callable[[int], bytes]
    founds: bool = False
    keeps_root: bool = True
    roots: list[Root] = field(default_factory=list[Root])
    """The roots that it keeps: its key store, which no restore puts back."""
    journal: apsw.Connection = field(default_factory=lambda: SqliteJournal.open(":memory:").connection)
    replica: Database | None = None
    folder: Path | None = None
    restores: int = 0
    wipes: int = 0
    abandons: bool = False
    """Whether a person told it to give up what nobody holds any more."""
    error: str = ""
    member: Member | None = None
    clock: Clock | None = None
    """None: it has no clock, and tells no time."""
    skew_ms: int = 0
    """By how much its clock is off."""
    model: str = MODEL
    disk: SimDisk | None = None
    """Its files; None: it syncs none."""
    book: SimBook | None = None
    beside: Lane | None = None
    _round: Lane | None = None
    result: Any = None
    unsynced: Unsynced = field(default_factory=Unsynced)
    """Of the journal."""
    asked_in: int = 0
    """The generation that it knew when it asked what is being answered."""

    @property
    def busy(self) -> bool:
        return self._round is not None

    @property
    def now_ms(self) -> int:
        return max(1, self.clock.now_ms + self.skew_ms) if self.clock else 0

    def backup(self) -> Backup:
        return Backup(
            self.journal.serialize("main"),
            self.replica.to_bytes() if self.replica else None,
            self.disk.copy(self.crasher.point) if self.disk else None,
            self.book.serialized() if self.book else None,
        )

    def restore(
        self, backup: Backup, *, journal: bool = True, replica: bool = True, files: bool = True
    ) -> None:
        """Puts the disk back to an earlier state, or one of its two databases only. The process is gone."""
        self.die()
        self.restores += 1
        if journal:
            self._put_journal(backup.journal)
        if replica:
            self.replica = SimDatabase.kept(backup.replica) if backup.replica else None
        if files and backup.book is not None and self.disk is not None and backup.disk is not None:
            self.disk.put_back(backup.disk)
            self.book = SimBook.from_bytes(backup.book, self.crasher.point)

    def _put_journal(self, image: bytes) -> None:
        self.journal = apsw.Connection(":memory:")
        self.journal.deserialize("main", image)
        self.unsynced = Unsynced()

    def cut_power(self) -> None:
        """The machine stops: the process is gone, and so is what did not wait for the disk."""
        self.die()
        if self.unsynced.before is not None:
            self._put_journal(self.unsynced.before)
        if isinstance(self.replica, SimDatabase) and self.replica.unsynced.before is not None:
            self.replica = SimDatabase.kept(self.replica.unsynced.before)

    def lose(self, database: str) -> None:
        """One of its databases is gone: ``journal``, ``replica`` or ``book``. Without a journal it joins again, as it is told
        to."""
        self.die()
        self.restores += 1
        match database:
            case "journal":
                self.journal, self.unsynced = SqliteJournal.open(":memory:").connection, Unsynced()
                self.founds = False
                if isinstance(
                    self.replica, SimDatabase
                ):  # a power cut as well would be two disasters at once
                    self.replica.unsynced = Unsynced()
            case "replica":
                self.replica = None
            case _:
                self.book = SimBook.in_memory(self.crasher.point)

    def clone(self, name: str, random: Callable[[int], bytes]) -> "Home":
        """Another installation with the same identity and the same disk."""
        copy = Home(
            name, self.identity, self.vault, self.root, self.crasher, random, keeps_root=self.keeps_root
        )
        copy.roots = list(self.roots)
        copy.clock, copy.skew_ms, copy.model = self.clock, self.skew_ms, self.model
        if self.disk is not None:
            copy.have_files(self.disk.on_removed)
        copy.restore(self.backup())
        return copy

    def second_process(self, name: str, random: Callable[[int], bytes]) -> "Home":
        """Another process over the same two database files. Needs `keep_in`."""
        assert self.folder is not None, "two processes meet in files"
        other = Home(
            name, self.identity, self.vault, self.root, self.crasher, random, self.founds, self.keeps_root
        )
        other.roots, other.journal = self.roots, self.journal
        other.keep_in(self.folder)
        return other

    def keep_in(self, folder: Path) -> None:
        """Has the databases in files of this folder from now on; what was in memory is gone."""
        self.die()
        self.folder = folder
        self.journal = SqliteJournal.open(folder / "state.db").connection
        self.replica = Database.open(folder / "crystal.db")

    def die(self) -> None:
        self.member = self._round = self.beside = None

    def open(self) -> Member | None:
        """Starts the process if it does not run. None while the device has not joined yet."""
        if self.member is not None:
            return self.member
        journal = self._journal()
        log = load_log(journal, self.vault)
        try:
            secret = load_keys(self.identity, log)[1]
        except NotAMember:
            return None
        if log.lead is None:
            return None
        if self.replica is None:
            self.replica = SimDatabase.kept()
        replica = SimReplica(self.replica, secret)
        replica.crasher, replica.on_wipe = self.crasher, self._wiped
        self.member = Member.open(
            self.identity,
            self.vault,
            journal,
            replica,
            self.random,
            self._root_for(log),
        )
        return self.member

    def _journal(self) -> SimJournal:
        journal = SimJournal(self.journal)
        journal.crasher, journal.unsynced = self.crasher, self.unsynced
        return journal

    def _root_for(self, log: DeviceLog) -> Root | None:
        """Of the roots that are kept the one in force, else the oldest."""
        return next((root for root in self.roots if in_force(log, root)), next(iter(self.roots), None))

    def _wiped(self) -> None:
        self.wipes += 1

    def start(self, flow: Callable[[Member], Flow[Any]] | None = None) -> None:
        """Begins a flow: the one given, a round of sync, or founding or joining while the device is no member."""
        self.error = ""
        member = self.open()
        if member is not None:
            member.root = self._root_for(member.log)
            started = flow(member) if flow else self.round_of(member)
        else:
            started = self._enter()
        self._round = Lane(started)
        self._resume(self._round, None, None)

    def start_beside(self, flow: Callable[[Member], Flow[Any]]) -> None:
        """Begins a flow that goes on beside the rounds of sync."""
        if self.member is not None and self.beside is None:
            self.beside = Lane(flow(self.member))
            self._resume(self.beside, None, None)

    def round_of(self, member: Member) -> Flow[Any]:
        """What this device does again and again."""
        if self.clock is None:
            return sync_round(member, self.model)
        return self._round_with_files(member)

    def _round_with_files(self, member: Member) -> Flow[Any]:
        # A process that goes on is woken when a cursor is written; one that has just begun has to look for itself.
        woken = member.rounds > 0
        report = yield from sync_round(member, self.model, about=About(self.now_ms), heed_cursors=woken)
        if self.disk is not None and self.book is not None:
            yield from files_round(member, self.disk, self.book, now_ms=self.now_ms)
            if report.relay_lost:
                yield from self.put_files_back(member)
        return report

    def put_files_back(self, member: Member) -> Flow[None]:
        """What the relay lost of the files that stand here."""
        if self.disk is not None and self.book is not None:
            yield from reput_parts(member, self.disk, self.book)

    def have_files(self, on_removed: Callable[[Removed], None]) -> None:
        """From now on this device syncs the files that a person has on it."""
        self.disk = SimDisk(self.crasher.point, on_removed=on_removed)
        self.book = SimBook.in_memory(self.crasher.point)

    def _enter(self) -> Flow[Any]:
        journal = self._journal()
        if self.root is None:
            return read_log(load_log(journal, self.vault), journal, StoreKeys(self.vault))
        if self.keeps_root and self.root not in self.roots:
            self.roots.append(self.root)
        details = Details(spoken(self.name), "sim", 0)
        if self.founds:
            return found(self.identity, self.root, journal, self.random, details)
        return join(self.identity, self.root, journal, self.random, details, self.vault)

    def advance(self, perform: Callable[[Request], Any], lane: Lane | None = None) -> Request | None:
        """Has the pending request answered and runs to the next one. Returns the request that was answered."""
        lane = lane or self._round
        request = lane.request if lane else None
        if lane is None or request is None:
            return None
        self.crasher.point()
        self.asked_in = lane.generation
        try:
            reply, failure = perform(request), None
        except StoreFailure as error:
            reply, failure = None, error
        self.crasher.point()
        self._resume(lane, reply, failure)
        return request

    def _resume(self, lane: Lane, reply: Any, failure: StoreFailure | None) -> None:
        try:
            lane.request = lane.flow.throw(failure) if failure else lane.flow.send(reply)
            lane.generation = self.member.log.generation if self.member else 0
        except StopIteration as stop:
            self._end(lane)
            self.result = stop.value
        except CrystalError as error:
            self._end(lane)
            self.error = f"{type(error).__name__}: {error}"

    def _end(self, lane: Lane) -> None:
        if lane is self.beside:
            self.beside = None
        else:
            self._round = None
