"""What `crystal sync` does where no agent runs: files that were made from the memory follow it, so that a forget reaches them.

Only what an agent began before is kept up; where none ever ran, nothing is made.
"""

from collections.abc import Callable

from crystal_node.agent.jobs.status import agent_standing
from crystal_node.base.errors import describe, passes
from crystal_node.base.jobs import Job
from crystal_node.sync.work import JobContext


async def keep_up(work: JobContext, say: Callable[[str], None]) -> None:
    """Runs the duties that a forget waits for, once. What cannot be done now is said, and done the next time."""
    for job in _wanted(work):
        try:
            if job.due():
                await job.run()
        except Exception as error:
            if not passes(error):
                raise
            say(f"{job.what[:-1]}: {describe(error).message}; the next sync tries again")


def _wanted(work: JobContext) -> list[Job]:
    from crystal_node.derive.artefacts.job import jobs as artefacts
    from crystal_node.derive.weaving.job import jobs as weaving
    from crystal_node.search.finding.deepcache import jobs as searches

    home = work.device.settings.home
    if agent_standing(home).running:
        return []
    # A device that led before has no works.db any more, and journals that only it can take a text out of.
    made = artefacts(work) if home.works_database.exists() else []
    kept_up = ("artefacts", "unweave", "forget-answers")
    return [job for job in (*made, *weaving(work), *searches(work)) if job.name in kept_up]
