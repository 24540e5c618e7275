"""``crystal reembed``: vectors of this Core's model for everything, after another model had made them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.errors import TransactionStale
from crystal_mirror.reembed import begin_reembedding, embed_some
from crystal_mirror.snapshots.base import META_MODEL
from crystal_node.device import Device
from crystal_node.replication.leading import check_leads
from crystal_node.replication.pace import Pace
from crystal_node.sync import syncing

WHAT = "embedding anew"


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

    Other rounds of this home have their turn between any two steps.

    Raises:
        NotAllowed: this device is not the Core.
        HomeBusy: another process of this home syncs all the time.
        StoreFailure: repeat it.
    """
    started = time.monotonic()
    former = former_model(device)
    pace = Pace(progress) if progress is not None else None
    texts = done = 0
    async with syncing(device, "crystal reembed", progress) as syncer:
        await syncer.round()
        check_leads(device, "embeds")
        await syncer.run(begin_reembedding(device.member, syncer.model))
        total = _bytes_without_vectors(device)
        while True:
            try:
                step = await syncer.run(embed_some(device.member, syncer.model))
            except TransactionStale:
                await syncer.round()
                check_leads(device, "embeds")
                continue
            if step is None:
                break
            texts += step.texts
            done += step.bytes
            if pace is not None:
                pace(WHAT, done, max(total, done))
        await syncer.round()
        return Reembedded(former, syncer.model, texts, time.monotonic() - started)


def _bytes_without_vectors(device: Device) -> int:
    """Of text, about: for saying how long it will take."""
    found = device.replica.database.value(
        "SELECT sum(length(text)) FROM chunks WHERE provisional = 0 AND rowid NOT IN (SELECT chunk FROM windows)"
    )
    return int(found or 0)
