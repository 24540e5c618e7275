"""Sync as this device does it: rounds of the protocol under the home's lock, once or continuously.

``sync_now`` is ``crystal sync``; ``DeviceWork`` is what ``watch.py`` drives for ``crystal sync --watch``. The
lock is held for a round at a time, so that a manual ``crystal sync`` gets its turn beside a watcher.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from crystal_crypto.errors import CrystalError
from crystal_mirror.errors import Revoked
from crystal_mirror.files.transfers import FilesReport
from crystal_mirror.membership.administration import generation_due, renew_generation
from crystal_mirror.membership.cursors import About
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Flow
from crystal_mirror.round import RoundReport, sync_round
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import describe
from crystal_node.base.locking import FileLock, give_way
from crystal_node.base.wording import counted, size
from crystal_node.device.access import Access, note_access
from crystal_node.device.activity import RoundNotes
from crystal_node.device.device import Device
from crystal_node.device.runner import Runner, TokenRefused, Traffic, store_failure
from crystal_node.sync.files.rounds import FileRounds
from crystal_node.sync.leftovers import tidy_leftovers
from crystal_node.sync.members.duties import do_duties
from crystal_node.sync.members.duties_due import duties_due, settling_due
from crystal_node.sync.members.news import keep_lines
from crystal_node.sync.progress import ProgressLines
from crystal_node.sync.round_embedder import RoundEmbedder
from crystal_relay.errors import RelayError
from crystal_relay.tokens import token_hash

if TYPE_CHECKING:
    from crystal_crypto.hierarchy import Root
    from crystal_relay.store import Store
from dataclasses import replace
from typing import TYPE_CHECKING

from crystal_node.base.errors import passes

if TYPE_CHECKING:
    pass
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_node.base.errors import HomeBusy


async def snapshot_if_due(device: Device, runner: Runner) -> bool:
    """Makes a snapshot if one is due. Returns whether one was made, to be announced by the next round.

    Raises:
        StoreFailure, BlobDamaged, RelayMisbehaves: it is due again at the next opportunity; nothing counts on what was stored.
    """
    if not device.member.is_core or snapshot_due(device.member, now_ms()) is None:
        return False
    return await snapshot_now(device, runner)


async def snapshot_now(device: Device, runner: Runner, *, anew: bool = False) -> bool:
    """Makes one in any case. False if this device does not lead, or another process makes one at the moment."""
    lock = FileLock(device.settings.home.snapshot_lock, purpose="making a snapshot", wait_seconds=0.0)
    try:
        await lock.acquire_async()
    except HomeBusy:
        return False
    try:
        flow: Flow[object | None] = make_snapshot(device.member, anew=anew)
        return await runner.run(flow) is not None
    finally:
        lock.release()


async def with_files(syncer: "Syncer", result: "SyncResult") -> "SyncResult":
    """A round of the files; and, where it offered something, the memory's round that sends it. What the memory's own round did
    stands, whatever becomes of them.

    Raises:
        Revoked, TokenRefused: this device is out.
    """
    started, before = time.monotonic(), syncer.traffic
    files: FilesReport | None = None
    problem = ""
    try:
        files = await syncer.files()
        if files is not None and files.offered:
            await syncer.round()
            settled = await syncer.files(scan=False)
            files.waiting = settled.waiting if settled is not None else files.offered
    except Exception as error:
        if isinstance(error, TokenRefused) or not passes(error):
            raise
        problem = describe(error).message
    traffic = result.traffic.plus(syncer.traffic.since(before))
    seconds = result.seconds + time.monotonic() - started
    return replace(result, traffic=traffic, seconds=seconds, files=files, files_problem=problem)


LOCK_WAIT_SECONDS = 60.0
"""How long a round waits for another process's round before it says that the home is busy."""
BRIEF_SECONDS = 4.0
"""A watcher's round ends after about this time, so that another process here, or a device that asks, gets its turn."""
MODEL_IDLE_SECONDS = 30.0
"""A watching Core gives the embedding model's memory back when it was not needed for this long."""

