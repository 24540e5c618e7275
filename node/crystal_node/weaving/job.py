"""The agent's duties about weaving, on the Core alone: a run every so often, if that is configured, and letting go of what was
forgotten.

A run by itself is incremental, of every agent that has a folder here: agents that are new to the Core wait in staging.
"""

import asyncio
from typing import TYPE_CHECKING

from crystal_node.agent.jobs import Job
from crystal_node.watch import WatchEvent

if TYPE_CHECKING:
    from crystal_node.agent.work import AgentWork

HOUR_SECONDS = 3600.0
FORGET_EVERY_SECONDS = 300.0
JITTER_SECONDS = 300.0
_AGENTS = "SELECT DISTINCT agent FROM occurrences ORDER BY agent"


def jobs(work: "AgentWork") -> list[Job]:
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
            due=lambda: work.device.member.is_core and work.settings.home.weaver_database.exists(),
        ),
    ]


async def _weave(work: "AgentWork") -> str:
    from crystal_node.capture.agents import agent_folder
    from crystal_node.privacy import read_privacy
    from crystal_node.weaving import WeaveRequest, WeaveState, weave

    device = work.device
    if read_privacy(device.journal).on:
        return ""
    agents = [str(agent) for (agent,) in device.replica.database.each(_AGENTS)]
    mine = device.settings.agent_id
    lines: list[str] = []
    for agent in agents:
        if agent != mine and not await asyncio.to_thread(agent_folder(device.settings.home, agent).is_dir):
            continue
        result = await weave(
            device,
            WeaveRequest(agent=agent),
            lambda text, done, total: work.report(WatchEvent.PROGRESS, f"weaving {text} ({done}/{total})"),
        )
        if result.state is not WeaveState.NOTHING:
            lines.append(result.text)
    return " ".join(lines)


async def _let_go(work: "AgentWork") -> str:
    from crystal_node.locking import FileLock
    from crystal_node.weaving.forgetting import let_go_of_forgotten
    from crystal_node.weaving.weave import open_book
    from crystal_node.wording import counted

    home = work.device.settings.home
    with FileLock(home.state / "weaver.lock", purpose="crystal agent, unweave"), open_book(home) as book:
        count = let_go_of_forgotten(work.device, book)
    return f"{counted(count, 'part')} of journals taken out" if count else ""
