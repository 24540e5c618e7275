"""The list of all jobs: each package with a duty in the background offers its own, here they come together.

A package's ``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from crystal_node.agent.jobs import Job
from crystal_node.agent.work import AgentWork


def duties(work: AgentWork) -> list[Job]:
    """All jobs of this device, each name once."""
    from crystal_node.agent import basics
    from crystal_node.artefacts import job as artefacts
    from crystal_node.backup import job as backup
    from crystal_node.finding import deepcache
    from crystal_node.notices_desktop import job as notices
    from crystal_node.sources import job as sources
    from crystal_node.staging import job as staging
    from crystal_node.weaving import job as weaving

    found: dict[str, Job] = {}
    for package in (basics, artefacts, sources, staging, weaving, backup, deepcache, notices):
        for job in package.jobs(work):
            assert job.name not in found, f"two jobs are called {job.name}"
            found[job.name] = job
    return list(found.values())
