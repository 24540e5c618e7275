"""The background job of the recall log: it looks at answers that were captured, and lets go of what was forgotten."""

from crystal_node.base.clock import now_ms
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted
from crystal_node.device.device import Device
from crystal_node.search.recall.database import RecallDatabase
from crystal_node.search.recall.worth import judge

EVERY_SECONDS = 300.0


def jobs(device: Device) -> list[Job]:
    path = device.settings.home.recall_database

    async def look() -> str:
        log = RecallDatabase.open(path)
        try:
            judged = judge(log, device.replica.database, now_ms())
        finally:
            log.close()
        return f"{counted(judged, 'recall')} judged by the answers" if judged else ""

    return [
        Job(
            name="recall-log",
            what="Looks which recalled records the answers used, and lets go of forgotten ones.",
            every=EVERY_SECONDS,
            run=look,
            due=path.exists,
        )
    ]
