"""The list of all jobs: each package with a duty in the background offers its own, here they come together.

A package's ``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from collections.abc import Callable

from crystal_node.agent.jobs.status import agent_status
from crystal_node.base.errors import describe, passes
from crystal_node.base.jobs import Job
from crystal_node.sync.job_context import JobContext


def all_jobs(work: JobContext) -> list[Job]:
    """All jobs of this device, each name once."""
    from crystal_node.agent.jobs import sync_jobs
    from crystal_node.agent.notices import job as notices
    from crystal_node.derive.artefacts import job as artefacts
    from crystal_node.derive.sources import job as sources
    from crystal_node.derive.staging import job as staging
    from crystal_node.derive.weaving import job as weaving
    from crystal_node.safekeeping.backup import job as backup
    from crystal_node.search.finding import deep_cache

    found: dict[str, Job] = {}
    offered = [
        package.jobs(work) for package in (sync_jobs, artefacts, sources, staging, weaving, backup, notices)
    ]
    for jobs in (*offered, deep_cache.jobs(work.device)):
        for job in jobs:
            assert job.name not in found, f"two jobs are called {job.name}"
            found[job.name] = job
    return list(found.values())


async def run_forget_jobs(work: JobContext, say: Callable[[str], None]) -> None:
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
    from crystal_node.search.finding.deep_cache import jobs as searches

    home = work.device.settings.home
    if agent_status(home).running:
        return []
    # A device that led before has no works.db any more, and journals that only it can take a text out of.
    made = artefacts(work) if home.works_database.exists() else []
    kept_up = ("artefacts", "unweave", "forget-answers")
    return [job for job in (*made, *weaving(work), *searches(work.device)) if job.name in kept_up]
