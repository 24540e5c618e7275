"""Jobs of the copies of sessions: merging quiet ones, forgetting, retention."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_node.base.events import WatchEvent
from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted, size

if TYPE_CHECKING:
    from crystal_node.derive.sessions.service import SessionService
    from crystal_node.sync.job_context import JobContext

SETTLE_SECONDS = 300.0
FORGET_SECONDS = 60.0
RETAIN_SECONDS = 3600.0


@dataclass
class _Rest:
    """``mark``: of ``SessionService.forget_mark``, when the copies last held no forgotten texts; None if they may hold some."""

    mark: tuple[int, bytes] | None = None


def jobs(work: "JobContext") -> list[Job]:
    rest = _Rest()

    def has_copies() -> bool:
        return work.settings.home.sessions_database.exists()

    return [
        Job(
            name="sessions-settle",
            what="Merges the parts of copies of sessions that have become quiet.",
            every=SETTLE_SECONDS,
            run=lambda: _settle(work),
            due=has_copies,
            heavy=True,
        ),
        Job(
            name="sessions-forget",
            what="Takes forgotten texts out of the copies of sessions.",
            every=FORGET_SECONDS,
            run=lambda: _forget(work, rest),
            due=lambda: has_copies() or (work.settings.home.root / "sessions").is_dir(),
        ),
        Job(
            name="sessions-retention",
            what="Removes copies of sessions by age and size, as `crystal sessions retention` says.",
            every=RETAIN_SECONDS,
            run=lambda: _retain(work),
            due=lambda: (
                work.device.member.is_core
                and bool(work.settings.sessions.keep_days or work.settings.sessions.max_gb)
            ),
        ),
    ]


async def _settle(work: "JobContext") -> str:
    service = _service(work)
    try:
        count = await service.settle()
    finally:
        service.close()
    return f"{counted(count, 'session')} merged" if count else ""


async def _forget(work: "JobContext", rest: _Rest) -> str:
    service = _service(work)
    mark = service.forget_mark()
    if mark == rest.mark:  # to open the database each minute would wake a disk at rest
        return ""
    try:
        done = await service.forget()
    finally:
        service.close()
    rest.mark = None if done.behind else mark
    said: list[str] = []
    if done.changed:
        said.append(f"{counted(done.changed, 'copy', 'copies')} of sessions without forgotten texts now")
    if done.problems:
        more = f", and {len(done.problems) - 1} more" if len(done.problems) > 1 else ""
        said.append(f"forgotten texts may still be in a copy of a session: {done.problems[0]}{more}")
        work.report(WatchEvent.FAILED, said[-1])
    return "; ".join(said)


async def _retain(work: "JobContext") -> str:
    service = _service(work)
    try:
        gone = await service.retain()
    finally:
        service.close()
    if not gone:
        return ""
    return f"{counted(len(gone), 'session')} removed ({size(sum(each.packed for each in gone))})"


def _service(work: "JobContext") -> "SessionService":
    from crystal_node.derive.sessions.service import SessionService

    return SessionService(work.device, lambda: work.settings)
