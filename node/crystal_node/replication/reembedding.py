"""``crystal reembed``: vectors of this Core's model for everything, after another model had made them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.base import META_MODEL
from crystal_mirror.reembed import reembed
from crystal_node.device import Device
from crystal_node.replication.leading import check_leads
from crystal_node.sync import syncing


@dataclass(frozen=True, slots=True)
class Reembedded:
    """``former``: the model that had made the vectors, "" if there were none."""

    former: str
    model: str
    texts: int
    seconds: float


def former_model(device: Device) -> str:
    return (device.replica.meta_get(META_MODEL) or b"").decode()


async def embed_anew(device: Device, progress: Callable[[str], None] | None) -> Reembedded:
    """Embeds until nothing is left without vectors of this Core's model. Begun again, it goes on where it stopped.

    Raises:
        NotAllowed: this device is not the Core.
        TransactionStale, HomeBusy: something else writes to the log at the moment; repeat it.
        StoreFailure: repeat it.
    """
    started = time.monotonic()
    former = former_model(device)
    async with syncing(device, "crystal reembed", progress) as syncer:
        await syncer.round()
        check_leads(device, "embeds")
        texts = await syncer.run(reembed(device.member, syncer.model))
        await syncer.round()
        return Reembedded(former, syncer.model, texts, time.monotonic() - started)
