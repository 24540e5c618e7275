"""The job that keeps this device's sources up to date."""

from typing import TYPE_CHECKING

from crystal_node.base.errors import HomeBusy
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job
from crystal_node.device.privacy import PrivateNow

if TYPE_CHECKING:
    from crystal_node.sync.job_context import JobContext

EVERY_SECONDS = 900.0
RUN_SECONDS = 600.0
"""Limit for one source in a run, so that other heavy jobs get their turn; the next run goes on."""
TOLD_EVERY = 1000
"""Files between two reports of progress."""


def jobs(work: "JobContext") -> list[Job]:
    return [
        Job(
            name="sources",
            what="Reads what is new in the folders that are sources of this device.",
            every=EVERY_SECONDS,
            run=lambda: _run(work),
            due=work.device.settings.home.sources_database.exists,
            jitter=30.0,
            heavy=True,
        )
    ]


async def _run(work: "JobContext") -> str:
    from crystal_node.base.wording import counted
    from crystal_node.derive.sources.service import sync_sources

    told = 0

    def progress(name: str, done: int, total: int) -> None:
        nonlocal told
        if done - told >= TOLD_EVERY or done < told:
            told = done
            work.report(WatchEvent.PROGRESS, f"source {name}: {done:,} of {total:,} files read")

    try:
        synced = await sync_sources(work.device, progress=progress, seconds=RUN_SECONDS, wait_seconds=0.0)
    except (
        HomeBusy,
        PrivateNow,
    ):  # a person syncs them just now, or wants nothing read: the next run is soon
        return ""
    lines: list[str] = []
    for each in synced.sources:
        read = each.new + each.changed
        if read or each.removed:
            lines.append(f"{each.name}: {counted(read, 'document')} put, {each.removed:,} removed")
        if each.waiting:
            lines.append(f"{each.name}: {counted(each.waiting, 'removal')} to be confirmed")
    lines += [
        f"{each.name}: {each.device} has taken the name, {each.path} is not read any more"
        for each in synced.let_go
    ]
    return "; ".join(lines)
