"""The agent's job: once a day at most, a notice on the desktop of what needs a person.

When the last one was shown is kept in the journal. A notice that could not be shown was none, and a day on which nothing needs
a person is looked at again in an hour.
"""

import asyncio
from contextlib import suppress

import apsw

from crystal_node.agent.notices.desktop import APP_NAME, Desktop, desktop_here
from crystal_node.agent.notices.needs import body, look_around, needs
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted
from crystal_node.sync.work import JobContext

EVERY_SECONDS = 3600.0
JITTER_SECONDS = 300.0
SHOWN_MS_MIN = 24 * 3600 * 1000
"""Between two notices."""
META_SHOWN = "node.desktop-notice"


def jobs(work: JobContext) -> list[Job]:
    """One, on machines of a kind that have a desktop."""
    desktop = desktop_here()
    if desktop is None:
        return []
    notices = Notices(work, desktop)
    return [
        Job(
            "notices",
            "Shows on the desktop what needs a person, once a day at most.",
            EVERY_SECONDS,
            notices.run,
            due=notices.due,
            jitter=JITTER_SECONDS,
        )
    ]


class Notices:
    """See the module."""

    def __init__(self, work: JobContext, desktop: Desktop) -> None:
        self._work = work
        self._desktop = desktop
        self._shown = 0
        """Kept here as well: what a notice is about may be a disk that takes no note."""

    def due(self) -> bool:
        """Whether notices are wanted, and the last one was a day ago."""
        if not self._work.settings.agent_process.desktop_notices:
            return False
        kept = int(self._work.device.journal.meta_get(META_SHOWN) or 0)
        return all(not 0 <= self._work.now_ms() - at < SHOWN_MS_MIN for at in (kept, self._shown))

    async def run(self) -> str:
        """Shows what there is. Says what was done, "" if nothing was."""
        work, desktop = self._work, self._desktop
        if not await asyncio.to_thread(desktop.is_there):
            return ""
        looked = await asyncio.to_thread(look_around, work.settings)
        found = needs(work.device, looked)
        if not found or not await asyncio.to_thread(desktop.show, APP_NAME, body(found)):
            return ""
        self._shown = work.now_ms()
        with suppress(apsw.Error), work.device.journal.transaction() as transaction:
            transaction.meta_set(META_SHOWN, b"%d" % self._shown)
        return f"showed a notice of {counted(len(found), 'thing')}"
