"""The job that keeps AI tools' own memory files in step, of the tools that a person named on this device."""

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from crystal_node.base.errors import HomeBusy
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted

if TYPE_CHECKING:
    from crystal_node.sync.job_context import JobContext

EVERY_SECONDS = 30.0


def jobs(work: "JobContext") -> list[Job]:
    return [
        Job(
            name="native-memory",
            what="Keeps the memory files of AI tools in step with your other devices.",
            every=EVERY_SECONDS,
            run=lambda: _run(work),
            due=lambda: bool(work.settings.capture.native_memory),
        )
    ]


async def _run(work: "JobContext") -> str:
    from crystal_node.derive.native_memory.service import kept_in_step

    written = 0
    try:
        with closing(kept_in_step(work.device, work.settings, work.now_ms())) as files:
            for file in files:
                written += file.written
                await asyncio.sleep(0)  # the service's other work goes on between two files
    except HomeBusy:  # a person does it just now
        return ""
    return f"{counted(written, 'file')} changed" if written else ""
