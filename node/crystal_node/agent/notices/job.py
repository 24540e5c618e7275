"""The job that shows on the desktop, at most once a day, what needs a person.

A notice is read by whoever passes by and is kept in lists. Its sentences are therefore fixed ones for each finding: no name of
a device or an agent, no path, no word of a conversation. The journal keeps when the last one was shown; one that could not be
shown does not count, and the job looks again an hour later.
"""

import asyncio
from contextlib import suppress

import apsw

from crystal_node.agent.health.checks import background
from crystal_node.agent.health.checks.databases import databases
from crystal_node.agent.health.checks.device import quick_checks
from crystal_node.agent.health.checks.home import disk_space, permissions
from crystal_node.agent.health.findings import Finding, FindingName, Severity, guarded
from crystal_node.agent.health.status import device_status
from crystal_node.agent.notices.desktop import APP_NAME, Desktop, desktop_here
from crystal_node.base.jobs import Job
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.sync.job_context import JobContext

EVERY_SECONDS = 3600.0
JITTER_SECONDS = 300.0
SHOWN_MS_MIN = 24 * 3600 * 1000
"""Between two notices."""
META_SHOWN = "node.desktop-notice"
LINES_MAX = 4

SENTENCES: dict[str, str] = {
    FindingName.REVOKED: "This machine was put out of your vault.",
    FindingName.REFUSED: "The relay refuses this machine.",
    FindingName.VAULT_DELETION: "The relay is going to delete your vault, as its owner asked.",
    FindingName.FROZEN: "No machine is the Core: nothing reaches the others.",
    FindingName.REVOCATION_UNFINISHED: "A device was not put out completely.",
    FindingName.ROOT_REPLACED: "The vault's root that is kept here was replaced.",
    FindingName.OTHER_MODEL: "The memory was embedded by another version's model.",
    FindingName.KIT: "You have no recovery kit that was checked and works.",
    FindingName.NEVER_ARRIVED: "A device was added, and was never heard of since.",
    FindingName.STAGING: "Conversations of a new agent wait for your decision.",
    FindingName.FILES: "Files are not synced until you decide.",
    FindingName.KEYS: "This machine was not given the newest keys.",
    FindingName.DISK: "A disk is full, or takes no writes.",
}
"""Of the findings of status that no round of sync settles."""
CHECK_SENTENCES = {
    "permissions": "Others than you can use what is in the memory home.",
    "disk": SENTENCES[FindingName.DISK],
    "databases": "A database is damaged.",
    "jobs": "Something that runs in the background fell over.",
}
"""Of the doctor's checks that failed, by their names."""
OTHER_SENTENCE = "The doctor found something that is not well."
_IN_STATUS = frozenset({"device log", "access", "generation", "recovery kit"})
"""Checks of what the findings of status tell already."""


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
        looked = await asyncio.to_thread(offline_checks, work.settings)
        found = notice_sentences(work.device, looked)
        if not found or not await asyncio.to_thread(desktop.show, APP_NAME, notice_text(found)):
            return ""
        self._shown = work.now_ms()
        with suppress(apsw.Error), work.device.journal.transaction() as transaction:
            transaction.meta_set(META_SHOWN, b"%d" % self._shown)
        return f"showed a notice of {counted(len(found), 'thing')}"


def offline_checks(settings: Settings) -> list[Finding]:
    """The doctor's checks that need no key and no network. They read databases: call it in a thread."""
    checks = guarded("permissions", lambda: permissions(settings))
    checks += guarded("disk", lambda: disk_space(settings))
    checks += guarded("databases", lambda: databases(settings, deep=False))
    return checks + guarded("jobs", lambda: background.jobs(settings))


def notice_sentences(device: Device, checks: list[Finding]) -> list[str]:
    """Each sentence once, most important first. ``checks``: what ``offline_checks`` found."""
    found = device_status(device)
    sentences = [SENTENCES.get(each.name) for each in (*found.concerns, *found.stuck)]
    checks = checks + guarded("device", lambda: quick_checks(device.settings, device))
    sentences += [
        CHECK_SENTENCES.get(check.name, OTHER_SENTENCE)
        for check in checks
        if check.severity is Severity.FAILED and check.name not in _IN_STATUS
    ]
    return list(dict.fromkeys(sentence for sentence in sentences if sentence is not None))


def notice_text(sentences: list[str]) -> str:
    shown = sentences[:LINES_MAX]
    if len(sentences) > LINES_MAX:
        shown.append(f"And {len(sentences) - LINES_MAX} more.")
    return "\n".join([*shown, "`crystal status` and `crystal doctor` say what to do."])
