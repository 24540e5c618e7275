"""The list of all jobs: each package with a duty in the background offers its own, here they come together.

A package's ``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from crystal_node.base.jobs import Job
from crystal_node.sync.work import JobContext


def duties(work: JobContext) -> list[Job]:
    """All jobs of this device, each name once."""
    from crystal_node.agent.jobs import sync_jobs
    from crystal_node.agent.notices import job as notices
    from crystal_node.derive.artefacts import job as artefacts
    from crystal_node.derive.sources import job as sources
    from crystal_node.derive.staging import job as staging
    from crystal_node.derive.weaving import job as weaving
    from crystal_node.safekeeping.backup import job as backup
    from crystal_node.search.finding import deepcache

    found: dict[str, Job] = {}
    for package in (sync_jobs, artefacts, sources, staging, weaving, backup, deepcache, notices):
        for job in package.jobs(work):
            assert job.name not in found, f"two jobs are called {job.name}"
            found[job.name] = job
    return list(found.values())
