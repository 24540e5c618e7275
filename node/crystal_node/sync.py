"""Sync as this device does it: rounds of the protocol under the home's lock, once or continuously.

``sync_now`` is ``crystal sync``; ``DeviceWork`` is what ``watch.py`` drives for ``crystal sync --watch``. The
lock is held for a round at a time, so that a manual ``crystal sync`` gets its turn beside a watcher.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_mirror.round import RoundReport, sync_round
from crystal_node.device import Device
from crystal_node.locking import FileLock
from crystal_node.runner import Runner, Traffic
from crystal_node.wording import size

if TYPE_CHECKING:
    from crystal_relay.store import Store

LOCK_WAIT_SECONDS = 60.0
"""How long a round waits for another process's round before it says that the home is busy."""
MODEL_IDLE_SECONDS = 30.0
"""A watching Core gives the embedding model's memory back when it was not needed for this long."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a round did and what it cost."""

    report: RoundReport
    traffic: Traffic
    seconds: float

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
                (report.rebuilt, "rebuilt the memory from the log"),
                (report.claimed, "began a new epoch"),
            )
            if count
        ]
        return ", ".join(parts)


class Syncer:
    """Runs rounds for one device on one store."""

    def __init__(self, device: Device, store: "Store", *, purpose: str) -> None:
        self._device = device
        self._embedder = BuiltinEmbedder()
        self._runner = Runner(store, self._loaded)
        self._purpose = purpose
        self.embedded_at = 0.0

    async def round(self, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> SyncResult:
        """One round.

        Raises:
            HomeBusy: another process of this home was syncing all that time.
            ProtocolError, StoreFailure, VaultDataError: as the round says.
        """
        lock = FileLock(
            self._device.settings.home.sync_lock, purpose=self._purpose, wait_seconds=wait_seconds
        )
        await lock.acquire_async()
        try:
            started = time.monotonic()
            before = self._runner.traffic.copy()
            report = await self._runner.run(sync_round(self._device.member, self._embedder.identity))
            return SyncResult(report, self._runner.traffic.since(before), time.monotonic() - started)
        finally:
            lock.release()

    def release_idle_model(self) -> None:
        """Gives the model's memory back if it has not been needed lately."""
        if self._embedder.loaded and time.monotonic() - self.embedded_at > MODEL_IDLE_SECONDS:
            self._embedder.release()

    def close(self) -> None:
        self._embedder.close()

    def _loaded(self) -> BuiltinEmbedder:
        self.embedded_at = time.monotonic()
        return self._embedder


async def sync_now(device: Device) -> SyncResult:
    """One full round both ways, as ``crystal sync`` does it."""
    async with device.online() as store:
        syncer = Syncer(device, store, purpose="crystal sync")
        try:
            return await syncer.round()
        finally:
            syncer.close()
