"""The list of all jobs: each package with a duty in the background offers its own, here they come together.

A package's ``jobs(work)`` is cheap and opens nothing: it is called at the start, and again when the settings change.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from crystal_node.agent.jobs import Job
from crystal_node.agent.work import AgentWork

Duty = Callable[[AgentWork], Sequence[Job]]

DUTIES = (
    "crystal_node.agent.basics",
    "crystal_node.artefacts.job",
    "crystal_node.staging.job",
    "crystal_node.weaving.job",
    "crystal_node.backup.job",
    "crystal_node.notices_desktop.job",
)


def duties(work: AgentWork) -> list[Job]:
    """All jobs of this device, each name once."""
    found: dict[str, Job] = {}
    for module in DUTIES:
        if not _is_there(module):
            continue
        for job in cast("Duty", import_module(module).jobs)(work):
            assert job.name not in found, f"two jobs are called {job.name}"
            found[job.name] = job
    return list(found.values())


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
