"""The Core's job that advances staged agents; a former Core removes what it staged."""

from typing import TYPE_CHECKING

from crystal_node.base.errors import HomeBusy
from crystal_node.base.events import WatchEvent
from crystal_node.base.home import Home
from crystal_node.base.jobs import Job
from crystal_node.derive.catalog.rest import CatalogRest

if TYPE_CHECKING:
    from crystal_node.sync.job_context import JobContext

EVERY_SECONDS = 120.0


def jobs(work: "JobContext") -> list[Job]:
    rest = CatalogRest()
    return [
        Job(
            name="staging",
            what="Moves agents that are new here on to files of their own and to weaving.",
            every=EVERY_SECONDS,
            run=lambda: _run(work, rest),
            due=lambda: work.device.member.is_core or _staged_before(work.settings.home),
            heavy=True,
        )
    ]


def _staged_before(home: Home) -> bool:
    return home.staging.exists() or home.works_database.exists()


async def _run(work: "JobContext", rest: CatalogRest) -> str:
    from crystal_node.derive.artefacts.builder import catalog_lock
    from crystal_node.derive.staging.service import advance, clear_staging, dream_weaver

    def progress(text: str) -> None:
        work.report(WatchEvent.PROGRESS, text)

    if not work.device.member.is_core:
        home = work.settings.home
        with catalog_lock(home):
            clear_staging(home)
        return "staging is the Core's: what was staged here is cleared away"
    if rest.rests(work.device, work.settings.home):
        return ""
    try:
        moves = await advance(
            work.device,
            work.settings,
            dream_weaver(work.device, progress),
            tell=lambda text: work.report(WatchEvent.NEWS, text),
            progress=progress,
        )
    except HomeBusy:  # another process makes files: the next run is soon
        return ""
    if not (moves.lines or moves.waiting):
        rest.begin(work.settings.home)
    return "; ".join(moves.lines)