PROGRESS_SECONDS = 3.0
"""A round that takes long says at most this often what it is doing."""
DUTIES_AGAIN_SECONDS = 30.0
"""After the relay could not be told what it has to be told, that is tried again in a round after this time."""

META_RELAY_LOST = "node.relay-lost"
"""In the journal: the relay has lost something, and files were not looked at since."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a round did and what it cost."""

    report: RoundReport
    traffic: Traffic
    seconds: float
    problem: str = ""
    """What this device had to do for its vault beside the round, and could not; it is tried again."""
    files: FilesReport | None = None
    """What became of the home's files; None if they were not looked at."""
    files_problem: str = ""
    """Why they were not, or not to the end."""

    @property
    def moved(self) -> bool:
        """Whether anything went either way, or was put right."""
        report = self.report
        return bool(
            report.bytes_pushed
            or report.operations_collected
            or report.operations_applied
            or report.settled
            or report.restored
            or report.rebuilt
            or report.claimed
        )

    def words(self) -> str:
        """One line for people, "" when nothing moved."""
        report = self.report
        parts = [
            text
            for count, text in (
                (report.bytes_pushed, f"sent {size(report.bytes_pushed)}"),
                (report.operations_collected, f"took in {report.operations_collected:,} from devices"),
                (report.operations_applied, f"applied {report.operations_applied:,} from the Core"),
                (report.settled, f"{report.settled:,} now durable"),
                (report.restored, f"put {report.restored:,} lost entries back"),
                (report.rebuilt, "made the memory here anew"),
                (report.claimed, "began a new epoch"),
            )
            if count
        ]
        return ", ".join(parts)


