"""Jobs that a forget waits for, run by ``crystal sync`` where no background service runs.

Apart from the registry, so that a sync does not load every job.
"""

from collections.abc import Callable

from crystal_node.agent.jobs.status import agent_status
from crystal_node.base.errors import describe, passes
from crystal_node.derive.artefacts import job as artefacts
from crystal_node.derive.resume import job as resume
from crystal_node.derive.sessions import job as sessions
from crystal_node.derive.weaving import job as weaving
from crystal_node.search.finding import deep_cache
from crystal_node.search.recall import job as recall_log
from crystal_node.sync.job_context import JobContext

_FORGET_JOBS = ("artefacts", "unweave", "forget-answers", "recall-log", "sessions-forget", "resume-forget")


async def run_forget_jobs(work: JobContext, say: Callable[[str], None]) -> None:
    """Run the jobs that a forget waits for once, where no background service runs. Failures are said; the next sync retries.

    Files are kept up only where a background service made some before.
    """
    home = work.device.settings.home
    if agent_status(home).running:
        return
    # A former Core has no works.db, but journals that only it can take a forgotten text out of.
    made = artefacts.jobs(work) if home.works_database.exists() else []
    for job in (
        *made,
        *weaving.jobs(work),
        *sessions.jobs(work),
        *resume.jobs(work),
        *deep_cache.jobs(work.device),
        *recall_log.jobs(work.device),
    ):
        try:
            if job.name in _FORGET_JOBS and job.due():
                await job.run()
        except Exception as error:
            if not passes(error):
                raise
            say(f"{job.what[:-1]}: {describe(error).message}; the next sync tries again")
