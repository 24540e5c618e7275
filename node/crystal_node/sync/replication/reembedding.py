"""The vault changes over to other vectors: those of before are dropped everywhere, and the new ones go out to the others.

The new ones were made before (``crystal_node.sync.embedding_migration``), so this takes as long as the relay takes to be
sent them.
Until they have come a text is found by its words. A kill anywhere is made good by the Core's next rounds, or by running it
again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from crystal_mirror.errors import TransactionStale
from crystal_mirror.reembed import begin_reembedding
from crystal_mirror.snapshot_base import META_MODEL
from crystal_node.device.device import Device
from crystal_node.sync.embedding_notes import META_AGREED
from crystal_node.sync.replication.leading import check_is_core
from crystal_node.sync.replication.pace import ProgressLines
from crystal_node.sync.sync import syncing

WHAT = "changing over"
PURPOSE = "crystal embed migrate"


@dataclass(frozen=True, slots=True)
class Reembedded:
    """``former``: the model that had made the vectors, "" if there were none."""

    former: str
    model: str
    texts: int
    seconds: float


def former_model(device: Device) -> str:
    return (device.replica.meta_get(META_MODEL) or b"").decode()


async def change_over(
    device: Device, model: str, progress: Callable[[str], None] | None, *, anew: bool = False
) -> Reembedded:
    """Drops vectors of another model, or with ``anew`` all of them, and embeds until nothing is left without ``model``'s,
    which the settings name. Begun again, it goes on where it stopped. Other rounds of this home have their turn between any
    two steps.

    Raises:
        NotAllowed: this device is not the Core.
        HomeBusy: another process of this home syncs all the time.
        StoreFailure, EmbeddingError: repeat it.
    """
    started = time.monotonic()
    former = former_model(device)
    pace = ProgressLines(progress) if progress is not None else None
    texts = done = 0
    with device.journal.transaction() as transaction:
        transaction.meta_set(META_AGREED, model.encode())
    async with syncing(device, PURPOSE, progress) as syncer:
        await syncer.round()
        check_is_core(device, "embeds")
        total = _bytes_without_vectors(device)
        if anew or former != model:
            await syncer.run(begin_reembedding(device.member, model, anew=anew))
            syncer.ingest.begin_anew()
            total = _bytes_without_vectors(device)
        while True:
            try:
                async with syncer.alone():
                    step = await syncer.ingest.step(model)
            except TransactionStale:
                await syncer.round()
                check_is_core(device, "embeds")
                continue
            if step is None:
                break
            texts += step.texts
            done += step.bytes
            if pace is not None:
                pace(WHAT, done, max(total, done))
        await syncer.round()
        return Reembedded(former, model, texts, time.monotonic() - started)


def _bytes_without_vectors(device: Device) -> int:
    """Of text, about: for saying how long it will take."""
    found = device.replica.database.value(
        "SELECT sum(length(text)) FROM chunks WHERE provisional = 0 AND rowid NOT IN (SELECT chunk FROM windows)"
    )
    return int(found or 0)