class Syncer:
    """Runs rounds for one device on one store. ``progress`` is told now and then what a long round is doing."""

    def __init__(
        self,
        device: Device,
        store: "Store",
        *,
        purpose: str,
        progress: Callable[[str], None] | None = None,
        position_seconds: float = 0.0,
        gives_way: bool = False,
    ) -> None:
        """``position_seconds``: this device's position is told at most this often. ``gives_way``: to commands that are in a
        hurry (``ahead``), as a watcher does."""
        self._device = device
        self.ingest = RoundEmbedder(device)
        pace = ProgressLines(progress) if progress is not None else None
        self._runner = Runner(store, self.ingest.source, self._embedded, pace, self.ingest.failed)
        self.ingest.runner = self._runner
        self._purpose = purpose
        self._progress = progress
        self._embedded_texts = 0
        self._told_at = 0.0
        self._position_seconds = position_seconds
        self._position_told_at: float | None = None
        self._duties_at = 0.0
        self._root_looked_for = device.member.log.root_number
        self._version = version("memory-crystal")
        self._files = FileRounds(device, purpose)
        self._moments = RoundNotes(device.journal)
        self._caught_up = False
        self._token = b""
        self._store = store
        self._gives_way, self._turn = gives_way, device.settings.home.sync_lock.with_suffix(".turn")

    async def round(
        self,
        *,
        wait_seconds: float = LOCK_WAIT_SECONDS,
        heed_cursors: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> SyncResult:
        """One round. ``heed_cursors``: another device's cursor was written since the last one. ``enough``: see ``sync_round``.

        Raises:
            HomeBusy: another process of this home was syncing all that time.
            Revoked: this device is out.
            TokenRefused: the relay does not know this device's token, which is how a revocation looks from afar.
            ProtocolError, StoreFailure, VaultDataError: as the round says.
        """
        try:
            result = await self._round(wait_seconds, heed_cursors=heed_cursors, enough=enough)
        except Exception as error:
            if isinstance(error, (Revoked, TokenRefused)):
                self._keep_news()
                refused = isinstance(error, TokenRefused)
                note_access(self._device.journal, Access.REFUSED if refused else Access.REVOKED)
            self._moments.failed(error, now_ms())
            raise
        self._moments.succeeded(result.report, now_ms())
        note_access(self._device.journal, Access.OPEN)
        self._keep_news()
        return result

    async def run(self, flow: Flow[T], *, wait_seconds: float = LOCK_WAIT_SECONDS) -> T:
        """Runs one flow as a round is run: by itself, under the home's lock.

        Raises:
            HomeBusy: as ``round``.
            whatever the flow raises.
        """
        async with self._locked(wait_seconds):
            return await self._runner.run(flow)

    async def snapshot(self, *, due: bool = True, anew: bool = False) -> bool:
        """Makes a snapshot, if one is ``due`` or in any case, beside the rounds. Returns whether there is one to announce.

        Raises:
            StoreFailure, ProtocolError: nothing counts on what was stored; it is due again.
        """
        if due:
            return await snapshot_if_due(self._device, self._runner)
        return await snapshot_now(self._device, self._runner, anew=anew)

    async def files(self, *, scan: bool = True) -> FilesReport | None:
        """A round of the home's files, beside the memory's; None while the memory is not caught up, which comes first.

        ``scan``: looks at the whole tree, else only at what the others changed.

        Raises:
            HomeBusy: another process of this home is at it.
            StoreFailure, ProtocolError: as the round says; what was done stands.
        """
        if not self._caught_up:
            return None
        journal = self._device.journal
        lost = journal.meta_get(META_RELAY_LOST) is not None
        report = await self._files.run(self._runner, scan=scan, relay_lost=lost)
        if lost:
            with journal.transaction() as transaction:
                transaction.meta_set(META_RELAY_LOST, None)
        return report

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """While nobody else syncs on this home, or moves its keys. No round runs inside. Raises HomeBusy."""
        async with self._locked(LOCK_WAIT_SECONDS):
            yield

    async def do_duties(self) -> bool:
        """Tells the relay what it has to know of the device log. Raises StoreFailure, NotSetUp."""
        return await do_duties(self._device, self._runner)

    async def brief_round(
        self, *, heed_cursors: bool = False, enough: Callable[[], bool] = lambda: False
    ) -> SyncResult:
        """A round that lets others have their turn after some seconds, or when it is ``enough``, though more is offered."""
        started = time.monotonic()
        return await self.round(
            heed_cursors=heed_cursors, enough=lambda: enough() or time.monotonic() - started > BRIEF_SECONDS
        )

    async def _round(
        self, wait_seconds: float, *, heed_cursors: bool, enough: Callable[[], bool]
    ) -> SyncResult:
        async with self._locked(wait_seconds):
            started = self._told_at = time.monotonic()
            self._embedded_texts = 0
            before = self._runner.traffic.copy()
            tell = (
                self._position_told_at is None or started - self._position_told_at >= self._position_seconds
            )
            flow = sync_round(
                self._device.member,
                await self.ingest.begin(),
                tell_position=tell,
                about=self.about(ask_key_store=tell),
                heed_cursors=heed_cursors,
                enough=enough,
            )
            self._caught_up = False
            report = await self._runner.run(flow)
            self._caught_up = report.caught_up
            if report.relay_lost:  # kept until files were seen to, which another process may do
                with self._device.journal.transaction() as transaction:
                    transaction.meta_set(META_RELAY_LOST, b"1")
            if tell:
                self._position_told_at = started
            if report.settled:
                self._device.journal.scrub()
            tidy_leftovers(self._device.settings.home, now_ms())
            if report.core and report.operations_collected:
                self.ingest.tidy()
            if report.core and report.caught_up:
                await self.ingest.catch_up()
            problem = await self._beside_the_round(started) or self.ingest.words()
            return SyncResult(report, self._runner.traffic.since(before), time.monotonic() - started, problem)

    def about(self, *, ask_key_store: bool = False) -> About:
        """What this device tells of itself now. A key store may be slow: the token is looked up at first and on demand."""
        if ask_key_store or not self._token:
            self._token = self._token_hash()
        return About(now_ms(), self._version, self._token)

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        """The store's long-poll. Raises StoreFailure."""
        try:
            return await self._store.wait(prefix, token=token, timeout=seconds)
        except RelayError as error:
            raise store_failure(error) from error

    def _token_hash(self) -> bytes:
        token = self._device.keys.token(self._device.identity.id)
        return b"" if token is None else bytes.fromhex(token_hash(token))

    async def _beside_the_round(self, now: float) -> str:
        """What a device that may has to do for its vault. Returns why it could not be done, "" if it was or nothing is due.

        It fails by itself: what the round did stands, and the next one tries again.
        """
        device = self._device
        if not device.holds_root and self._root_looked_for != device.member.log.root_number:
            # Another process of this device may have replaced it. Once for each root: a key store may be slow to ask.
            self._root_looked_for = device.member.log.root_number
            device.look_for_root()
        renew = generation_due(device.member, now_ms())
        if now < self._duties_at or not (renew or duties_due(device) or settling_due(device)):
            return ""
        try:
            await self.do_duties()
            if renew:
                await self._runner.run(renew_generation(device.member, now_ms=now_ms()))
        except CrystalError as error:
            self._duties_at = now + DUTIES_AGAIN_SECONDS
            return f"the relay was not told of the last changes yet: {describe(error).message}"
        return ""

    def _keep_news(self) -> None:
        """For the commands that do not open the device: they have no keys to read the log's names."""
        keep_lines(self._device.member)

    async def claim(
        self, root: "Root | None" = None, *, force: bool, wait_seconds: float = LOCK_WAIT_SECONDS
    ) -> None:
        """Makes this device the Core; the present one becomes a Node when it comes back. ``root``: from the recovery kit.

        Raises:
            HomeBusy: as ``round``.
            Superseded, BehindTheFloor, Unready, ProtocolError, StoreFailure: as the claim says.
        """
        async with self._locked(wait_seconds):
            member = self._device.member
            await self._runner.run(claim(member, root or member.root, force=force, now_ms=now_ms()))

    def release_idle_model(self) -> None:
        """Gives the model's memory back if it has not been needed lately."""
        if self.ingest.loaded and time.monotonic() - self.ingest.needed_at > MODEL_IDLE_SECONDS:
            self.ingest.release()

    def vectors_due(self) -> float:
        """Seconds until a round should embed what has no vectors yet; infinity if nothing lacks them."""
        return self.ingest.due()

    @property
    def traffic(self) -> Traffic:
        """What this syncer has cost so far."""
        return self._runner.traffic.copy()

    def close(self) -> None:
        self._moments.flush()
        self._files.close()
        self.ingest.close()

    @asynccontextmanager
    async def ahead(self) -> AsyncGenerator[None]:
        """While a watcher of this home makes no rounds, for some seconds: this command has several steps, and is in a hurry."""
        turn = FileLock(self._turn, purpose=self._purpose, wait_seconds=LOCK_WAIT_SECONDS)
        await turn.acquire_async()
        try:
            yield
        finally:
            turn.release()

    @asynccontextmanager
    async def _locked(self, wait_seconds: float) -> AsyncGenerator[None, None]:
        path = self._device.settings.home.sync_lock
        if self._gives_way:
            await give_way(self._turn)
        lock = FileLock(path, purpose=self._purpose, wait_seconds=wait_seconds)
        await lock.acquire_async()
        try:
            yield
        finally:
            lock.release()

    def _embedded(self, texts: int) -> None:
        self._embedded_texts += texts
        self.ingest.embedded()
        now = time.monotonic()
        if self._progress is not None and now - self._told_at > PROGRESS_SECONDS:
            self._told_at = now
            self._progress(f"embedded {counted(self._embedded_texts, 'text')} so far")


async def sync_now(device: Device, progress: Callable[[str], None] | None = None) -> SyncResult:
    """One full round both ways, as ``crystal sync`` does it."""
    async with syncing(device, "crystal sync", progress) as syncer:
        return await sync_once(syncer)


async def sync_once(syncer: Syncer) -> SyncResult:
    """A round, a snapshot if one is due, and the files."""
    result = await syncer.round()
    if await syncer.snapshot():
        await syncer.round()  # announces it
    return await with_files(syncer, result)


@asynccontextmanager
async def syncing(
    device: Device, purpose: str, progress: Callable[[str], None] | None = None
) -> AsyncGenerator[Syncer, None]:
    """A syncer for one command, with the relay. ``purpose`` is what another process is told that finds the home busy."""
    async with device.online() as store:
        syncer = Syncer(device, store, purpose=purpose, progress=progress)
        try:
            yield syncer
        finally:
            syncer.close()
