"""Registry of background jobs: each package with background work offers its own ``jobs``.

``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from collections.abc import Callable

from crystal_node.agent.jobs import sync_jobs
from crystal_node.agent.jobs.status import agent_status
from crystal_node.agent.notices import job as notices
from crystal_node.base.errors import describe, passes
from crystal_node.base.jobs import Job
from crystal_node.derive.artefacts import job as artefacts
from crystal_node.derive.sources import job as sources
from crystal_node.derive.staging import job as staging
from crystal_node.derive.weaving import job as weaving
from crystal_node.safekeeping.backup import job as backup
from crystal_node.search.finding import deep_cache
from crystal_node.sync.job_context import JobContext

_FORGET_JOBS = ("artefacts", "unweave", "forget-answers")


def all_jobs(work: JobContext) -> list[Job]:
    """All jobs of this device, each name once."""
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
    """Run the jobs that a forget waits for once, where no background service runs. Failures are said; the next sync retries.

    Files are kept up only where a background service made some before.
    """
    home = work.device.settings.home
    if agent_status(home).running:
        return
    # A former Core has no works.db, but journals that only it can take a forgotten text out of.
    made = artefacts.jobs(work) if home.works_database.exists() else []
    for job in (*made, *weaving.jobs(work), *deep_cache.jobs(work.device)):
        try:
            if job.name in _FORGET_JOBS and job.due():
                await job.run()
        except Exception as error:
            if not passes(error):
                raise
            say(f"{job.what[:-1]}: {describe(error).message}; the next sync tries again")
