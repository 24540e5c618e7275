"""Jobs of weaving: scheduled runs on the Core, and removal of forgotten content wherever something was woven.

A scheduled run is incremental, of this device's agent and all live agents. Agents in staging or rejected are left out; of one
whose past is never woven, only what came since then is read.
"""

import asyncio
from typing import TYPE_CHECKING

from crystal_crypto.errors import CrystalError
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.sync.job_context import JobContext

HOUR_SECONDS = 3600.0
FORGET_EVERY_SECONDS = 300.0
JITTER_SECONDS = 300.0


def jobs(work: "JobContext") -> list[Job]:
    hours = work.settings.dreams.every_hours
    return [
        Job(
            name="dream-weave",
            what="Weaves what the agents of this vault lived through since the last run.",
            every=(hours or 24) * HOUR_SECONDS,
            run=lambda: _weave(work),
            due=lambda: bool(work.settings.dreams.every_hours) and work.device.member.is_core,
            jitter=JITTER_SECONDS,
            heavy=True,
        ),
        Job(
            name="unweave",
            what="Takes out of journals what was made of texts that have been forgotten.",
            every=FORGET_EVERY_SECONDS,
            run=lambda: _let_go(work),
            due=work.settings.home.weaver_database.exists,
        ),
    ]


async def _weave(work: "JobContext") -> str:
    from crystal_core.llm.errors import RateLimited, Unavailable
    from crystal_mirror.errors import NotAllowed
    from crystal_node.base.errors import HomeBusy
    from crystal_node.derive.weaving import WeaveRequest, WeaveState
    from crystal_node.derive.weaving.weave import weave
    from crystal_node.device.privacy import PrivateNow, read_privacy

    device = work.device
    if read_privacy(device.journal).on:
        return ""
    lines: list[str] = []
    failed: CrystalError | None = None
    for agent, since in (await asyncio.to_thread(agents_to_weave, work.settings)).items():
        if device.replica.database.row("SELECT 1 FROM occurrences WHERE agent = ? LIMIT 1", (agent,)) is None:
            continue
        try:
            result = await weave(
                device,
                WeaveRequest(agent=agent, since=since),
                lambda text, done, total: work.report(
                    WatchEvent.PROGRESS, f"weaving {text} ({done}/{total})"
                ),
            )
        except (Unavailable, RateLimited, PrivateNow, NotAllowed, HomeBusy):  # of all agents
            raise
        except CrystalError as error:  # perhaps of this agent only: weave the others
            failed = failed or error
            continue
        if result.state is not WeaveState.NOTHING:
            lines.append(result.text)
    if failed is not None:
        raise failed
    return " ".join(lines)


def agents_to_weave(settings: "Settings") -> dict[str, int]:
    """Agents of a scheduled run, and from when on to read (milliseconds, 0 for all)."""
    from crystal_node.derive.catalog.agents import StagingState, Weave, staged_agents

    usual = settings.dreams.staging
    live = {
        one.agent: one.since if (one.weave or usual) == Weave.NEVER else 0
        for one in staged_agents(settings.home)
        if one.state is StagingState.LIVE
    }
    return live | {settings.agent_id: 0}


async def _let_go(work: "JobContext") -> str:
    from crystal_node.base.locking import FileLock
    from crystal_node.base.wording import counted
    from crystal_node.derive.weaving.forget import remove_forgotten
    from crystal_node.derive.weaving.weave import open_database

    home = work.device.settings.home
    lock = FileLock(home.state / "weaver.lock", purpose="crystal agent, unweave")
    if not lock.try_acquire():  # the process that weaves does it first
        return ""
    try:
        with open_database(home) as database:
            count = remove_forgotten(work.device, database)
    finally:
        lock.release()
    return f"{counted(count, 'part')} of journals taken out" if count else ""
