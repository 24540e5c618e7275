"""Registry of background jobs: each package with background work offers its own ``jobs``.

``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from crystal_node.agent.jobs import sync_jobs
from crystal_node.agent.notices import job as notices
from crystal_node.base.jobs import Job
from crystal_node.derive.artefacts import job as artefacts
from crystal_node.derive.native_memory import job as native_memory
from crystal_node.derive.resume import job as resume
from crystal_node.derive.sessions import job as sessions
from crystal_node.derive.sources import job as sources
from crystal_node.derive.staging import job as staging
from crystal_node.derive.weaving import job as weaving
from crystal_node.safekeeping.backup import job as backup
from crystal_node.search.finding import deep_cache
from crystal_node.search.recall import job as recall_log
from crystal_node.sync.job_context import JobContext
from crystal_prototype import bridge_job


def all_jobs(work: JobContext) -> list[Job]:
    """All jobs of this device, each name once."""
    found: dict[str, Job] = {}
    offered = [
        package.jobs(work)
        for package in (
            *(sync_jobs, artefacts, sessions, resume, sources),
            *(native_memory, staging, weaving, backup, notices),
        )
    ]
    of_device = (deep_cache, recall_log, bridge_job)
    for jobs in (*offered, *(package.jobs(work.device) for package in of_device)):
        for job in jobs:
            assert job.name not in found, f"two jobs are called {job.name}"
            found[job.name] = job
    return list(found.values())
