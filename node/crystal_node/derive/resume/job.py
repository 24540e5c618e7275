"""The job by which a forget reaches what resuming and handing over left, though nobody resumes anything."""

from typing import TYPE_CHECKING

from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted

if TYPE_CHECKING:
    from crystal_node.sync.job_context import JobContext

FORGET_SECONDS = 300.0


def jobs(work: "JobContext") -> list[Job]:
    home = work.device.settings.home

    async def follow() -> str:
        from crystal_node.derive.resume.forgetting import follow_forgets, remove_old
        from crystal_node.derive.resume.index import IndexFile
        from crystal_node.search.finding.deep_outcome import forget_mark

        if follow_forgets(home, forget_mark(work.device.replica.database)):
            return "the list of sessions and what was handed over removed"
        removed = remove_old(home) + IndexFile(home.root).drop_changed()
        return f"{counted(removed, 'old part')} removed" if removed else ""

    return [
        Job(
            name="resume-forget",
            what="Removes what was handed over and the list of sessions when something was forgotten, and old parts of them.",
            every=FORGET_SECONDS,
            run=follow,
            due=lambda: any((home.state / name).exists() for name in ("resume.db", "resume", "handoff")),
        )
    ]
