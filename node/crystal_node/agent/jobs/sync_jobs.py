"""Jobs of sync, which ``crystal sync --watch`` runs too: snapshots, and releasing the model's memory."""

import os

from crystal_node.base.jobs import Job
from crystal_node.sync.job_context import JobContext

SNAPSHOT_SECONDS = 30.0
MODEL_SECONDS = 30.0


def jobs(work: JobContext) -> list[Job]:
    syncer, nudge = work.syncer, work.device.settings.home.nudge_file

    async def snapshot() -> str:
        if not await syncer.snapshot():
            return ""
        os.utime(nudge)  # requests the round that announces it
        return "made a snapshot"

    async def release() -> str:
        syncer.release_idle_model()
        return ""

    return [
        Job(
            "snapshot",
            "Makes a snapshot of the memory when one is due, so that new devices need not read the whole log.",
            SNAPSHOT_SECONDS,
            snapshot,
            due=lambda: work.device.member.is_core,
            jitter=5.0,
        ),
        Job(
            "idle-model",
            "Releases the embedding model's memory when it is not needed.",
            MODEL_SECONDS,
            release,
        ),
    ]
