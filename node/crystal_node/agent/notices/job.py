"""The agent's job: once a day at most, a notice on the desktop of what needs a person.

When the last one was shown is kept in the journal. A notice that could not be shown was none, and a day on which nothing needs
a person is looked at again in an hour.
"""

import asyncio
from contextlib import suppress

import apsw

from crystal_node.agent.health.checks.device import quick_checks
from crystal_node.agent.health.findings import Check, ConcernName, State, StuckName, concerns, guarded
from crystal_node.agent.health.status import device_status
from crystal_node.agent.notices.desktop import APP_NAME, Desktop, desktop_here
from crystal_node.base.jobs import Job
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.sync.job_context import JobContext

LINES_MAX = 4

_CONCERNS = {
    ConcernName.REVOKED: "This machine was put out of your vault.",
    ConcernName.REFUSED: "The relay refuses this machine.",
    ConcernName.FROZEN: "No machine is the Core: nothing reaches the others.",
    ConcernName.REVOCATION_UNFINISHED: "A device was not put out completely.",
    ConcernName.ROOT_REPLACED: "The vault's root that is kept here was replaced.",
    ConcernName.OTHER_MODEL: "The memory was embedded by another version's model.",
    ConcernName.KIT: "You have no recovery kit that was checked and works.",
    ConcernName.NEVER_ARRIVED: "A device was added, and was never heard of since.",
}
"""Those that no round of sync settles by itself."""
_STUCK = {
    StuckName.STAGING: "Conversations of a new agent wait for your decision.",
    StuckName.FILES: "Files are not synced until you decide.",
    StuckName.KEYS: "This machine was not given the newest keys.",
    StuckName.DISK: "A disk is full, or takes no writes.",
}
_CHECKS = {
    "permissions": "Others than you can use what is in the memory home.",
    "disk": "The disk is nearly full, or takes no writes.",
    "databases": "A database is damaged.",
    "jobs": "Something that runs in the background fell over.",
}
_OTHER_CHECK = "The doctor found something that is not well."
_KNOWN = frozenset({"device log", "access", "generation", "recovery kit"})
"""Checks of what concerns and stuck things tell already."""


def look_around(settings: Settings) -> list[Check]:
    """The doctor's checks that need no key and no network. They read databases: call it in a thread."""
    from crystal_node.agent.health.checks import background
    from crystal_node.agent.health.checks.databases import databases
    from crystal_node.agent.health.checks.home import permissions, room

    checks = guarded("permissions", lambda: permissions(settings))
    checks += guarded("disk", lambda: room(settings))
    checks += guarded("databases", lambda: databases(settings, deep=False))
    return checks + guarded("jobs", lambda: background.jobs(settings))


def needs(device: Device, looked: list[Check]) -> list[str]:
    """Each thing once, what matters most first. ``looked`` is what ``look_around`` found."""
    found = [_CONCERNS[each.name] for each in concerns(device) if each.name in _CONCERNS]
    found += [_STUCK[each.name] for each in device_status(device).stuck if each.name in _STUCK]
    checks = looked + guarded("device", lambda: quick_checks(device.settings, device))
    found += [
        _CHECKS.get(check.name, _OTHER_CHECK)
        for check in checks
        if check.state is State.FAILED and check.name not in _KNOWN
    ]
    return list(dict.fromkeys(found))


def body(found: list[str]) -> str:
    """The notice's text."""
    shown = found[:LINES_MAX]
    if len(found) > LINES_MAX:
        shown.append(f"And {len(found) - LINES_MAX} more.")
    return "\n".join([*shown, "`crystal status` and `crystal doctor` say what to do."])


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
