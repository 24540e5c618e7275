"""Sync on a device: rounds of the protocol, of the files and of snapshots, under the home's locks.

``sync_now`` is ``crystal sync``; ``syncing`` gives any other command a ``Syncer``. The home's lock is held for one round at a
time, so that a manual ``crystal sync`` gets its turn beside a watcher. It is not held while a snapshot is made, which takes
minutes for a large memory; the next round announces the snapshot.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from crystal_core.search.coverage import percent_embedded
from crystal_crypto.errors import CrystalError
from crystal_mirror.errors import Revoked
from crystal_mirror.files.shared import FilesReport
from crystal_mirror.membership.administration import generation_due, renew_generation
from crystal_mirror.membership.cursors import About
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Flow
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.round import RoundReport, sync_round
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, describe, passes
from crystal_node.base.locking import FileLock, give_way
from crystal_node.base.wording import counted, size
from crystal_node.device.access import Access, note_access
from crystal_node.device.activity import RoundNotes
from crystal_node.device.agent_name import memory_came
from crystal_node.device.device import Device
from crystal_node.device.planned_deletion import look_for_deletion
from crystal_node.device.relay_move import META_RELAY_LOST
from crystal_node.device.runner import Runner, TokenRefused, Traffic, store_failure
from crystal_node.search.devices import keep_names
from crystal_node.sync.files.rounds import FileRounds
from crystal_node.sync.leftovers import tidy_leftovers
from crystal_node.sync.members.duties import do_duties
from crystal_node.sync.members.duties_due import duties_due, settling_due
from crystal_node.sync.members.news import keep_lines
from crystal_node.sync.progress import ProgressLines
from crystal_node.sync.round_embedder import AFTER_STALE_SECONDS, RoundEmbedder
from crystal_node.sync.shared_wait import SharedWait
from crystal_relay.errors import RelayError, StoreUnavailable
from crystal_relay.store import hold
from crystal_relay.tokens import token_hash

if TYPE_CHECKING:
    from crystal_crypto.hierarchy import Root
    from crystal_relay.store import Store

LOCK_WAIT_SECONDS = 60.0
"""How long a round waits for another process before it raises HomeBusy."""
BRIEF_SECONDS = 4.0
"""A watcher's round ends after about this time, so that another process, or a device that asks, gets its turn."""
MODEL_IDLE_SECONDS = 30.0
"""A watching Core unloads the embedding model when it was not needed for this long."""

PROGRESS_SECONDS = 3.0
"""A long round reports progress at most this often."""
DUTIES_AGAIN_SECONDS = 30.0
"""Pause before duties at the relay are tried again."""
DELETION_LOOK_SECONDS = 3600.0
"""How often the relay is asked whether it is to delete the vault."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a round did, and its traffic and time."""

    report: RoundReport
    traffic: Traffic
    seconds: float
    problem: str = ""
    """Why a duty of this device for its vault failed; it is tried again."""
    embedded: int = 0
    """Texts that got vectors."""
    files: FilesReport | None = None
    """The round of files; None if there was none."""
    files_problem: str = ""
    """Why the round of files failed or did not finish."""

    @property
    def moved(self) -> bool:
        """Whether anything was transferred or repaired."""
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
                (report.rebuilt, "rebuilt the memory here"),
                (report.claimed, "began a new epoch"),
            )
            if count
        ]
        return ", ".join(parts)


