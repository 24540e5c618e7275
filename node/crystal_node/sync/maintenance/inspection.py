"""``crystal verify --deep``: checks this machine's memory down to the pages of its file, and everything on the relay."""

from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.repair.inspection import Inspection, inspect
from crystal_node.device.device import Device
from crystal_node.sync.maintenance.verification import Verification, verify
from crystal_node.sync.syncer import Syncer, syncing

CHECKING = "checking this machine's database"


@dataclass(frozen=True, slots=True)
class DeepVerification:
    """``faults``: damage of the database file, in words."""

    memory: Verification
    faults: tuple[str, ...]
    relay: Inspection

    @property
    def ok(self) -> bool:
        return self.memory.ok and not self.faults and not self.relay.problems


async def verify_deep(device: Device, progress: Callable[[str], None] | None) -> DeepVerification:
    """Reads everything, here and on the relay, and changes nothing. Raises StoreFailure."""
    async with syncing(device, "crystal verify --deep", progress) as syncer:
        return await look(device, syncer, progress)


async def look(device: Device, syncer: Syncer, progress: Callable[[str], None] | None) -> DeepVerification:
    """``verify_deep`` with an open syncer."""
    if progress is not None:
        progress(CHECKING)
    faults = tuple(device.replica.database.check())
    return DeepVerification(
        verify(device, passes_damage=True), faults, await syncer.run(inspect(device.member))
    )
