"""The Core's job that keeps the files made from the memory up to date."""

from typing import TYPE_CHECKING

from crystal_node.base.errors import HomeBusy
from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted
from crystal_node.derive.catalog.rest import CatalogRest, waiting_files

if TYPE_CHECKING:
    from crystal_node.sync.job_context import JobContext

EVERY_SECONDS = 120.0


def jobs(work: "JobContext") -> list[Job]:
    rest = CatalogRest()
    return [
        Job(
            name="artefacts",
            what="Makes transcripts, summaries and daily logs of the conversations that changed.",
            every=EVERY_SECONDS,
            run=lambda: _run(work, rest),
            due=lambda: work.device.member.is_core,
        )
    ]


async def _run(work: "JobContext", rest: CatalogRest) -> str:
    from crystal_node.derive.artefacts.builder import artefact_builder

    home = work.settings.home
    if rest.rests(work.device, home):
        return ""

    def tell(text: str) -> None:
        work.report(WatchEvent.NEWS, text)

    try:
        async with artefact_builder(work.device, work.settings, tell=tell) as builder:
            changes = await builder.update(work.now_ms())
            if changes.behind:
                return "the memory is being rebuilt: its files wait"
            made = await builder.make(work.now_ms(), lambda text: work.report(WatchEvent.PROGRESS, text))
            waits = waiting_files(builder.catalog) or not builder.complete
    except HomeBusy:  # staging or a command is making files
        return ""
    if not waits:
        rest.begin(home)
    if not (made.written or made.removed):
        return ""
    removed = f", {counted(made.removed, 'file')} removed" if made.removed else ""
    return f"{counted(made.written, 'file')} written{removed}"