class Syncer:
    """Runs rounds for one device on one store. ``progress`` is told what a long round is doing."""

    def __init__(
        self,
        device: Device,
        store: "Store",
        *,
        purpose: str,
        progress: Callable[[str], None] | None = None,
        position_seconds: float = 0.0,
        gives_way: bool = False,
        worker: bool = False,
    ) -> None:
        """``position_seconds``: this device's position is published at most this often. ``gives_way``: to commands that run
        ``ahead``, as a watcher does. ``worker``: the built-in embedding model runs in a process of its own."""
        self._device = device
        self.ingest = RoundEmbedder(device, worker=worker)
        pace = ProgressLines(progress) if progress is not None else None
        self._store = store
        self._waits = SharedWait(self._wait, device.member.keys.root, self._hold)
        self._runner = Runner(
            store, self.ingest.source, self._embedded, pace, self.ingest.failed, poll=self._waits.poll
        )
        self.ingest.runner = self._runner
        self._purpose = purpose
        self._progress = progress
        self._embedded_texts = 0
        self._told_at = time.monotonic()
        self._position_seconds = position_seconds
        self._position_told_at: float | None = None
        self._duties_at = 0.0
        self._deletion_at = 0.0
        self._root_looked_for = device.member.log.root_number
        self._version = version("memory-crystal")
        self._files = FileRounds(device, purpose)
        self._moments = RoundNotes(device.journal)
        self._caught_up = False
        self._token = b""
        self._gives_way, self._turn = gives_way, device.settings.home.sync_lock.with_suffix(".turn")

    async def round(
        self,
        *,
        wait_seconds: float = LOCK_WAIT_SECONDS,
        heed_cursors: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> SyncResult:
        """Runs one round. ``heed_cursors``: another device's cursor was written since. ``enough``: see ``sync_round``.

        Raises:
            HomeBusy: another process of this home was syncing all that time.
            Revoked: this device was revoked.
            TokenRefused: the relay does not know this device's token; a revocation may be the reason.
            ProtocolError, StoreFailure, VaultDataError: as ``sync_round``.
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
        keep_names(self._device.member)
        return result

    async def run(self, flow: Flow[T], *, wait_seconds: float = LOCK_WAIT_SECONDS) -> T:
        """Runs one flow under the home's lock. Raises HomeBusy, and what the flow raises."""
        async with self._locked(wait_seconds):
            return await self._runner.run(flow)

    async def snapshot(self, *, due: bool = True, anew: bool = False) -> bool:
        """Makes a snapshot: with ``due`` only if one is due. Returns whether there is one to announce.

        Raises:
            StoreFailure, ProtocolError: nothing refers to what was stored; the snapshot is due again.
        """
        if due:
            return await _snapshot_if_due(self._device, self._runner)
        return await _snapshot_now(self._device, self._runner, anew=anew)

    async def files(
        self, *, scan: bool = True, offered: Callable[[], None] = lambda: None
    ) -> FilesReport | None:
        """Runs a round of the home's files; returns None while the memory is not caught up, which comes first.

        ``scan``: reads the whole tree, else only what other devices changed. ``offered``: see ``files_round``.

        Raises:
            HomeBusy: another process of this home syncs files.
            StoreFailure, ProtocolError: what was done before stands.
        """
        if not self._caught_up:
            return None
        journal = self._device.journal
        lost = journal.meta_get(META_RELAY_LOST) is not None
        report = await self._files.run(self._runner, scan=scan, relay_lost=lost, offered=offered)
        if lost:
            with journal.transaction() as transaction:
                transaction.meta_set(META_RELAY_LOST, None)
        return report

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Holds the home's lock: nobody else syncs or moves keys, and no round may run inside. Raises HomeBusy."""
        async with self._locked(LOCK_WAIT_SECONDS):
            yield

    async def do_duties(self) -> bool:
        """Tells the relay of changes in the device log. Raises StoreFailure, NotSetUp."""
        return await do_duties(self._device, self._runner)

    async def brief_round(
        self, *, heed_cursors: bool = False, enough: Callable[[], bool] = lambda: False
    ) -> SyncResult:
        """Runs a round that ends after ``BRIEF_SECONDS``, or when it is ``enough``, though there is more to do."""
        started = time.monotonic()
        return await self.round(
            heed_cursors=heed_cursors, enough=lambda: enough() or time.monotonic() - started > BRIEF_SECONDS
        )

    async def _round(
        self, wait_seconds: float, *, heed_cursors: bool, enough: Callable[[], bool]
    ) -> SyncResult:
        async with self._locked(wait_seconds):
            started, embedded = time.monotonic(), self._embedded_texts
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
            if report.caught_up:
                device = self._device
                memory_came(device.settings, device.journal, device.replica.database)
            if report.relay_lost:  # until a round of files has run, perhaps in another process
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
            await self._look_for_deletion(started)
            traffic, took = self._runner.traffic.since(before), time.monotonic() - started
            return SyncResult(report, traffic, took, problem, self._embedded_texts - embedded)

    def about(self, *, ask_key_store: bool = False) -> About:
        """What this device reports of itself. The token is read once, and again on demand: a key store may be slow."""
        if ask_key_store or not self._token:
            self._token = self._token_hash()
        return About(now_ms(), self._version, self._token)

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        """The store's long-poll. Raises StoreFailure."""
        return await self._waits.wait(prefix, token, seconds)

    async def _wait(self, prefix: str, token: str | None, seconds: float) -> str:
        try:
            return await self._store.wait(prefix, token=token, timeout=seconds)
        except RelayError as error:
            raise store_failure(error) from error

    async def _hold(self, prefix: str, token: str, seconds: float, heard: Callable[[], None]) -> str | None:
        try:
            return await hold(self._store, prefix, token=token, timeout=seconds, heard=heard)
        except StoreUnavailable:
            return None
        except RelayError as error:
            raise store_failure(error) from error

    def _token_hash(self) -> bytes:
        token = self._device.keys.token(self._device.identity.id)
        return b"" if token is None else bytes.fromhex(token_hash(token))

    async def _beside_the_round(self, now: float) -> str:
        """Does the duties of this device for its vault. Returns why that failed, "" if it did not or nothing is due.

        A failure does not fail the round; the next one tries again.
        """
        device = self._device
        if not device.holds_root and self._root_looked_for != device.member.log.root_number:
            # Another process of this device may have replaced it. Once for each root, since a key store may be slow.
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

    async def _look_for_deletion(self, now: float) -> None:
        """Asks whether the vault is to be deleted. A failure does not fail the round."""
        if now < self._deletion_at:
            return
        self._deletion_at = now + DUTIES_AGAIN_SECONDS
        with suppress(CrystalError, RelayError):
            await look_for_deletion(self._device)
            self._deletion_at = now + DELETION_LOOK_SECONDS  # §4.4-2

    def _keep_news(self) -> None:
        """Stores news for commands that do not open the device, and so cannot read names in the log."""
        keep_lines(self._device.member)

    async def claim(
        self, root: "Root | None" = None, *, force: bool, wait_seconds: float = LOCK_WAIT_SECONDS
    ) -> None:
        """Makes this device the Core; the present one becomes a Node at its next sync. ``root``: from the recovery kit.

        Raises HomeBusy, and as ``crystal_mirror.replication.claim.claim``.
        """
        async with self._locked(wait_seconds):
            member = self._device.member
            await self._runner.run(claim(member, root or member.root, force=force, now_ms=now_ms()))

    def release_idle_model(self) -> None:
        """Unloads the model if it was not needed for ``MODEL_IDLE_SECONDS``."""
        if self.ingest.loaded and time.monotonic() - self.ingest.needed_at > MODEL_IDLE_SECONDS:
            self.ingest.release()

    async def embed_backlog(self) -> int:
        """Runs rounds until nothing lacks vectors, or one has made none. Returns how many texts got some. Raises what `round`
        raises."""
        texts = 0
        while (due := self.vectors_due()) <= AFTER_STALE_SECONDS:
            await asyncio.sleep(due)
            embedded = (await self.round()).embedded
            if not embedded:
                break
            texts += embedded
        return texts

    def vectors_due(self) -> float:
        """Seconds until a round should embed what has no vectors; infinity if nothing lacks them."""
        return self.ingest.due()

    @property
    def scan_seconds(self) -> float:
        """How long the last scan of the home's files took."""
        return self._files.scan_seconds

    @property
    def traffic(self) -> Traffic:
        """The traffic of this syncer so far."""
        return self._runner.traffic.copy()

    def close(self) -> None:
        self._waits.close()
        self._moments.flush()
        self._files.close()
        self.ingest.close()

    @asynccontextmanager
    async def ahead(self) -> AsyncGenerator[None]:
        """Keeps watchers of this home from making rounds, for a command that has several steps in a row."""
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
            percent = percent_embedded(self._device.replica.database)
            self._progress(
                f"embedded {counted(self._embedded_texts, 'text')} so far, {percent} % of the memory"
            )


async def sync_now(device: Device, progress: Callable[[str], None] | None = None) -> SyncResult:
    """``crystal sync``: a full round both ways, with files and snapshots."""
    async with syncing(device, "crystal sync", progress) as syncer:
        return await sync_once(syncer)


async def sync_once(syncer: Syncer) -> SyncResult:
    """Runs a round, makes a snapshot if one is due, and syncs the files."""
    result = await syncer.round()
    if await syncer.snapshot():
        await syncer.round()  # announces it
    return await _with_files(syncer, result)


@asynccontextmanager
async def syncing(
    device: Device, purpose: str, progress: Callable[[str], None] | None = None
) -> AsyncGenerator[Syncer, None]:
    """A syncer for one command. ``purpose`` is shown to another process that finds the home busy."""
    async with device.online() as store:
        syncer = Syncer(device, store, purpose=purpose, progress=progress)
        try:
            yield syncer
        finally:
            syncer.close()


async def _snapshot_if_due(device: Device, runner: Runner) -> bool:
    """Makes a snapshot if one is due. Returns whether one was made."""
    if not device.member.is_core or snapshot_due(device.member, now_ms()) is None:
        return False
    return await _snapshot_now(device, runner)


async def _snapshot_now(device: Device, runner: Runner, *, anew: bool = False) -> bool:
    """Makes a snapshot. Returns False if this device is not the Core, or another process is making one."""
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


async def _with_files(syncer: Syncer, result: SyncResult) -> SyncResult:
    """Adds a round of files, and a round of the memory if files were offered. A failure of files is reported in the result.

    Raises Revoked, TokenRefused: this device was revoked.
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
