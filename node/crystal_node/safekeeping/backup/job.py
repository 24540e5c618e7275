"""The background job that backs up to the folder of `crystal backup setup`, as often as configured there."""

import asyncio
import threading
from collections.abc import Callable

from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted, size
from crystal_node.device.activity import Activity, note
from crystal_node.safekeeping.backup.creation import BackedUp, Subject, back_up
from crystal_node.sync.job_context import JobContext

JITTER_SECONDS = 300.0
_HOUR_SECONDS = 3600.0


def jobs(work: JobContext) -> list[Job]:
    """The job, due when a folder was chosen."""

    async def run() -> str:
        done = await back_up_now(work)
        return "" if done is None else _line(done)

    return [
        Job(
            "backup",
            "Backs this device's home up to the folder that `crystal backup setup` chose.",
            work.settings.backup.every_hours * _HOUR_SECONDS,
            run,
            due=lambda: work.settings.backup.folder is not None,
            jitter=JITTER_SECONDS,
            heavy=True,
        )
    ]


async def back_up_now(work: JobContext) -> BackedUp | None:
    """Makes a backup in a thread; None if no folder was chosen. Raises as ``back_up``.

    Cancelled, it ends at the next block of bytes and leaves nothing.
    """
    settings = work.settings
    folder = settings.backup.folder
    if folder is None:
        return None
    subject, stopped = Subject.of(work.device), threading.Event()
    tell = _teller(work, asyncio.get_running_loop())

    def make() -> BackedUp:
        return back_up(
            settings,
            subject,
            folder,
            count=settings.backup.keep,
            marked=True,
            tell=tell,
            stopped=stopped.is_set,
        )

    try:
        done = await asyncio.to_thread(make)
    finally:
        stopped.set()
    note(work.device.journal, Activity.BACKUP, work.now_ms())
    return done


def _teller(work: JobContext, loop: asyncio.AbstractEventLoop) -> Callable[[str], None]:
    def tell(text: str) -> None:
        loop.call_soon_threadsafe(work.report, WatchEvent.PROGRESS, f"backup: {text}")

    return tell


def _line(done: BackedUp) -> str:
    text = f"backed up {size(done.manifest.bytes)} to {done.folder}"
    if done.unread:
        text += f"; {counted(len(done.unread), 'file')} could not be read, so no older one was deleted"
    return text
